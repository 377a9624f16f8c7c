"""What `ferry run --dry-run` prints, a run sends, and itself it sends only queries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import chain
from typing import Any

import psycopg
import pytest

from tableferry.resources.contract.target_options import WriteMode
from tableferry.resources.tables import TableRef, staging_prefix
from tests.integration.conftest import Ferry
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
    "INSERT INTO {t} SELECT g, 'name ' || g FROM generate_series(-9, 300) g",
)
EFFECTS = (
    "set_config",
    "pg_try_advisory_lock",
    "pg_advisory_unlock",
    "pg_current_xact_id",
    "sp_getapplock",
)
"""What queries have in them that do something."""

READS = re.compile(r"\s*(SELECT|WITH|SHOW|CHECK GRANT|EXPLAIN|DECLARE @(?!result)|COPY \()")
SESSION = re.compile("BEGIN ISOLATION|SET TRANSACTION|SET search_path|SET LANGUAGE")
"""What begins a session, or reads a source under a snapshot."""


class Wire:
    """The statements that a driver sends to the target's server."""

    def __init__(self, target: TableRef, monkeypatch: pytest.MonkeyPatch) -> None:
        self._own, self._sent = staging_prefix(target), list[str]()
        for owner, name in DRIVERS[target.system.name]():
            self._watch(monkeypatch, owner, name)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def watched(this: Any, *arguments: Any, **options: Any) -> Any:
            if "insert_block" in options:
                first = next(options["insert_block"])  # the statement comes before the rows
                options["insert_block"] = chain([first], options["insert_block"])
                sql: Any = first.partition(b"\n")[0]
            else:
                sql = arguments[0]
            self._sent.append(sql.decode() if isinstance(sql, bytes) else str(sql))
            return real(this, *arguments, **options)

        monkeypatch.setattr(owner, name, watched)

    def heard(self) -> list[str]:
        """The statements with an effect since the last time, in their order."""
        sent, self._sent = self._sent, []
        return [each for each in sent if has_effect(each) and not self._tries(each)]

    def _tries(self, statement: str) -> bool:
        """Whether it tries a wire, once per server, beside some other table."""
        tables = re.findall(r"__ferry_[0-9a-f]{12}_", statement)
        return bool(tables) and self._own not in tables


def postgres() -> list[tuple[Any, str]]:
    return [(psycopg.Connection, "execute"), (psycopg.Cursor, "copy")]


def sqlserver() -> list[tuple[Any, str]]:
    from mssql_python.cursor import Cursor

    return [(Cursor, "execute")]


def clickhouse() -> list[tuple[Any, str]]:
    from clickhouse_connect.driver.httpclient import HttpClient

    return [(HttpClient, "command"), (HttpClient, "raw_insert")]


DRIVERS = {"postgres": postgres, "sqlserver": sqlserver, "clickhouse": clickhouse}
"""The functions through which each driver sends statements."""


def has_effect(statement: str) -> bool:
    if SESSION.match(statement):
        return False
    return any(word in statement for word in EFFECTS) or not READS.match(statement)


def same(statement: str) -> str:
    """A statement without what is another in each attempt."""
    text = " ".join(statement.split())
    text = re.sub(r"(__ferry_[0-9a-f]{12}_[0-9a-f]{12}_)(<attempt>|[0-9a-f]{12})", r"\1X", text)
    if "__ferry_ranges" in text:  # which table, version and attempt it marks
        text = re.sub(r"N?'[^']*'|\b\d+\b", "X", text)
    text = re.sub(r'"(run|token|replaces)": "[^"]*"', r'"\1": "X"', text)
    return text.rstrip(";")


def shown(table: str) -> list[str]:
    """The statements of all ranges of the only hop that a dry run shows."""
    planned = json.loads(command("plan", table, "--json").stdout)["ranges"]
    named = [part for each in planned for part in ("--range", each["range"])]
    result = command("run", table, "--dry-run", *named, "--json")
    assert result.exit_code == 0, result.output
    (hop,) = json.loads(result.stdout)["hops"]
    published = [statement for part in hop["ranges"] for statement in part["publication"]]
    statements = [*hop["creation"], *published]
    return [same(each) for each in statements if not each.startswith("--") and has_effect(each)]


def compared(table: str, wire: Wire) -> list[str]:
    """Have a run send all that a dry run shows, in this order; return what it sends."""
    wire.heard()
    promised = shown(table)
    assert wire.heard() == [], "a dry run has no effect"
    ran = command("run", table)
    assert ran.exit_code == 0, ran.output
    sent = [same(statement) for statement in wire.heard()]
    left = iter(sent)
    for statement in promised:
        assert statement in left, "\n".join([statement, "", *sent])
    return sent


@pytest.mark.parametrize("mode", [mode.value for mode in WriteMode if mode.moves])
@pytest.mark.parametrize("system", DRIVERS)
def test_a_run_sends_what_a_dry_run_shows(
    ferry: Make, copies: str, monkeypatch: pytest.MonkeyPatch, system: str, mode: str
) -> None:
    schema = {"postgres": copies, "sqlserver": "dbo", "clickhouse": "warehouse"}[system]
    hop, parallel = f"['{system}://{schema}.{{t}}']", "{export: 1, load: 1}"
    one = ferry(hop, *TABLE, ranges="{bounds: [1, 200]}", write=mode, parallel=parallel)
    wire = Wire(TableRef(system, schema, one.table), monkeypatch)
    first = compared(one.table, wire)
    assert any(each.startswith("CREATE TABLE") for each in first)
    if mode == "swap" and system == "sqlserver":
        own = f'FROM "dbo"."{one.table}"'
        copied = next(at for at, each in enumerate(first) if re.search(f"^INSERT .* {own} ", each))
        made = max(at for at in range(copied) if first[at].startswith("CREATE TABLE"))
        # until then, whoever reads the catalog waits
        assert any("COMMIT" in each for each in first[made:copied]), first[made:copied]
    one.source("INSERT INTO {t} VALUES (400, 'new')")
    if mode != "append":
        one.source("UPDATE {t} SET name = 'new' WHERE id < 200", "DELETE FROM {t} WHERE id < -8")
    again = compared(one.table, wire)
    assert any("INSERT" in each or "REPLACE PARTITION" in each for each in again)
    assert not any(each.startswith(f'CREATE TABLE "{schema}"."{one.table}"') for each in again)


@pytest.mark.parametrize("mode", ["replace", "upsert"])
def test_so_it_is_where_a_trigger_may_change_rows(
    ferry: Make, copies: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    hop, parallel = f"['postgres://{copies}.{{t}}']", "{export: 1, load: 1}"
    one = ferry(hop, *TABLE, ranges="{bounds: [1, 200]}", write=mode, parallel=parallel)
    assert one.run().good
    one.source(
        f"CREATE FUNCTION {copies}.untouched() RETURNS trigger LANGUAGE plpgsql "
        "AS 'BEGIN RETURN NEW; END'",
        f"CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON {copies}.{one.table} "
        f"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {copies}.untouched()",
        "UPDATE {t} SET name = 'new' WHERE id = 7",
    )
    wire = Wire(TableRef("postgres", copies, one.table), monkeypatch)
    assert "SET CONSTRAINTS ALL IMMEDIATE" in compared(one.table, wire)


@pytest.mark.parametrize("mode", ["replace", "append", "upsert"])
def test_so_it_is_in_a_table_of_clickhouse_that_is_partitioned_otherwise(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    hop = "[{{to: 'clickhouse://warehouse.{t}', partition_by: 'intDiv(id, 100)'}}]"
    parallel = "{export: 1, load: 1}"
    one = ferry(hop, *TABLE, ranges="{bounds: [1, 200]}", write=mode, parallel=parallel)
    wire = Wire(TableRef("clickhouse", "warehouse", one.table), monkeypatch)
    first = compared(one.table, wire)
    assert any(each.startswith("KILL QUERY") for each in first)
    one.source("INSERT INTO {t} VALUES (400, 'new')")
    compared(one.table, wire)


def test_so_it_is_where_columns_are_added_and_altered(
    ferry: Make, copies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hop = f"['postgres://{copies}.{{t}}']"
    table = ("CREATE TABLE {t} (id integer PRIMARY KEY, size int)", *TABLE[1:])
    table = (table[0], table[1].replace("'name ' || g", "g"))
    declared = {"ranges": "{bounds: [1, 200]}", "parallel": "{export: 1, load: 1}"}
    one = ferry(hop, *table, **declared)
    assert one.run().good
    one.source(
        "ALTER TABLE {t} ALTER size TYPE bigint",
        "ALTER TABLE {t} ADD note text",
        "UPDATE {t} SET note = 'new', size = 5000000000 WHERE id > 250",
    )
    one.declare(hop, **declared, on_schema_drift="evolve")
    wire = Wire(TableRef("postgres", copies, one.table), monkeypatch)
    altering = [each for each in compared(one.table, wire) if "ALTER TABLE" in each]
    assert len(altering) == 2, altering
