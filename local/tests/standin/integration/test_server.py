"""The stand-in's server process: how it starts, and that nothing of it is left when it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
import pymssql
import pytest
from local.tests.standin.integration.clients import Clients

from tableferry_local.stack import Stack

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[4]
PASSWORD = "Only4Tests{};"


def _launch(folder: Path, postgres_url: str, port: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tableferry_local.sqlserver", "--port", str(port)]
    command += ["--postgres", postgres_url, "--password-env", "STANDIN_PASSWORD"]
    command += ["--cert-dir", str(folder)]
    environment = {**os.environ, "STANDIN_PASSWORD": PASSWORD}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture(scope="module")
def database(local_stack: Stack) -> Iterator[str]:
    """A PostgreSQL database of its own."""
    name = "standin_server"
    with psycopg.connect(local_stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
        yield local_stack.postgres_url.rpartition("/")[0] + f"/{name}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _running(database: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], Clients]]:
    process = _launch(folder, database)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on 127.0.0.1:")
    clients = Clients("127.0.0.1", int(line.rpartition(":")[2]), "sa", PASSWORD, "tableferry")
    try:
        yield process, clients
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def server(database: str, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Clients]]:
    """A server that a test may end, or whose children it counts, and clients of it."""
    with _running(database, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def lasting(
    database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[subprocess.Popen[str], Clients]]:
    """A server that outlives its tests."""
    with _running(database, tmp_path_factory.mktemp("certificate")) as made:
        yield made


def _gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=120)[1]


def test_a_connection_that_is_open_has_a_child_of_its_own(
    server: tuple[subprocess.Popen[str], Clients],
) -> None:
    process, clients = server
    parent = psutil.Process(process.pid)
    with ExitStack() as connections:
        for _ in range(12):
            connections.enter_context(clients.pymssql())
        assert len(parent.children()) == 12
    deadline = time.monotonic() + 120
    while len(parent.children()) > 8:
        assert time.monotonic() < deadline, "they have nothing to do"
        time.sleep(0.05)
    assert not any(child.status() == psutil.STATUS_ZOMBIE for child in parent.children())


STATE = """
    DECLARE @lock int;
    EXEC @lock = sp_getapplock @Resource = 'own', @LockMode = 'Exclusive', @LockOwner = 'Session',
        @LockTimeout = 0;
    SELECT @lock, @@TRANCOUNT, @@LOCK_TIMEOUT, OBJECT_ID('tempdb..#own'), (SELECT count(*) FROM t),
        @@SPID, (SELECT login_time FROM sys.dm_exec_sessions WHERE session_id = @@SPID),
        (SELECT count(*) FROM sys.dm_exec_sessions)
"""


def test_nothing_of_a_session_is_seen_by_the_next_of_its_child(
    server: tuple[subprocess.Popen[str], Clients], database: str
) -> None:
    process, clients = server
    clients.run("CREATE TABLE t (id int)")
    numbers, times = [], []
    with psycopg.connect(database, autocommit=True) as looking:
        for _ in range(5):
            deadline = time.monotonic() + 120
            while looking.execute(
                "SELECT FROM pg_stat_activity WHERE application_name LIKE 'session %'"
                " AND datname = current_database()"
            ).fetchall():
                assert time.monotonic() < deadline, "the session before has not ended"
                time.sleep(0.01)
            with clients.pymssql() as connection, connection.cursor() as cursor:
                cursor.execute(STATE)
                *state, number, since, sessions = cursor.fetchone()
                assert (*state, sessions) == (0, 0, -1, None, 0, 1)
                numbers.append(number)
                times.append(since)
                cursor.execute("CREATE TABLE #own (id int); SET LOCK_TIMEOUT 5000")
                cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
                cursor.execute("BEGIN TRANSACTION; INSERT INTO t VALUES (1)")
    assert len(set(numbers)) < 5, "a child serves several sessions"
    assert times == sorted(set(times)), "each since its own login"
    assert len(psutil.Process(process.pid).children()) < 5


def test_a_child_outlives_its_postgresql_session(
    server: tuple[subprocess.Popen[str], Clients], database: str
) -> None:
    process, clients = server
    with clients.pymssql() as connection, psycopg.connect(database, autocommit=True) as admin:
        (child,) = psutil.Process(process.pid).children()
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'session %' AND datname = current_database()"
        )
        for _ in range(2):
            with pytest.raises(pymssql.Error):
                connection.cursor().execute("SELECT 1")
    clients.run("SELECT 1")
    assert child in psutil.Process(process.pid).children()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_child_outlives_the_server(
    server: tuple[subprocess.Popen[str], Clients], sent: signal.Signals
) -> None:
    process, clients = server
    with clients.pymssql() as connection:
        children = psutil.Process(process.pid).children()
        assert len(children) == 1
        process.send_signal(sent)
        assert process.wait(120) == (0 if sent != signal.SIGKILL else -signal.SIGKILL)
        assert _gone(children)
        with pytest.raises(pymssql.Error):
            connection.cursor().execute("SELECT 1")


def test_a_killed_session_does_not_touch_the_others(
    server: tuple[subprocess.Popen[str], Clients],
) -> None:
    process, clients = server
    with clients.pymssql() as first:
        victim = psutil.Process(process.pid).children()[0]
        with clients.pymssql() as second:
            victim.kill()
            with pytest.raises(pymssql.Error):
                first.cursor().execute("SELECT 1")
            second.cursor().execute("SELECT 1")
    assert clients.rows("SELECT 1") == [(1,)]


def test_a_password_with_special_characters(
    lasting: tuple[subprocess.Popen[str], Clients],
) -> None:
    _, clients = lasting
    assert clients.rows("SELECT 1") == [(1,)]
    with pytest.raises(pymssql.Error):
        replace(clients, password=PASSWORD.lower()).rows("SELECT 1")


def test_a_port_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = _launch(tmp_path, "postgresql://127.0.0.1:1/none", port)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert output == ""
    assert errors.strip() == f"cannot listen on 127.0.0.1:{port}: Address already in use"


def test_rubbish_does_not_disturb_the_server(
    lasting: tuple[subprocess.Popen[str], Clients],
) -> None:
    _, clients = lasting
    for rubbish in (b"", b"\x12", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", bytes(5000)):
        with socket.create_connection((clients.host, clients.port)) as raw:
            raw.sendall(rubbish)
    assert clients.rows("SELECT 1") == [(1,)]
