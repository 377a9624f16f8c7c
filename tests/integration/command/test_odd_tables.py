"""A schema of odd tables moves by what the commands print, with few edits by a person."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import sql

from tests.integration.support import looking, odd_tables
from tests.integration.support.command import command
from tests.servers import Servers, own

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SCHEMA = own("odd")
MOST_EDITS = 9


@pytest.fixture
def transfers(
    stack: Servers, pg_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path / "transfers"))
    tables = (odd_tables.TABLES, odd_tables.NOTHING, odd_tables.VIEWS)
    statements = [statement for group in tables for statement in group.values()]
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(SCHEMA)))
        for statement in (*odd_tables.TYPES, *statements, *odd_tables.ROWS):
            connection.execute(statement.encode())
        yield tmp_path / "transfers"
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(SCHEMA)))


def advice(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The first remedy of each column whose values would be refused, by transfer."""
    remedies: dict[str, list[dict[str, Any]]] = {}
    for transfer in document["transfers"]:
        for hop in transfer["hops"]:
            for column in hop["columns"]:
                settings = yaml.safe_load(column["remedies"][0]["yaml"])
                said = remedies.setdefault(transfer["transfer"], [])
                if settings not in said:
                    said.append(settings)
    return remedies


def edit(path: Path, settings: dict[str, Any]) -> None:
    """Do to a transfer file what a remedy says."""
    document = yaml.safe_load(path.read_text())
    for name, declared in settings.get("columns", {}).items():
        document.setdefault("columns", {}).setdefault(name, {}).update(declared)
    hops = [hop if isinstance(hop, dict) else {"to": hop} for hop in document["hops"]]
    for said in settings.get("hops", []):
        (hop,) = [each for each in hops if each["to"] == said["to"]]
        for name, declared in said["columns"].items():
            hop.setdefault("columns", {}).setdefault(name, {}).update(declared)
    document["hops"] = hops
    document["exclude"] = [*document.get("exclude", []), *settings.get("exclude", [])]
    path.write_text(yaml.safe_dump(document, allow_unicode=True))


def test_odd_tables_move_by_the_advice_that_is_printed(transfers: Path, stack: Servers) -> None:
    declared = command(
        *("init", "--from", "postgres", "--tables", f"{SCHEMA}.*", "--views", "--chain"),
        *("--to", "sqlserver://dbo.{schema}_{table}"),
        *("--to", "clickhouse://warehouse.{schema}_{table}"),
    )
    assert declared.exit_code == 0, declared.output
    assert command("validate").exit_code == 0
    planned = json.loads(command("plan", "--all", "--values", "--json").stdout)
    edits = advice(planned)
    assert sum(map(len, edits.values())) <= MOST_EDITS
    for name, remedies in edits.items():
        for settings in remedies:
            edit(transfers / f"{name}.yaml", settings)
    checked = command("validate")
    assert checked.exit_code == 0, checked.output
    ran = command("run", "--all", "--quiet")
    assert ran.exit_code == 0, ran.output
    arrived = dict(
        looking.ask_clickhouse(
            stack.clickhouse_url,
            f"SELECT name, total_rows FROM system.tables WHERE startsWith(name, '{SCHEMA}_')",
        )
    )
    sent = looking.ask_postgres(
        stack.postgres_url,
        " UNION ALL ".join(
            f"""SELECT '{name}', count(*) FROM {SCHEMA}."{table}\""""
            for table in odd_tables.TABLES
            if (name := f"{SCHEMA}_{table}".replace('""', '"')) in arrived
        ),
    )
    assert len(sent) >= 46 and dict(sent) == arrived
