"""The real command line as a process that gets killed, and what must hold of the data after it."""

from __future__ import annotations

import multiprocessing.process
import os
import signal
from pathlib import Path

import dagster as dg
import psutil

from tableferry.pipelines.command.session import open_session
from tableferry.resources.tables import TableRef, staging_prefix
from tests.integration.conftest import Ferry
from tests.integration.support import ferry_process, looking
from tests.servers import own

COPIES = own("crash_copies")
"""The schema of copies in the source's own database."""

SELECT = "SELECT id, name, amount FROM {t} ORDER BY id"
Row = looking.Row


class Command:
    """`ferry` as a process of its own. One command runs at a time."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "output"
        self._process: multiprocessing.process.BaseProcess | None = None

    def start(self, *arguments: str, **environment: str) -> int:
        """Start the command with these arguments; returns its process id."""
        self._output.touch()
        given = (arguments, {**os.environ, **environment}, self._output)
        self._process = ferry_process.forking.Process(target=ferry_process.main, args=given)
        self._process.start()
        assert self._process.pid is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the command that was started last has not ended yet."""
        assert self._process is not None
        return self._process.is_alive()

    def wait(self) -> int:
        """The return code of the command that was started last, as `subprocess` has it."""
        assert self._process is not None
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def kill_all(self) -> None:
        """Kill the command and the processes that it has started, before any sees another's end."""
        assert self._process is not None and self._process.pid is not None
        # all of them are forked by the same server
        server = psutil.Process(self._process.pid).parent()
        assert server is not None
        processes = server.children(recursive=True)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in processes:
                process.send_signal(number)
        assert self.wait() == -signal.SIGKILL

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
    """Rows of the warehouse, past the product."""
    return looking.ask_clickhouse(ferry.stack.clickhouse_url, sql)


def ask_sqlserver(ferry: Ferry, sql: str) -> list[Row]:
    """Rows of the middle database, past the product."""
    return looking.ask_sqlserver(ferry.stack.sqlserver_url, sql)


def rows_of(ferry: Ferry, system: str) -> list[Row]:
    """What is in a table of the transfer now, in order."""
    if system == "postgres":
        return ferry.rows(SELECT)
    if system == "copies":
        return ferry.rows(SELECT.format(t=f"{COPIES}.{{t}}"))
    if system == "clickhouse":
        return ask_clickhouse(ferry, SELECT.format(t=f"warehouse.{ferry.table}"))
    return ask_sqlserver(ferry, SELECT.format(t=f"dbo.{ferry.table}"))


def staging_tables(ferry: Ferry, system: str) -> list[str]:
    """Whatever of the transfer lies about in a target besides the table, locks included."""
    if system == "clickhouse":
        found = ask_clickhouse(ferry, "SELECT name FROM system.tables")
        target = TableRef(system, "warehouse", ferry.table)
    elif system == "copies":
        found = ferry.rows(f"SELECT tablename FROM pg_tables WHERE schemaname = '{COPIES}'")
        target = TableRef("postgres", COPIES, ferry.table, system)
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
