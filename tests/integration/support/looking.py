"""Looks at the servers past the product: by plain drivers, whose connections are kept."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import clickhouse_connect
import mssql_python
import psycopg
import pymssql
from clickhouse_connect.driver.client import Client

from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.connecting.pool import ConnectionPool
from tableferry.resources.errors import InputError
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.connection import all_rows, quiet_cursor
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tableferry.resources.wires.exports import wrong_loads
from tests.servers import Servers

Row = tuple[Any, ...]


def sqlserver(url: str) -> mssql_python.Connection:
    """An ODBC connection in autocommit mode."""
    return mssql_python.connect(SqlServerResource(url=url).connection_string(), autocommit=True)


def rows(connection: mssql_python.Connection, sql: str) -> list[Row]:
    """A statement's rows by ODBC, if it has any."""
    with quiet_cursor(connection) as cursor:
        cursor.execute(sql, use_prepare=False)
        found = all_rows(cursor) if cursor.description else []
        while cursor.nextset():  # an error of a later statement of the batch comes only here
            pass
        return found


def ask_sqlserver(url: str, sql: str) -> list[Row]:
    """A statement's rows, by a connection that is kept for such questions."""
    with _sqlserver.lent(url, lambda: sqlserver(url)) as connection:
        return rows(connection, sql)


def ask_postgres(url: str, *statements: str) -> list[Row]:
    """Run statements, each in a transaction of its own, by a connection that is kept.

    Returns:
        The last one's rows.
    """
    found: list[Row] = []
    with postgres(url) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
            found = cursor.fetchall() if cursor.description else []
    return found


def postgres(url: str) -> AbstractContextManager[psycopg.Connection[Row]]:
    """A connection in autocommit mode that is kept; to be left as it was found."""
    return _postgres.lent(url, lambda: _connected(url))


def execute(server: PostgresResource | SqlServerResource, sql: str) -> None:
    """A statement, or several, by a connection that is kept; the resource would open one."""
    ask = ask_postgres if isinstance(server, PostgresResource) else ask_sqlserver
    ask(str(server.url), sql)


def _connected(url: str) -> psycopg.Connection[Row]:
    # a prepared statement breaks when a column of its table changes
    return psycopg.connect(url, autocommit=True, prepare_threshold=None)


def _answers(ask: Callable[[], object], *lost: type[Exception]) -> bool:
    with suppress(*lost):
        ask()
        return True
    return False


_sqlserver: ConnectionPool[mssql_python.Connection] = ConnectionPool(
    lambda one: _answers(lambda: rows(one, "SELECT 1"), mssql_python.Error),
    lambda one: bool(one.closed),
    # to end a session says once more that its server has gone
    lambda one: _answers(one.close, mssql_python.Error),
)
_postgres: ConnectionPool[psycopg.Connection[Row]] = ConnectionPool(
    lambda one: _answers(lambda: one.execute("SELECT 1"), psycopg.Error),
    lambda one: one.closed,
    psycopg.Connection.close,
)


@functools.cache
def second_digits(url: str) -> int:
    """How many digits of a second a SQL Server keeps: 7, or 6 on Babelfish."""
    sql = (
        "SELECT CASE WHEN CAST('2024-01-01T00:00:00.0000001' AS datetime2(7))"
        " > CAST('2024-01-01T00:00:00' AS datetime2(7)) THEN 7 ELSE 6 END"
    )
    return int(ask_sqlserver(url, sql)[0][0])


def decimal_digits(url: str) -> int:
    """How many digits a decimal with a point may have: 38, or 37 on Babelfish.

    Of one with 38 its bulk load reads on behind the last digit, whatever stands there.
    """
    return 38 if second_digits(url) == 7 else 37


def lets_anybody_in(url: str) -> bool:
    """Whether the SQL Server takes any password of its user."""
    settings = SqlServerResource(url=url).settings()
    try:
        pymssql.connect(
            settings.host, settings.user, "wrong", settings.database, port=settings.port
        ).close()
    except pymssql.Error:
        return False
    return True


def no_text_into_sqlserver(servers: Servers) -> str | None:
    """Why the installed bcp or freebcp cannot load anything into the SQL Server, if it cannot."""
    source = TableRef("postgres", "public", "one")
    plan = plan_copy(
        source, [Column("id", "integer", False)], TableRef("sqlserver", "dbo", "one"), key="id"
    )
    try:
        wrong_loads(
            PostgresResource(url=servers.postgres_url),
            SqlServerResource(url=servers.sqlserver_url),
            "text",
            plan,
        )
    except InputError as error:
        return str(error)
    return None


@functools.lru_cache(4)
def clickhouse(url: str) -> Client:
    """A client that is kept: to make one takes three queries."""
    dsn = re.sub(r"[?&]cluster=\w+", "", url)  # the driver would take it for a setting
    return clickhouse_connect.get_client(dsn=dsn, autogenerate_session_id=False)


def ask_clickhouse(url: str, sql: str) -> list[Row]:
    """A query's rows, by the client that is kept."""
    return [tuple(row) for row in clickhouse(url).query(sql).result_rows]


def run(servers: Servers, system: str, sql: str) -> None:
    """A statement on the server of a system."""
    if system == "postgres":
        ask_postgres(servers.postgres_url, sql)
    elif system == "sqlserver":
        ask_sqlserver(servers.sqlserver_url, sql)
    else:
        clickhouse(servers.clickhouse_url).command(sql)


def ask(servers: Servers, system: str, sql: str) -> list[Row]:
    """A query's rows on the server of a system."""
    if system == "postgres":
        return ask_postgres(servers.postgres_url, sql)
    if system == "sqlserver":
        return ask_sqlserver(servers.sqlserver_url, sql)
    return ask_clickhouse(servers.clickhouse_url, sql)


def with_options(url: str, **options: str) -> str:
    """The URL with these options, whether or not it has others or other values of them."""
    parts = urlsplit(url)
    return parts._replace(query=urlencode({**dict(parse_qsl(parts.query)), **options})).geturl()


def unencrypted(url: str) -> str:
    """The SQL Server URL, for a connection that a proxy can read along."""
    return with_options(url, encrypt="no")
