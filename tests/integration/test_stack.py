"""The local stack: up, down, two side by side, and what a crash leaves."""

from __future__ import annotations

import clickhouse_connect
import psycopg

from local.stack import Stack


def test_servers_answer(stack: Stack) -> None:
    with psycopg.connect(stack.postgres_url) as connection:
        row = connection.execute("SELECT current_database(), current_setting('timezone')")
        assert row.fetchone() == ("demo", "UTC")
    client = clickhouse_connect.get_client(dsn=stack.clickhouse_url)
    rows = client.query("SELECT currentDatabase(), timezone()").result_rows
    assert rows == [("warehouse", "UTC")]


def test_kill_and_restart_keep_port_and_data(stack: Stack) -> None:
    client = clickhouse_connect.get_client(dsn=stack.clickhouse_url)
    client.command("CREATE TABLE survivor (a Int32) ENGINE = MergeTree ORDER BY a")
    client.command("INSERT INTO survivor VALUES (1)")
    url = stack.clickhouse_url
    stack.kill("clickhouse")
    assert stack.status()["clickhouse"]["state"] == "crashed"
    stack.restart("clickhouse")
    assert stack.clickhouse_url == url
    client = clickhouse_connect.get_client(dsn=url)
    assert client.query("SELECT a FROM survivor").result_rows == [(1,)]
    client.command("DROP TABLE survivor SYNC")

    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE survivor AS SELECT 1 AS a")
    stack.kill("postgres")
    stack.restart("postgres")
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        assert connection.execute("SELECT a FROM survivor").fetchall() == [(1,)]
        connection.execute("DROP TABLE survivor")
