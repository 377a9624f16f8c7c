"""Who runs, who is a leftover, how one is stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tableferry_local import process
from tableferry_local.errors import StackError

SLEEPER = [
    sys.executable,
    "-c",
    # what started the tests may ignore it, which is handed down
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_DFL);"
    "print('ready', flush=True); time.sleep(600)",
]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('ready', flush=True); time.sleep(600)",
]
PARENT = [
    sys.executable,
    "-c",
    "import subprocess, sys, time;"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    "print(child.pid, flush=True); time.sleep(600)",
]


def spawned(command: list[str], folder: Path) -> tuple[int, Path]:
    """The pid of a process that said something, and its log."""
    log = folder / "log"
    pid = process.spawn(command, log, cwd=folder)
    process.wait_until(lambda: log.read_text() != "", pid, "the process", log, seconds=30)
    return pid, log


def test_identity_lasts_as_long_as_the_process() -> None:
    mine = process.identity(os.getpid())
    assert mine is not None
    assert process.identity(os.getpid()) == mine
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    assert process.identity(child.pid) is None, "a zombie is not alive"
    child.wait()
    assert process.identity(child.pid) is None


def test_identity_tells_processes_apart(tmp_path: Path) -> None:
    pid, _ = spawned(SLEEPER, tmp_path)
    assert process.identity(pid) not in (None, process.identity(os.getpid()))
    process.kill(pid)


def test_free_port_is_free_and_below_outgoing_ones() -> None:
    port = process.free_port()
    assert port in process.PORTS
    with (
        socket.create_server((process.HOST, port)),
        pytest.raises(StackError, match=f"port {port} of 127.0.0.1 cannot be used"),
    ):
        process.free_port(port)
    assert process.free_port(port) == port


@pytest.mark.parametrize("port", [-1, 65536])
def test_impossible_port(port: int) -> None:
    with pytest.raises(StackError, match=f"port {port} of 127.0.0.1 cannot be used"):
        process.free_port(port)


def test_daemon_has_a_session_of_its_own(tmp_path: Path) -> None:
    pid, log = spawned(SLEEPER, tmp_path)
    assert os.getsid(pid) == pid
    assert log.read_text() == "ready\n"
    process.stop(pid, signal.SIGTERM, seconds=30)
    assert process.identity(pid) is None


def test_stop_does_not_wait_for_ever(tmp_path: Path) -> None:
    pid, _ = spawned(STUBBORN, tmp_path)
    process.stop(pid, signal.SIGTERM, seconds=0.1)
    assert process.identity(pid) is None


def test_kill_takes_the_children_along(tmp_path: Path) -> None:
    pid, log = spawned(PARENT, tmp_path)
    child = int(log.read_text())
    assert process.identity(child) is not None
    process.kill(pid)
    assert process.identity(pid) is None
    assert process.identity(child) is None


def test_a_daemon_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('first'); print('the reason'); print()"]
    log = tmp_path / "log"
    pid = process.spawn(command, log, cwd=tmp_path)
    with pytest.raises(StackError, match="the daemon ended while starting: the reason"):
        process.wait_until(lambda: False, pid, "the daemon", log, seconds=30)


def test_a_daemon_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    pid, log = spawned(SLEEPER, tmp_path)
    with pytest.raises(StackError, match="the daemon did not answer in 0 s"):
        process.wait_until(lambda: False, pid, "the daemon", log, seconds=0)
    process.kill(pid)


def test_servers_of_needs_both_the_module_and_the_folder(tmp_path: Path) -> None:
    code = "import time; print('ready', flush=True); time.sleep(600)"
    bystander, _ = spawned([sys.executable, "-c", code, str(tmp_path)], tmp_path)
    (tmp_path / "log").unlink()
    server, _ = spawned(
        [sys.executable, "-c", code, "tableferry_local.some", str(tmp_path)], tmp_path
    )
    assert process.servers_of("tableferry_local.some", tmp_path) == [server]
    process.kill(bystander)
    process.kill(server)
