"""Processes of the local stack: who runs, who is a leftover, how one is stopped."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tableferry_local.errors import StackError

HOST = "127.0.0.1"
POLL_SECONDS = 0.02
PORTS = range(15_000, 32_000)
"""Below the ports that systems give to outgoing connections (Linux: from 32768, RFC 6335: from
49152). Such a connection could take a crashed server's port before the server is back."""


def identity(pid: int) -> str | None:
    """A token that tells this process from any other that gets the same pid later.

    Linux counts a process's start in clock ticks since boot, which no clock step changes
    (proc(5), field 22 of /proc/pid/stat); elsewhere the creation time has to do.

    Args:
        pid: the process id.

    Returns:
        The token, or None if no such process is alive (a zombie is not).
    """
    if sys.platform != "linux":
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return f"{process.create_time():.2f}"
        except psutil.Error:
            return None
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the program's name in parentheses, which may itself hold blanks.
    state, *rest = stat[stat.rindex(")") + 2 :].split()
    # Field 20 counts threads: a killed process holds its ports until the last thread has ended.
    if state in "ZX" and int(rest[16]) <= 1:
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{rest[18]}"


def free_port(wanted: int | None = None) -> int:
    """A TCP port of the loopback interface that nobody listens on.

    Args:
        wanted: a particular port, or None for any.

    Raises:
        StackError: the wanted port is in use, or none is free.
    """
    candidates = [wanted] if wanted else random.sample(PORTS, 50)
    problem = ""
    for port in candidates:
        with socket.socket() as probe:
            # As servers do: a port whose last connections are in TIME_WAIT is free to listen on.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
                return port
            except (OSError, OverflowError) as error:
                problem = getattr(error, "strerror", None) or str(error)
    if wanted:
        raise StackError(f"port {wanted} of {HOST} cannot be used: {problem}")
    raise StackError(f"no free port on {HOST}: {problem}")


def spawn(
    command: Sequence[str],
    log: Path,
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    user: int | None = None,
    group: int | None = None,
) -> int:
    """Start a daemon in a session of its own, its output appended to a log file.

    Args:
        command: program and arguments; never a secret, because anybody can list them.
        log: file for both output streams.
        cwd: working folder.
        env: additions to the environment (secrets go here).
        user: numeric user to run as, for root.
        group: numeric group to run as, for root.

    Returns:
        The pid.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            start_new_session=True,
            user=user,
            group=group,
            extra_groups=[] if user is not None else None,
        )
    # The daemon outlives us on purpose; this silences Popen's warning about that.
    process.returncode = 0
    return process.pid


def reap(pid: int) -> None:
    """Collect an ended child, so that its pid does not linger as a zombie."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def wait_until(ready: Callable[[], bool], pid: int, what: str, log: Path, seconds: float) -> None:
    """Wait until a daemon answers.

    Raises:
        StackError: it ended, or did not answer in time; the message holds its last log line.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if identity(pid) is None:
            reap(pid)
            raise StackError(f"{what} ended while starting: {last_line(log)} (see {log})")
        if time.monotonic() > deadline:
            raise StackError(f"{what} did not answer in {seconds:.0f} s (see {log})")
        time.sleep(POLL_SECONDS)


def wait_gone(pids: Sequence[int], seconds: float) -> bool:
    """Whether all these processes ended in time."""
    deadline = time.monotonic() + seconds
    while True:
        for pid in pids:
            reap(pid)
        if all(identity(pid) is None for pid in pids):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)


def stop(pid: int, sig: signal.Signals, seconds: float) -> None:
    """End a daemon politely, and with SIGKILL (its children too) if it does not end in time."""
    with suppress(ProcessLookupError):
        os.kill(pid, sig)
    if not wait_gone([pid], seconds):
        kill(pid)


def kill(pid: int) -> None:
    """SIGKILL a process and all its children, as a crash of the whole server would."""
    try:
        process = psutil.Process(pid)
        victims = [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.Error:
        victims = [pid]
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    wait_gone(victims, 10)


def servers_of(module: str, place: Path) -> list[int]:
    """The processes, children included, that run one of our server modules on a folder."""
    found = []
    for candidate in psutil.process_iter(["cmdline"]):
        arguments = candidate.info["cmdline"] or ()
        if module in arguments and str(place) in arguments:
            found.append(candidate.pid)
    return found


def last_line(log: Path) -> str:
    """The last line that says something, or a dash."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "-"
    return lines[-1].strip() if lines else "-"
