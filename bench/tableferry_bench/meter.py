"""Runs programs, and measures what they take: time, memory of the whole tree, CPU on both sides."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import TableferryError

SAMPLE_SECONDS = 0.05
SETTLE_SECONDS = 0.2
"""Until a PostgreSQL backend whose client has gone has ended, and its CPU time is counted."""

SAID = 600
"""Characters of a failed program's last words that an error repeats."""

CHILDREN = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists()
"""Whether the kernel lists the children of a thread, which costs far less than a look at all
processes (proc(5): only if it was built with CONFIG_PROC_CHILDREN)."""

LOCAL = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Command:
    """A program to run, with what it needs. Secrets are in the environment or in the input only."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    """All of it."""
    stdin: str = field(default="", repr=False)
    folder: Path | None = None
    """Working folder."""


@dataclass(frozen=True)
class Finished:
    """What became of a program."""

    began: float
    """Seconds since 1970."""
    seconds: float
    cpu: CpuSeconds
    peak_rss_bytes: int
    exit_code: int
    output: str
    errors: str


class CommandFailed(TableferryError):
    """A program of the bench ended badly, or moved something else than the rows."""


def run(command: Command, *, timeout: float = 3600) -> Finished:
    """Run a program to its end, and measure it.

    Raises:
        CommandFailed: it cannot be started, or takes too long.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        with tempfile.TemporaryFile() as given:
            given.write(command.stdin.encode())
            given.seek(0)
            began, started = time.time(), time.perf_counter()
            try:
                process = subprocess.Popen(
                    list(command.argv),
                    env=dict(command.environment),
                    stdin=given,
                    stdout=output,
                    stderr=errors,
                    cwd=command.folder,
                    start_new_session=True,
                )
            except OSError as error:
                raise CommandFailed(f"{command.argv[0]}: {error.strerror}") from None
        watch = _Watch(process.pid, started + timeout)
        try:
            watch.start()
            # of the child and of all of its own that it has waited for
            _, status, used = os.wait4(process.pid, 0)
        except BaseException:
            watch.kill()  # interrupted: nothing goes on without us
            raise
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        watch.end()
        if watch.too_long:
            raise CommandFailed(f"{Path(command.argv[0]).name} took more than {timeout:g} s")
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    # not ru_maxrss, which has the memory of the process that it was forked from
    cpu = CpuSeconds(used.ru_utime + used.ru_stime, used.ru_stime)
    return Finished(began, seconds, cpu, watch.peak, process.returncode, *texts)


def require_good(finished: Finished, name: str, secrets: Sequence[str]) -> None:
    """Raise unless a program ended well.

    Raises:
        CommandFailed: with its last words, without the secrets.
    """
    if finished.exit_code == 0:
        return
    said = finished.errors.strip() or finished.output.strip()
    for secret in filter(None, secrets):
        said = said.replace(secret, "***")
    said = " ".join(said.split())[-SAID:]
    raise CommandFailed(f"{name} ended with exit code {finished.exit_code}: {said}")


class _Watch(threading.Thread):
    """Looks at a tree of processes again and again, for its memory."""

    def __init__(self, pid: int, deadline: float) -> None:
        super().__init__(daemon=True)
        self.peak, self.too_long = 0, False
        self._pid, self._deadline, self._over = pid, deadline, threading.Event()
        self._known: dict[int, psutil.Process] = {}

    def run(self) -> None:
        self.peak = self._now()
        while not self._over.wait(SAMPLE_SECONDS):
            self.peak = max(self.peak, self._now())
            if time.perf_counter() > self._deadline:
                self.too_long = True
                self.kill()
                return

    def kill(self) -> None:
        """End the whole tree."""
        for pid in tree(self._pid):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()

    def _now(self) -> int:
        total = 0
        for pid in tree(self._pid):
            with suppress(psutil.Error):
                one = self._known.get(pid) or psutil.Process(pid)
                self._known[pid] = one
                total += one.memory_info().rss
        return total


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    if not CHILDREN:
        try:
            return [pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))]
        except psutil.Error:
            return [pid]
    found = [pid]
    for one in found:  # grows while it is gone through
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{one}/task"):
                with suppress(OSError):
                    listed = Path(f"/proc/{one}/task/{thread}/children").read_text()
                    found += map(int, listed.split())
    return found


@dataclass(frozen=True)
class CpuSeconds:
    """CPU seconds of a tree of processes, and those of them that the kernel took."""

    all: float = 0.0
    system: float = 0.0

    def __sub__(self, earlier: CpuSeconds) -> CpuSeconds:
        return CpuSeconds(self.all - earlier.all, self.system - earlier.system)


def cpu_seconds(pid: int) -> CpuSeconds:
    """CPU seconds so far of a process and all that descend from it, ended ones included."""
    user = system = 0.0
    for each in tree(pid):
        with suppress(psutil.Error):
            times = psutil.Process(each).cpu_times()
            # those of children are absent outside of Linux and macOS
            user += times.user + getattr(times, "children_user", 0.0)
            system += times.system + getattr(times, "children_system", 0.0)
    return CpuSeconds(user + system, system)


class ServerClock:
    """CPU seconds of one server, if it is on this machine and may be looked at."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.pid = _listening(settings)

    @property
    def seen(self) -> bool:
        """Whether it can be told."""
        return self.pid is not None

    def seconds(self) -> CpuSeconds | None:
        """So far, of all of the server's processes, those that have ended included."""
        return None if self.pid is None else cpu_seconds(self.pid)


def _listening(settings: ConnectionSettings) -> int | None:
    """The process on this machine that listens where the settings point to."""
    if settings.host not in (*LOCAL, socket.gethostname()):
        return None
    try:
        found = {
            one.pid
            for one in psutil.net_connections("tcp")
            if one.status == psutil.CONN_LISTEN and one.pid and one.laddr[1:2] == (settings.port,)
        }
    except psutil.Error:
        return None
    # those that it has forked may hold the socket, too
    return min(found, key=lambda pid: psutil.Process(pid).create_time(), default=None)


def keep_on(pid: int, cpus: Iterable[int]) -> None:
    """Have a process, what it has started and all that these will start run on some CPUs only.

    Linux keeps this by thread (sched_setaffinity(2)); what begins inherits it.
    """
    begun = psutil.Process(pid)
    for process in (begun, *begun.children(recursive=True)):
        with suppress(psutil.Error, ProcessLookupError):
            for thread in process.threads():
                os.sched_setaffinity(thread.id, cpus)
