"""The real command line as a process that gets killed, and what must hold of the data after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import clickhouse_connect
import dagster as dg

from pipelines.session import open_session
from resources.tables import System, TableRef, staging_prefix
from tests.integration.conftest import Ferry
from tests.standin.integration.clients import Clients

ROOT = Path(__file__).parents[2]
SELECT = "SELECT id, name, amount FROM {t} ORDER BY id"
Row = tuple[Any, ...]


class Command:
    """`ferry` as a process of its own. One command runs at a time."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "output"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str, **environment: str) -> int:
        """Start the command with these arguments; returns its process id."""
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pipelines.cli", *arguments],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the command that was started last has not ended yet."""
        assert self._process is not None
        return self._process.poll() is None

    def wait(self) -> int:
        """The return code of the command that was started last, as `subprocess` has it."""
        assert self._process is not None
        return self._process.wait()

    def run(self, *arguments: str, **environment: str) -> int:
        """Start the command and wait for its return code."""
        self.start(*arguments, **environment)
        return self.wait()

    @property
    def output(self) -> str:
        """What the command has said."""
        return self._output.read_text()


def crash(command: Command, table: str, point: str, *arguments: str) -> None:
    """`ferry run`, until it dies at a named point."""
    code = command.run("run", table, *arguments, TABLEFERRY_CRASH_AT=point)
    assert code == -signal.SIGKILL, f"not killed at {point}:\n{command.output}"


def ask_clickhouse(ferry: Ferry, sql: str) -> list[Row]:
    """Rows of the warehouse, by a client of our own."""
    parts = urlsplit(ferry.stack.clickhouse_url)
    with clickhouse_connect.get_client(
        host=parts.hostname, port=parts.port, username=parts.username, password=parts.password
    ) as client:
        return [tuple(row) for row in client.query(sql).result_rows]


def ask_sqlserver(ferry: Ferry, sql: str) -> list[Row]:
    """Rows of the middle database, by a driver that the product does not use."""
    with (
        Clients.of(ferry.stack.sqlserver_url).pymssql() as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(sql)
        return [tuple(row) for row in cursor.fetchall()]


def rows_of(ferry: Ferry, system: str) -> list[Row]:
    """What is in a table of the transfer now, in order."""
    if system == "postgres":
        return ferry.rows(SELECT)
    if system == "clickhouse":
        return ask_clickhouse(ferry, SELECT.format(t=f"warehouse.{ferry.table}"))
    return ask_sqlserver(ferry, SELECT.format(t=f"dbo.{ferry.table}"))


def staging_tables(ferry: Ferry, system: System) -> list[str]:
    """Whatever of the transfer lies about in a target besides the table, locks included."""
    if system == "clickhouse":
        found = ask_clickhouse(ferry, "SELECT name FROM system.tables")
        target = TableRef(system, "warehouse", ferry.table)
    else:
        found = ask_sqlserver(ferry, "SELECT name FROM sys.tables")
        target = TableRef(system, "dbo", ferry.table)
    names = [str(row[0]) for row in found]
    assert ferry.table in names, "the target itself is seen"
    ours = (staging_prefix(target), f"{ferry.table}__ferry")
    return [name for name in names if name.startswith(ours)]


def reopen(ferry: Ferry) -> None:
    """Open a new session, as the next command does."""
    ferry.session.instance.dispose()
    ferry.session = open_session()


def runs_by_status(ferry: Ferry) -> dict[str, dg.DagsterRunStatus]:
    """How every run of the instance ended, or that it did not."""
    return {run.run_id: run.status for run in ferry.session.instance.get_runs()}
