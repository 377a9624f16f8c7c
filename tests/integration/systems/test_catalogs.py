"""What a source's catalog says about many tables at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.contract.catalog import Described, ask_together
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import StatementFailed, TableMissing
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tests.servers import Servers, own

PREFIX = own("cat")
NAMES = ("a", "b", "c", "Mixed Case")
SYSTEMS = ("postgres", "sqlserver", "clickhouse")
DDL = {
    "postgres": 'CREATE TABLE public."{}" (id int PRIMARY KEY, note varchar(9), seen date)',
    "sqlserver": 'CREATE TABLE dbo."{}" (id int PRIMARY KEY, note varchar(9), seen date)',
    "clickhouse": "CREATE TABLE default.`{}` (id Int32, note String, seen Date) ORDER BY id",
}
SCHEMAS = {"postgres": "public", "sqlserver": "dbo", "clickhouse": "default"}


@pytest.fixture(scope="module", params=SYSTEMS)
def endpoint(request: pytest.FixtureRequest, stack: Servers) -> Iterator[Endpoint]:
    """A server with tables of three rows, an empty one, and a view."""
    system = request.param
    made: dict[str, Callable[[], Endpoint]] = {
        "postgres": lambda: PostgresResource(url=stack.postgres_url),
        "sqlserver": lambda: SqlServerResource(url=stack.sqlserver_url),
        "clickhouse": lambda: ClickHouseResource(url=stack.clickhouse_url),
    }
    server = made[system]()
    quote = server.system.quote
    names = [quote(table_of(system, name).name) for name in (*NAMES, "empty", "view")]
    *tables, empty, view = [f"{SCHEMAS[system]}.{name}" for name in names]
    create = DDL[system].replace('"{}"', "{}").replace("`{}`", "{}")
    for name in names[:-1]:
        server.execute(create.format(name))
    for table in tables:
        server.execute(
            f"INSERT INTO {table} (id, note, seen) VALUES "
            "(1, 'x', '2024-01-01'), (2, 'y', '2024-01-01'), (3, 'z', '2024-01-01')"
        )
    server.execute(f"CREATE VIEW {view} AS SELECT * FROM {tables[0]}")
    yield server
    server.execute(f"DROP VIEW {view}")
    for table in (*tables, empty):
        server.execute(f"DROP TABLE {table}")


def table_of(system: str, name: str) -> TableRef:
    return TableRef(system, SCHEMAS[system], f"{PREFIX}_{name}")


def tables_of(endpoint: Endpoint, *names: str) -> list[TableRef]:
    return [table_of(endpoint.system_name, name) for name in names]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that the servers are sent."""
    statements: list[str] = []
    for server in (PostgresServer, SqlServerConnection, ClickHouseServer):
        original = server.query

        def counting(
            self: Any, sql: str, *rest: Any, _original: Any = original, **options: Any
        ) -> Any:
            statements.append(sql)
            return _original(self, sql, *rest, **options)

        monkeypatch.setattr(server, "query", counting)
    return statements


def test_many_tables_are_described_as_each_alone_by_the_same_number_of_queries(
    endpoint: Endpoint, asked: list[str]
) -> None:
    source = source_of(endpoint.system)
    tables = tables_of(endpoint, *NAMES, "empty", "view", "missing")
    alone = {}
    for table in tables:
        alone |= source.described(endpoint, [table])
    asked.clear()
    source.described(endpoint, tables_of(endpoint, "a", "view"))
    few = len(asked)
    asked.clear()
    together = source.described(endpoint, tables)
    assert len(asked) == few <= 7, asked
    missing = tables[-1]
    assert isinstance(together.pop(missing), TableMissing)
    assert isinstance(alone.pop(missing), TableMissing)
    assert together == alone
    first, view = together[tables[0]], together[tables[-2]]
    assert isinstance(first, Described) and isinstance(view, Described)
    assert (first.size.rows, view.size.rows, list(first.leading)) == (3, 3, ["id"])
    columns = source.columns_of(endpoint, tables)
    assert columns == {table: endpoint.columns(table) for table in tables[:-1]}


def test_a_name_in_another_case_is_found_where_the_database_finds_it(endpoint: Endpoint) -> None:
    if endpoint.system_name != "sqlserver":
        pytest.skip("names are told apart by case")
    tables = tables_of(endpoint, "A", "b", "B", "mixed case")
    source = source_of(endpoint.system)
    alone = [source.columns_of(endpoint, [table]).get(table) for table in tables]
    together = source.columns_of(endpoint, tables)
    assert [together.get(table) for table in tables] == alone
    described = source.described(endpoint, tables)
    assert [isinstance(described[table], Described) for table in tables] == [
        columns is not None for columns in alone
    ]


def test_one_query_that_fails_takes_no_other_with_it(endpoint: Endpoint, asked: list[str]) -> None:
    quote, schema = endpoint.system.quote, SCHEMAS[endpoint.system_name]
    names = [name for name in NAMES for _ in range(60)]
    queries = {
        number: f"{endpoint.system.dialect.count} FROM {schema}."
        + quote(table_of(endpoint.system_name, name if number != 77 else "missing").name)
        for number, name in enumerate(names)
    }
    answers = ask_together(endpoint, queries)
    assert isinstance(answers.pop(77), StatementFailed)
    assert answers.keys() == queries.keys() - {77} and set(answers.values()) == {3}
    assert len(asked) < 60, "three statements, of which one is cut in halves"
