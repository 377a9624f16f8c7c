"""Which process works on a run, and whether it still lives."""

from __future__ import annotations

import fcntl
import hashlib
import multiprocessing
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import dagster as dg
import psutil

PROCESS = "tableferry/process"
"""Run tag: the process that works on the run, as `Process` is written."""
POD = "TABLEFERRY_POD_UID"
"""The pod's uid, where Kubernetes' downward API tells it."""
IN_PROCESS = ("in_process", "execute_in_process_executor")
MULTIPROCESS = ("multiprocess", "multi_or_in_process_executor")
"""Dagster's executors by name: those of this machine."""
KEPT = 7 * 86400
"""How many seconds the file of a process stays at least; its runs are marked failed long before."""

_held: dict[str, int] = {}
"""By path, the descriptors of the files that this process holds locked until it ends."""
_holding = threading.Lock()


@dataclass(frozen=True)
class Process:
    """A process, told from all others, also from those of another container or after a reboot."""

    host: str
    pid: int
    started: float
    space: str
    """Digest of what its pid is unique in: a boot of a kernel, a container, a pod."""
    file: str
    """Name of the file in Dagster's home that it holds locked while it lives; may be empty."""

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started:.2f}:{self.space}:{self.file}"

    @classmethod
    def parse(cls, text: str) -> Process | None:
        """The process that a text stands for; None if it stands for none."""
        try:
            host, pid, started, space, file = text.rsplit(":", 4)
            return cls(host, int(pid), float(started), space, file)
        except ValueError:
            return None

    def differs_from(self, other: Process) -> bool:
        """Whether the other is not the same; start times may be adjusted meanwhile."""
        return replace(self, started=0.0) != replace(other, started=0.0)


def this_process(instance: dg.DagsterInstance) -> str:
    """The value of the `PROCESS` tag for this process."""
    pid = os.getpid()
    started = psutil.Process(pid).create_time()
    return str(Process(socket.gethostname(), pid, started, _space(), _file(instance)))


def run_process(instance: dg.DagsterInstance, executor: str) -> str:
    """The value of the `PROCESS` tag of a run, one step of which is in this process.

    Args:
        instance: whose run it is.
        executor: Dagster's name of the run's. Where each step has a process of its own, that ends
            before the run does; so the run's is the one that started it.

    Returns:
        '' if nobody here can know.
    """
    if executor not in (*IN_PROCESS, *MULTIPROCESS):
        return ""
    parent = multiprocessing.parent_process()
    if executor in IN_PROCESS or parent is None or parent.pid is None:
        return this_process(instance)
    try:
        started = psutil.Process(parent.pid).create_time()
    except psutil.Error:
        return ""
    return str(Process(socket.gethostname(), parent.pid, started, _space(), ""))


def process_is_gone(instance: dg.DagsterInstance, tag: str) -> bool:
    """Whether the process of a `PROCESS` tag is surely dead; if nobody here can know, it is not.

    Its pid tells within its own container or host. From outside, the lock on its file tells,
    which the kernel gives back when the process ends: that takes the same Dagster home, on a file
    system with locks.
    """
    process = Process.parse(tag)
    if process is None:
        return False
    if process.space == _space():
        return not _is_running(process)
    return bool(process.file) and _is_released(_folder(instance) / process.file)


def owner_name(instance: dg.DagsterInstance, run_id: str, process: str = "") -> str:
    """What a run writes into its locks: who it is, also for other instances.

    Args:
        instance: whose run it is.
        run_id: of the run.
        process: of the run; this one, if that is not known.
    """
    return f"{run_id} {process or this_process(instance)}"


def home_name(instance: dg.DagsterInstance) -> str:
    """What a run writes into the markers of its targets: where its event log is."""
    return f"{socket.gethostname()}:{instance.root_directory}"


def run_is_alive(instance: dg.DagsterInstance) -> Callable[[str], bool]:
    """Tells of an owner's name whether that run may still be working.

    A run of another Dagster instance is known by its process alone, and so in this container or
    host only.
    """

    def alive(owner: str) -> bool:
        run_id, _, tag = owner.partition(" ")
        process = Process.parse(tag)
        run = instance.get_run_by_id(run_id)
        if run is None:
            here = process is not None and process.space == _space()
            return here and not process_is_gone(instance, tag)
        if run.is_finished:
            return False
        now = run.tags.get(PROCESS, "")
        current = Process.parse(now)
        if process is not None and current is not None and process.differs_from(current):
            return False  # it was resumed by another process
        return not process_is_gone(instance, now)

    return alive


def _is_running(process: Process) -> bool:
    """Whether a process of this container or host runs."""
    try:
        found = psutil.Process(process.pid)
        # a second of tolerance: the boot time that start times count from may be adjusted
        same = abs(found.create_time() - process.started) <= 1
        return same and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


@cache
def _space() -> str:
    """What pids are unique in: one boot of one kernel, one of its process namespaces, one pod.

    Where none of it can be read, it is the host's name.
    """
    parts = [socket.gethostname(), os.environ.get(POD, "")]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _folder(instance: dg.DagsterInstance) -> Path:
    return Path(instance.root_directory) / "processes"


def _file(instance: dg.DagsterInstance) -> str:
    """Name of the file that this process holds locked; empty where there can be none."""
    folder = _folder(instance)
    with _holding:
        for held in _held:
            if os.path.dirname(held) == str(folder):
                return os.path.basename(held)
        path = folder / uuid.uuid4().hex[:12]
        try:
            folder.mkdir(exist_ok=True)
            _held[str(path)] = _locked(path)
        except OSError:
            return ""
        _sweep(folder)
        return path.name


def _locked(path: Path) -> int:
    """Descriptor of a new file, locked before it has the name by which others ask for it."""
    hidden = path.with_name(f".{path.name}")
    descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hidden.rename(path)
    except OSError:
        os.close(descriptor)
        hidden.unlink(missing_ok=True)
        raise
    return descriptor


def _is_released(path: Path) -> bool:
    """Whether the file is there, and its process has ended."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _sweep(folder: Path) -> None:
    """Remove the files of processes that ended long ago."""
    before = time.time() - KEPT
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.stat().st_mtime < before and _is_released(Path(entry.path)):
                os.unlink(entry.path)


def _forget_held() -> None:
    """In a forked process: the files are its parent's, whose end its copies must not hide."""
    for descriptor in _held.values():
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()
    _holding.release()


os.register_at_fork(
    before=_holding.acquire, after_in_parent=_holding.release, after_in_child=_forget_held
)
