"""What a run of the tests leaves on servers that others use, too: nothing."""

from __future__ import annotations

import pytest

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.registry import system
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef, staging_name
from tests import servers
from tests.servers import Servers, own

pytestmark = pytest.mark.integration


def test_nothing_of_a_run_is_left_on_named_servers(
    stack: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "RUN", own("left"))
    name, room = own("t"), own("room")
    postgres = PostgresResource(url=stack.postgres_url)
    sqlserver = SqlServerResource(url=stack.sqlserver_url)
    clickhouse = ClickHouseResource(url=stack.clickhouse_url)
    for variable, url in zip(
        (servers.POSTGRES, servers.SQLSERVER, servers.CLICKHOUSE),
        (stack.postgres_url, stack.sqlserver_url, stack.clickhouse_url),
        strict=True,
    ):
        monkeypatch.setenv(variable, url)
    postgres.execute(f"CREATE SCHEMA {room}")
    postgres.execute(f"CREATE DATABASE {room}")
    clickhouse.execute(f"CREATE DATABASE {room}")
    odd = own('it\'s "odd"?')
    sqlserver.execute(f"CREATE SCHEMA {system('sqlserver').quote(odd)}")
    clickhouse.execute(f"CREATE DATABASE {system('clickhouse').quote(odd)}")
    for server, schema in (
        (postgres, "public"),
        (postgres, room),
        (sqlserver, "dbo"),
        (clickhouse, "warehouse"),
        (clickhouse, room),
    ):
        target = TableRef(server.system_name, schema, name, "copies")
        end = " ENGINE = Memory" if server is clickhouse else ""
        for table in (name, staging_name(target, "..")):
            server.execute(f"CREATE TABLE {schema}.{table} (id int){end}")

    servers.drop_leftovers()

    counted = "SELECT count(*) FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_NAME "
    for server, schema in ((postgres, "public"), (sqlserver, "dbo"), (clickhouse, "warehouse")):
        staging = staging_name(TableRef(server.system_name, schema, name), "..")
        for pattern in (name, staging):
            assert server.query(f"{counted} = '{pattern}'") == [(0,)]
    assert postgres.query(f"SELECT FROM pg_database WHERE datname = '{room}'") == []
    assert postgres.query(f"SELECT FROM pg_namespace WHERE nspname = '{room}'") == []
    left = f"IN ({', '.join(system('clickhouse').dialect.literal(one) for one in (room, odd))})"
    assert clickhouse.query(f"SELECT 1 FROM system.databases WHERE name {left}") == []
    assert sqlserver.query(f"SELECT SCHEMA_ID({system('sqlserver').dialect.literal(odd)})") == [
        (None,)
    ]
