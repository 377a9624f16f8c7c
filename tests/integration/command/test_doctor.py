"""`ferry doctor` on servers and homes of which something is amiss."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg import sql

from tableferry.pipelines.cli import main
from tableferry.pipelines.command import doctor as examining
from tableferry.resources.connecting import health
from tableferry.resources.contract.catalog import Finding, Use
from tableferry.resources.postgres.health import findings as findings_of_postgres
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.health import findings
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tableferry_local.stack import Stack
from tests.integration.support import homes
from tests.servers import own

ROLE, SCHEMA, LOADED = own("reader"), own("doctor"), own("loaded")
PASSWORD = "r3ad0nly-w0rd"


@pytest.fixture(scope="module")
def admin(local_stack: Stack) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a PostgreSQL with a role that may nearly nothing."""
    role, schema = sql.Identifier(ROLE), sql.Identifier(SCHEMA)
    with psycopg.connect(local_stack.postgres_url, autocommit=True) as connection:
        for statement in (
            "CREATE ROLE {role} LOGIN PASSWORD {password}",
            "CREATE SCHEMA {schema}",
            "CREATE TABLE {schema}.orders (id int PRIMARY KEY)",
            'CREATE TABLE {schema}."Order ""Lines""" (id int PRIMARY KEY)',
            "ALTER TABLE {schema}.orders ENABLE ROW LEVEL SECURITY",
        ):
            connection.execute(
                sql.SQL(statement).format(role=role, schema=schema, password=PASSWORD)
            )
        yield connection
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(schema))
        connection.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(role))


@pytest.fixture
def reader(
    admin: object,
    local_stack: Stack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """The environment of a user who is that role; returns the URL."""
    place = urlsplit(local_stack.postgres_url)
    url = f"postgresql://{ROLE}:{PASSWORD}@{place.hostname}:{place.port}{place.path}"
    homes.copy(tmp_path / "dagster")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path))
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", url)
    monkeypatch.setenv("TABLEFERRY_CLICKHOUSE_URL", local_stack.clickhouse_url)
    monkeypatch.delenv("TABLEFERRY_SQLSERVER_URL", raising=False)
    for name in ("orders", 'Order "Lines"'):
        (tmp_path / f"{name[:6]}.yaml").write_text(
            f"transfer: {name[:6].strip()}\nsource: 'postgres://{SCHEMA}.{name}'\n"
            f"hops: ['clickhouse://warehouse.{name}']\nkey: id\n"
        )
    (tmp_path / "copy.yaml").write_text(
        f"transfer: copy\nsource: postgres://{SCHEMA}.orders\n"
        f"hops: ['postgres://{LOADED}.orders']\nkey: id\n"
    )
    return url


def doctor(*options: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *options])


def found_of(document: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    server = next(one for one in document["servers"] if one["name"] == name)
    return {one["subject"]: one for one in server["findings"]}


def test_what_postgres_lacks_is_granted_by_what_is_said(
    reader: str, admin: psycopg.Connection[Any]
) -> None:
    first = doctor("--json")
    assert first.exit_code == 1
    assert PASSWORD not in first.output
    found = found_of(json.loads(first.stdout), "postgres")
    assert found["privileges"]["state"] == "problem"
    assert len(found["privileges"]["do"]) == 4, "one schema to read, one to make, two tables"
    assert found["version"]["says"].startswith("PostgreSQL ")
    assert found["snapshot"]["state"] == found["clock"]["state"] == "ok"
    for statement in found["privileges"]["do"]:
        admin.execute(statement)
    second = doctor("--json")
    assert second.exit_code == 0, second.output
    found = found_of(json.loads(second.stdout), "postgres")
    assert found["privileges"]["says"] == f"{ROLE} has what the transfers of 3 tables need"
    assert f"hides rows of postgres://{SCHEMA}.orders" in found["row security"]["says"]
    admin.execute(found["row security"]["do"][0])
    assert "row security" not in found_of(json.loads(doctor("--json").stdout), "postgres")


def test_markers_of_another_login_are_granted_too(
    local_stack: Stack, admin: psycopg.Connection[Any]
) -> None:
    table = TableRef("postgres", SCHEMA, "of_another")
    markers, role = sql.Identifier(SCHEMA, "__ferry_ranges"), sql.Identifier(ROLE)
    admin.execute(sql.SQL("CREATE TABLE {} (id int)").format(markers))
    place = urlsplit(local_stack.postgres_url)
    url = f"postgresql://{ROLE}:{PASSWORD}@{place.hostname}:{place.port}{place.path}"

    def lacking() -> list[str]:
        found = findings_of_postgres(PostgresResource(url=url), Use((), (table,)))
        return [do for each in found if each.subject == "privileges" for do in each.do]

    granted = [statement for statement in lacking() if "__ferry_ranges" in statement]
    assert len(granted) == 1
    admin.execute(granted[0])
    assert not any("__ferry_ranges" in statement for statement in lacking())
    admin.execute(sql.SQL("REVOKE ALL ON {} FROM {}; DROP TABLE {}").format(markers, role, markers))


def test_drivers_of_other_versions_are_a_problem(
    reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = version("pyarrow")
    needed = [f"pyarrow>=23,!={here}", "psycopg>=3", f"apprise!={here}", "duckdb>99; extra == 'x'"]
    monkeypatch.setattr(examining, "requires", lambda name: [*needed, f"pymysql!={here}"])
    text = doctor()
    assert text.exit_code == 1
    assert f"pyarrow {here} is installed, and pyarrow" in text.stdout
    assert f"pip install 'pyarrow!={here},>=23'" in text.stdout
    assert text.stdout.count("problem  versions: ") == 2, "and DuckDB"
    monkeypatch.setattr(examining, "requires", requires)
    assert "problem  versions: " not in doctor().stdout


def test_wires_lead_to_servers_that_are_configured(reader: str) -> None:
    assert "sqlserver" not in doctor().stdout


def test_an_old_storage_of_dagster_is_noticed(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TABLEFERRY_CLICKHOUSE_URL", "TABLEFERRY_POSTGRES_URL"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", reader)
    with sqlite3.connect(tmp_path / "dagster" / "history" / "runs.db") as runs:
        # an earlier revision of Dagster's own migrations
        runs.execute("UPDATE alembic_version SET version_num = '6860f830e40c'")
    text = doctor()
    assert text.exit_code == 1
    schema = "runs: SqliteRunStorage, schema 6860f830e40c, and the installed Dagster has "
    assert f"problem  Dagster's storage: {schema}" in text.stdout
    assert "dagster instance migrate" in text.stdout
    assert "problem  servers: TABLEFERRY_CLICKHOUSE_URL is not set" in text.stdout
    assert "this machine has problems: servers, Dagster's storage" in text.stderr
    assert PASSWORD not in text.output


def test_a_clock_that_is_off_is_noticed(pg_url: str) -> None:
    server = PostgresResource(url=pg_url)
    now = "SELECT extract(epoch FROM clock_timestamp())"
    assert [one.state for one in health.clock(server, now)] == ["ok"]
    (ahead,) = health.clock(server, f"{now} + 100")
    assert ahead.state == "warning"
    assert "00 s ahead of this machine's" in ahead.says or "99 s" in ahead.says
    (behind,) = health.clock(server, f"{now} - 100")
    assert "behind this machine's" in behind.says


def test_what_a_server_does_not_answer_stops_no_other_question(pg_url: str) -> None:
    server = PostgresResource(url=pg_url)

    def refused() -> Iterator[Finding]:
        server.query("SELECT nope")
        raise AssertionError

    found = list(
        health.asked([("disk", refused), ("clock", lambda: health.clock(server, "SELECT 0"))])
    )
    assert [(one.subject, one.state) for one in found] == [("disk", "note"), ("clock", "warning")]
    assert "42703" in found[0].says


@pytest.mark.parametrize(
    ("host", "encrypted", "verified", "states"),
    [
        ("127.0.0.1", None, False, ["ok"]),
        ("db.example.com", None, False, ["warning"]),
        ("db.example.com", "TLSv1.3", False, ["warning"]),
        ("localhost", "TLSv1.3", False, ["note"]),
        ("db.example.com", "TLSv1.3", True, ["ok"]),
    ],
)
def test_what_leaves_the_machine_should_be_encrypted_and_verified(
    host: str, encrypted: str | None, verified: bool, states: list[str]
) -> None:
    found = health.encryption(host, encrypted, verified=verified, certificate=None, do="...")
    assert [one.state for one in found] == states


def test_sqlserver_shows_its_certificate(mssql_url: str) -> None:
    server = SqlServerResource(url=mssql_url)
    found = {
        one.subject: one for one in findings(server, Use([], [TableRef("sqlserver", "dbo", "t")]))
    }
    assert found["snapshot isolation"].state in ("ok", "warning")
    assert found["privileges"].state == "ok", found["privileges"]
    if server.encryption().encrypt == "yes":
        assert found["certificate"].says, "seen by a handshake of its own"
