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
"""Run tag: the process that works on the run, as the text of a `Process`."""
POD = "TABLEFERRY_POD_UID"
"""Environment variable with the pod's uid, set by Kubernetes' downward API."""
IN_PROCESS = ("in_process", "execute_in_process_executor")
MULTIPROCESS = ("multiprocess", "multi_or_in_process_executor")
"""Names of Dagster's executors on this machine."""
KEPT = 7 * 86400
"""Minimum age in seconds of a lock file that is removed; its runs are marked failed long before."""

_locks: dict[str, int] = {}
"""Descriptors of the files that this process holds locked until it ends, by path."""
_locks_guard = threading.Lock()


@dataclass(frozen=True)
class Process:
    """The identity of a process, unique also across containers and reboots."""

    host: str
    pid: int
    started: float
    space: str
    """Digest of the scope in which the pid is unique: a kernel's boot, a container, a pod."""
    file: str
    """Name of the file in Dagster's home that the process holds locked; may be empty."""

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started:.2f}:{self.space}:{self.file}"

    @classmethod
    def parse(cls, text: str) -> Process | None:
        """Parse the text of a process; None if it is not valid."""
        try:
            host, pid, started, space, file = text.rsplit(":", 4)
            return cls(host, int(pid), float(started), space, file)
        except ValueError:
            return None

    def differs_from(self, other: Process) -> bool:
        """Whether the other is another process; start times may be adjusted, and do not count."""
        return replace(self, started=0.0) != replace(other, started=0.0)


def this_process(instance: dg.DagsterInstance) -> str:
    """Return the value of the `PROCESS` tag for this process."""
    pid = os.getpid()
    started = psutil.Process(pid).create_time()
    return str(Process(socket.gethostname(), pid, started, _space(), _lock_file(instance)))


def run_process(instance: dg.DagsterInstance, executor: str) -> str:
    """Return the value of the `PROCESS` tag of a run that executes a step in this process.

    With an executor that starts a process per step, which ends before the run, it is the parent
    process. Empty if the run's process cannot be determined.
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
    """Whether the process of a `PROCESS` tag is certainly dead; False if that cannot be determined.

    Its pid decides within its own container or host. From outside, the lock on its file decides,
    which the kernel releases when the process ends: that requires the same Dagster home, on a file
    system with locks.
    """
    process = Process.parse(tag)
    if process is None:
        return False
    if process.space == _space():
        return not _is_running(process)
    return bool(process.file) and _is_released(_folder(instance) / process.file)


def owner_name(instance: dg.DagsterInstance, run_id: str, process: str = "") -> str:
    """Return the name that a run writes into its locks, unique across instances."""
    return f"{run_id} {process or this_process(instance)}"


def home_name(instance: dg.DagsterInstance) -> str:
    """Return the name of the event log, which a run writes into the markers of its targets."""
    return f"{socket.gethostname()}:{instance.root_directory}"


def run_is_alive(instance: dg.DagsterInstance, *, elsewhere: bool = True) -> Callable[[str], bool]:
    """Return a predicate: whether the run of an owner name may still be working.

    A run of another Dagster instance is recognised only by its process, and only in this container
    or host; of others nobody can be asked, and `elsewhere` is what is assumed.
    """

    def alive(owner: str) -> bool:
        run_id, _, tag = owner.partition(" ")
        process = Process.parse(tag)
        run = instance.get_run_by_id(run_id)
        if run is None:
            here = process is not None and process.space == _space()
            return not process_is_gone(instance, tag) if here else elsewhere
        if run.is_finished:
            return False
        now = run.tags.get(PROCESS, "")
        current = Process.parse(now)
        if process is not None and current is not None and process.differs_from(current):
            return False  # another process has resumed the run
        return not process_is_gone(instance, now)

    return alive


def _is_running(process: Process) -> bool:
    """Whether a process of this container or host is running."""
    try:
        candidate = psutil.Process(process.pid)
        # a second of tolerance: start times count from the boot time, which may be adjusted
        same = abs(candidate.create_time() - process.started) <= 1
        return same and candidate.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


@cache
def _space() -> str:
    """Return a digest of the scope of this process's pid: kernel boot, pid namespace, pod, host."""
    parts = [socket.gethostname(), os.environ.get(POD, "")]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _folder(instance: dg.DagsterInstance) -> Path:
    return Path(instance.root_directory) / "processes"


def _lock_file(instance: dg.DagsterInstance) -> str:
    """Return the name of the file that this process holds locked; empty if it cannot have one."""
    folder = _folder(instance)
    with _locks_guard:
        for locked in _locks:
            if os.path.dirname(locked) == str(folder):
                return os.path.basename(locked)
        path = folder / uuid.uuid4().hex[:12]
        try:
            folder.mkdir(exist_ok=True)
            _locks[str(path)] = _create_locked(path)
        except OSError:
            return ""
        _sweep(folder)
        return path.name


def _create_locked(path: Path) -> int:
    """Create a file, locked before it gets its final name, and return its descriptor."""
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
    """Whether the file exists and no process holds it locked."""
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
    """Remove the lock files of processes that ended long ago."""
    before = time.time() - KEPT
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.stat().st_mtime < before and _is_released(Path(entry.path)):
                os.unlink(entry.path)


def _close_inherited() -> None:
    """Close a forked process's copies of the files, which would keep the parent's locks."""
    for descriptor in _locks.values():
        with suppress(OSError):
            os.close(descriptor)
    _locks.clear()
    _locks_guard.release()


os.register_at_fork(
    before=_locks_guard.acquire,
    after_in_parent=_locks_guard.release,
    after_in_child=_close_inherited,
)
