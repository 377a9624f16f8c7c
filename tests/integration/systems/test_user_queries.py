"""Queries of users, of a probe and of an expectation: they write nothing, and end in time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest

from tableferry.checks.expectations import run_suite
from tableferry.checks.suites import SQL, ExpectationSpec
from tableferry.checks.table_side import TableSide
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.connecting.address import Server
from tableferry.resources.connecting.guard import BusyWait, SourceBusy
from tableferry.resources.connecting.waiting import LIMIT
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.limits import SourceLimits
from tableferry.resources.errors import TableferryError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tests.servers import own

pytestmark = pytest.mark.integration

NAME = own("user_queries")
SCHEMAS = {"postgres": "public", "sqlserver": "dbo", "clickhouse": "warehouse"}
ENGINES = {"clickhouse": " ENGINE = MergeTree ORDER BY n"}

WRITES = {
    "postgres": [
        "WITH x AS (UPDATE {t} SET n = 9 RETURNING n) SELECT max(n) FROM x",
        "UPDATE {t} SET n = 9 RETURNING n",
        "SELECT 1; DROP TABLE {t}",
        "SELECT 1; COMMIT; DROP TABLE {t}",
    ],
    "sqlserver": [
        "UPDATE {t} SET n = 9 OUTPUT inserted.n",
        "SELECT 1; DROP TABLE {t}",
        "UPDATE {t} SET n = 9; COMMIT; SELECT 0",
        "SELECT 1; UPDATE {t} SET n = 9; /* ' */ commit transaction",
        "SELECT 1; ROLLBACK; UPDATE {t} SET n = 9",
        "SELECT 1; EXECUTE('UPDATE {t} SET n = 9; COMMIT')",
    ],
    "clickhouse": ["TRUNCATE TABLE {t}", "SELECT 1; DROP TABLE {t}"],
}
SLOW = {
    "postgres": "SELECT 1 FROM pg_sleep(60)",
    "sqlserver": "WITH a AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM a WHERE i < 100000000) "
    "SELECT MAX(i) FROM a OPTION (MAXRECURSION 0)",
    "clickhouse": "SELECT max(sleepEachRow(1)) FROM numbers(60) SETTINGS max_block_size = 1",
}


@pytest.fixture(params=SCHEMAS)
def server(
    request: pytest.FixtureRequest, pg_url: str, mssql_url: str, ch_url: str
) -> Iterator[Server]:
    made: dict[str, Server] = {
        "postgres": PostgresResource(url=pg_url),
        "sqlserver": SqlServerResource(url=mssql_url),
        "clickhouse": ClickHouseResource(url=ch_url),
    }
    system = request.param
    server, table = made[system], f"{SCHEMAS[system]}.{NAME}"
    server.execute(f"DROP TABLE IF EXISTS {table}")
    server.execute(f"CREATE TABLE {table} (n int){ENGINES.get(system, '')}")
    server.execute(f"INSERT INTO {table} VALUES (1)")
    yield server
    server.execute(f"DROP TABLE IF EXISTS {table}")


def named(server: Server) -> str:
    return f"{SCHEMAS[server.system_name]}.{NAME}"


def probe(server: Server, query: str, longest: float) -> None:
    limits = SourceLimits.of({"probe": query, "probe_above": 100.0, "longest_wait": longest})
    BusyWait("shop").wait(limits, {}, server.query)


def expect_no_row(server: Server, query: str) -> None:
    table = TableRef(server.system_name, SCHEMAS[server.system_name], NAME)
    (column,) = server.columns(table)
    planned = ColumnPlan(Column("n", "integer"), column, "n", pa.int32())
    plan = CopyPlan(TableRef("postgres", "public", NAME), table, (planned,), planned)
    side = TableSide(plan, "target", server)
    run_suite(
        [ExpectationSpec(SQL, {"query": f"{query} /* {{table}} {{range}} */"})],
        side,
        KeyRange("integer", 0, 10),
    )


def test_what_a_user_asks_writes_nothing(server: Server) -> None:
    for written in WRITES[server.system_name]:
        query = written.format(t=named(server))
        with suppress(TableferryError):
            probe(server, query, 30.0)
        assert server.query(f"SELECT n FROM {named(server)}") == [(1,)], f"probe: {query}"
        with suppress(TableferryError):
            expect_no_row(server, query)
        assert server.query(f"SELECT n FROM {named(server)}") == [(1,)], f"expectation: {query}"
    server.execute(f"INSERT INTO {named(server)} VALUES (2)")
    probe(server, f"SELECT count(*) FROM {named(server)}", 30.0)
    assert len(server.query(f"SELECT n FROM {named(server)}")) == 2


def test_what_a_user_asks_ends_in_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    with pytest.raises(SourceBusy, match="probe was not told within 1 s: given up"):
        probe(server, SLOW[server.system_name], 1.0)
    monkeypatch.setenv(LIMIT, "1")
    with pytest.raises(TableferryError, match="not answered within 1 s"):
        expect_no_row(server, SLOW[server.system_name])
    assert time.monotonic() - began < 40
