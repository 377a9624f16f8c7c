"""Whoever waits for a lock, a pool or a mutation says so, and for whom, and gives up at a limit."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest

from tableferry.pipelines.command.one import runner
from tableferry.resources.connecting import waiting
from tableferry.resources.connecting.waiting import LIMIT
from tableferry.resources.errors import (
    ConnectionFailed,
    InputError,
    StatementFailed,
    TableferryError,
)
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.connection import close_pooled_connections
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.pgbouncer import pgbouncer
from tests.servers import SQLSERVER, Servers, named, own

pytestmark = pytest.mark.integration

TABLE = "CREATE TABLE {t} (id int PRIMARY KEY, note text)"
GONE, LOCKED = own("gone"), "public." + own("locked")
ROWS = "INSERT INTO {t} SELECT g, 'note' FROM generate_series(1, 20) g"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert (waiting.TOLD_SECONDS, waiting.DEFAULT_LIMIT) == (10, 600)
    for name, seconds in (("ASKED", 0.4), ("TOLD", 1.0), ("TICK", 0.1), ("AGAIN", 600.0)):
        monkeypatch.setattr(waiting, f"{name}_SECONDS", seconds)
    time.sleep(1.1)  # the tick of a thread that is there already
    caplog.set_level(logging.WARNING, logger="tableferry")


@contextmanager
def until_told(
    caplog: pytest.LogCaptureFixture, words: str, release: Callable[[], object]
) -> Iterator[None]:
    """Release what is waited for once it was told."""
    told = threading.Event()

    def watch() -> None:
        for _ in range(300):
            if words in caplog.text:
                told.set()
                break
            time.sleep(0.1)
        release()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert told.is_set(), caplog.text


@contextmanager
def locked(url: str, sql: str, application: str = "hoarder") -> Iterator[psycopg.Connection]:
    """Another session that holds the locks of a statement until its transaction ends."""
    with psycopg.connect(url, application_name=application) as connection:
        connection.execute(sql.encode())
        yield connection


def test_a_locked_source_is_told_by_every_command(
    ferry: Callable[..., Ferry], stack: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", TABLE, ROWS)
    commands: list[Callable[[], object]] = [
        one.plan,
        lambda: one.run(force=True),
        lambda: runner.check(one.session, one.table),
    ]
    for command in commands:
        caplog.clear()
        for server in waiting._servers.values():
            server.told.clear()
        with locked(stack.postgres_url, f"LOCK TABLE {one.table}") as other:
            process = other.info.backend_pid
            words = f"waits for a lock of process {process} of tableferry (hoarder, "
            with until_told(caplog, words, other.rollback):
                command()
        assert "idle in transaction)" in caplog.text and "postgres at 127" in caplog.text


def test_each_login_asks_for_itself_who_is_in_its_way(
    stack: Servers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = urlsplit(stack.postgres_url)
    gone = f"postgresql://{GONE}:secret@{parts.hostname}:{parts.port}{parts.path}"
    monkeypatch.setenv(LIMIT, "3")
    with psycopg.connect(stack.postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {GONE} LOGIN PASSWORD 'secret'".encode())
        try:
            assert PostgresResource(url=gone).query("SELECT 1") == [(1,)]
            admin.execute(f"ALTER ROLE {GONE} NOLOGIN".encode())
            admin.execute(f"CREATE TABLE {LOCKED} (id int)".encode())
            for application in ("hoarder", "miser"):
                with (
                    locked(stack.postgres_url, f"LOCK TABLE {LOCKED}", application),
                    pytest.raises(StatementFailed, match=rf"\({application}, ") as failed,
                ):
                    PostgresResource(url=stack.postgres_url).query(f"SELECT * FROM {LOCKED}")
            assert "hoarder" not in str(failed.value), "who was in the way before is not now"
            assert "not permitted to log in" not in caplog.text
        finally:
            admin.execute(f"DROP TABLE IF EXISTS {LOCKED}".encode())
            admin.execute(f"DROP ROLE {GONE}".encode())


def test_a_locked_row_of_the_target_fails_its_range_at_the_limit(
    ferry: Callable[..., Ferry], stack: Servers, copies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", TABLE, ROWS)
    assert one.run().good
    one.source("UPDATE {t} SET note = 'new' WHERE id = 7")
    monkeypatch.setenv(LIMIT, "2")
    with locked(stack.postgres_url, f"UPDATE {copies}.{one.table} SET note = 'x' WHERE id = 7"):
        started = time.monotonic()
        view = one.run()
        assert time.monotonic() - started < 120
        (error,) = view.errors
        assert "given up after 2 s, as TABLEFERRY_WAIT_SECONDS says; waits for a lock of" in error
        assert one.table in error
    assert one.run().good
    assert one.rows(f"SELECT note FROM {copies}.{{t}} WHERE id = 7") == [("new",)]


def test_a_locked_row_of_sqlserver_is_told_and_given_up(
    ferry: Callable[..., Ferry], stack: Servers, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    one = ferry("['sqlserver://dbo.{t}']", TABLE, ROWS)
    assert one.run().good
    one.source("UPDATE {t} SET note = 'new' WHERE id = 7")
    monkeypatch.setenv(LIMIT, "3")
    close_pooled_connections()
    other = looking.sqlserver(stack.sqlserver_url)
    try:
        for sql in ("BEGIN TRANSACTION", f"UPDATE dbo.{one.table} SET note = 'x' WHERE id = 7"):
            looking.rows(other, sql)
        started = time.monotonic()
        view = one.run()
        assert time.monotonic() - started < 120
    finally:
        looking.rows(other, "IF @@TRANCOUNT > 0 ROLLBACK")
        other.close()
    (error,) = view.errors
    assert "given up after 3 s, as TABLEFERRY_WAIT_SECONDS says" in error and one.table in error
    assert named(SQLSERVER) or "waits for a lock of session" in caplog.text
    close_pooled_connections()
    monkeypatch.delenv(LIMIT)
    assert one.run().good
    close_pooled_connections()


def test_a_mutation_that_does_not_end_is_told_and_given_up(
    ferry: Callable[..., Ferry], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", TABLE, ROWS)
    server = one.session.servers.endpoints["clickhouse"]
    table = f"warehouse.{one.table}"
    server.execute(
        f"CREATE TABLE {table} (id Int32, note Nullable(String)) ENGINE = MergeTree ORDER BY id"
    )
    try:
        assert one.run().good
        one.source("UPDATE {t} SET note = 'new' WHERE id = 7")
        monkeypatch.setenv(LIMIT, "12")
        server.execute(f"SYSTEM STOP MERGES {table}")
        started = time.monotonic()
        view = one.run()
        assert 11 < time.monotonic() - started < 300
        (error,) = view.errors
        assert "given up after 12 s, as TABLEFERRY_WAIT_SECONDS says" in error, error
        assert "waits for the mutation" in caplog.text and table in caplog.text
        assert "SYSTEM START MERGES" in caplog.text
        server.execute(f"SYSTEM START MERGES {table}")
        assert one.run().good
        assert server.query(f"SELECT note FROM {table} WHERE id = 7") == [("new",)]
        assert server.query(f"SELECT count() FROM {table}") == [(20,)]
    finally:
        server.execute(f"SYSTEM START MERGES {table}")


def test_a_pool_without_a_free_connection_is_told_and_not_waited_for_again(
    stack: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"pool_mode": "session", "default_pool_size": "1", "query_wait_timeout": "4"}
    with pgbouncer(stack.postgres_url, **settings) as through, psycopg.connect(through) as other:
        other.execute("SELECT 1")
        with pytest.raises(ConnectionFailed, match="query_wait_timeout") as failed:
            PostgresResource(url=through).query("SELECT 1")
        assert not failed.value.transient, "it is not waited for again"
    assert "a pooler before it have no free connection" in caplog.text


@pytest.mark.parametrize("text", ["-1", "soon", "nan"])
def test_a_limit_that_is_no_number_is_refused(
    stack: Servers, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(LIMIT, text)
    with pytest.raises(InputError, match=f"{LIMIT} should be a number of seconds"):
        PostgresResource(url=stack.postgres_url).query("SELECT 1")
    monkeypatch.setenv(LIMIT, "0")
    source = PostgresResource(url=stack.postgres_url)
    assert source.query("SHOW lock_timeout") == [("0",)]
    assert issubclass(InputError, TableferryError)


ENDS = """
import socket, time
from tableferry.resources.connecting import waiting
from tableferry.resources.sqlserver import connection
from tableferry.resources.sqlserver.resource import SqlServerResource
waiting.TICK_SECONDS = waiting.ASKED_SECONDS = 0.1
connection.LOGIN_TIMEOUT = 2
deaf = socket.create_server(("127.0.0.1", 0))
server = SqlServerResource(url=f"mssql://u:p@127.0.0.1:{deaf.getsockname()[1]}/d?encrypt=no")
with waiting.watched("sqlserver", lambda: server.query("SELECT 1")):
    time.sleep(1)
"""


def test_a_process_ends_in_order_while_a_server_is_asked() -> None:
    """The driver aborts a process that leaves it in mid-call."""
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, check=False)
        assert ended.returncode == 0, ended.stderr
