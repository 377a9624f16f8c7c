"""Looks at the servers past the product: plain drivers, and nothing of ours but the URLs."""

from __future__ import annotations

import functools
import threading
from contextlib import closing, suppress
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import clickhouse_connect
import mssql_python
import pymssql
from clickhouse_connect.driver.client import Client

from resources.errors import InputError
from resources.postgres.resource import PostgresResource
from resources.sqlserver.resource import SqlServerResource
from resources.tables import Column, TableRef
from resources.types.planner import plan_copy
from resources.wire_loads import wrong_loads
from tests.servers import Servers

Row = tuple[Any, ...]


def sqlserver(url: str) -> mssql_python.Connection:
    """An ODBC connection in autocommit mode."""
    return mssql_python.connect(SqlServerResource(url=url).connection_string(), autocommit=True)


def rows(connection: mssql_python.Connection, sql: str) -> list[Row]:
    """A query's rows by ODBC."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(sql)
        return [tuple(row) for row in cursor.fetchall()]


_open = threading.local()


def ask_sqlserver(url: str, sql: str) -> list[Row]:
    """A query's rows, by a connection that this thread keeps for such questions."""
    connections: dict[str, mssql_python.Connection] = _open.__dict__
    if connection := connections.pop(url, None):
        with suppress(mssql_python.Error):  # the server was restarted; or else it says so again
            found = rows(connection, sql)
            connections[url] = connection
            return found
        connection.close()
    connection = sqlserver(url)
    found = rows(connection, sql)
    connections[url] = connection
    return found


@functools.cache
def second_digits(url: str) -> int:
    """How many digits of a second a SQL Server keeps: 7, or 6 on Babelfish."""
    sql = (
        "SELECT CASE WHEN CAST('2024-01-01T00:00:00.0000001' AS datetime2(7))"
        " > CAST('2024-01-01T00:00:00' AS datetime2(7)) THEN 7 ELSE 6 END"
    )
    return int(ask_sqlserver(url, sql)[0][0])


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
    return clickhouse_connect.get_client(dsn=url, autogenerate_session_id=False)


def ask_clickhouse(url: str, sql: str) -> list[Row]:
    """A query's rows, by the client that is kept."""
    return [tuple(row) for row in clickhouse(url).query(sql).result_rows]


def with_options(url: str, **options: str) -> str:
    """The URL with these options, whether or not it has others or other values of them."""
    parts = urlsplit(url)
    return parts._replace(query=urlencode({**dict(parse_qsl(parts.query)), **options})).geturl()


def unencrypted(url: str) -> str:
    """The SQL Server URL, for a connection that a proxy can read along."""
    return with_options(url, encrypt="no")
