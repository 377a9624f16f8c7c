"""Does the same work for many transfers in processes, each of which has one transfer at a time."""

from __future__ import annotations

import heapq
import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

from tableferry.assets.declaring.transfer_files import TransferFolder
from tableferry.assets.planning.servers import Servers
from tableferry.assets.running.progress import OnProgress, Progress
from tableferry.assets.running.source_slots import sharing
from tableferry.pipelines import event_log, settings
from tableferry.pipelines.command.one.child import Child, Children, Ended, Parent
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.shell import start_logging
from tableferry.pipelines.command.show.watching import Watch
from tableferry.resources.errors import TableferryError

SECONDS_TO_START = 2.0
"""What a process costs to start; another one is worth it for many tables, or for slow ones."""
TABLES_PER_PROCESS = 4
SECONDS_WORTH_A_PROCESS = 2 * SECONDS_TO_START
"""How many waiting tables, or expected seconds of work, are worth another process at once."""

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Job(Protocol[Result_co]):
    """The work for a transfer, which is sent to the processes; its outcome comes back."""

    @property
    def log_level(self) -> str | None:
        """See `shell.verbosity`."""

    def __call__(self, session: Session, name: str, on_progress: OnProgress) -> Result_co:
        """Do it. An error that concerns this transfer alone is part of the outcome."""

    def died(self, name: str, reason: str, seconds: float) -> Result_co:
        """Return the outcome of a transfer whose process has died."""


@dataclass
class Queue:
    """The transfers that wait, the one that is expected to take longest first."""

    seconds: Mapping[str, float]
    _heap: list[tuple[float, str]] = field(default_factory=list)

    def put(self, name: str) -> None:
        """Add a transfer."""
        heapq.heappush(self._heap, (-self.seconds[name], name))

    def take(self) -> str:
        """Remove the first."""
        return heapq.heappop(self._heap)[1]

    @property
    def work(self) -> float:
        """The seconds that all of them are expected to take."""
        return -sum(seconds for seconds, _ in self._heap)

    def clear(self) -> None:
        """Remove all."""
        self._heap.clear()

    def __len__(self) -> int:
        return len(self._heap)


@dataclass
class _Worker:
    """What a process works on, one transfer after the other."""

    transfer: str | None = None
    began: float = 0.0


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def error_lines(error: Exception) -> list[str]:
    """Describe an error that stops one transfer, and none of the others; a bug with its trace."""
    if isinstance(error, TableferryError):
        return str(error).splitlines()
    if problem := event_log.storage_problem(error):
        return [problem]
    traceback.print_exception(error)
    return [f"{type(error).__name__}: {error}"]


def in_processes(
    session: Session,
    work: Job[Result],
    queue: Queue,
    jobs: int,
    *,
    watch: Watch,
    settled: Iterable[tuple[Result | None, str]] = (),
    may_start: Callable[[], bool] = lambda: True,
) -> Iterator[Result]:
    """Work on the transfers of a queue, in processes that are started as they are worth it.

    Args:
        session: the session of the command.
        work: what to do.
        queue: the transfers.
        jobs: how many processes there may be.
        watch: told when a transfer begins, and of its progress.
        settled: read by a thread meanwhile: the outcomes of other transfers; None for one that is
            to join the queue.
        may_start: asked before each; once it says no, those that have begun are the last.

    Yields:
        The outcome of each, in the order in which they end.
    """
    workers: dict[Child, _Worker] = {}
    reported, reports = multiprocessing.Pipe(duplex=False)
    threading.Thread(target=_report, args=(settled, reports), daemon=True).start()
    more, began = True, 0.0
    if not session.quiet:
        _ = session.instance  # makes a new home before several processes would

    def allowed() -> int:
        patience = int((time.monotonic() - began) / SECONDS_TO_START) if began else 0
        worth = max(len(queue) / TABLES_PER_PROCESS, queue.work / SECONDS_WORTH_A_PROCESS)
        return min(jobs, 1 + int(worth) + patience)

    with closing(reported), Children(lambda: session.instance) as children:
        while more or queue or any(worker.transfer for worker in workers.values()):
            idle = [child for child, worker in workers.items() if worker.transfer is None]
            if queue and (idle or len(workers) < jobs) and not may_start():
                queue.clear()
                continue
            if len(queue) > len(idle) and len(workers) < allowed():
                child = children.start(_work, work)
                workers[child] = _Worker()
                idle.append(child)
                began = began or time.monotonic()
            for child, _ in zip(idle, range(len(queue)), strict=False):
                worker = workers[child]
                worker.transfer, worker.began = queue.take(), time.perf_counter()
                watch.started(worker.transfer)
                child.send(_alone(session.declared, worker.transfer))
            if queue and len(workers) < allowed():
                continue
            waits = queue and len(workers) < jobs
            also = reported if more else None
            for sender, message in children.messages(SECONDS_TO_START if waits else None, also):
                if isinstance(message, Progress):
                    watch.progress(message)
                    continue
                outcome = message
                if sender is None:
                    more = message is not None
                    if isinstance(message, str):
                        queue.put(message)
                        continue
                elif isinstance(message, Ended):
                    outcome = _died(workers.pop(sender), message, work)
                else:
                    workers[sender].transfer = None
                if outcome is not None:
                    yield outcome


def _report(settled: Iterable[tuple[Any, str]], reports: Connection) -> None:
    """Send each outcome, or else the name of its transfer, and None at the end."""
    with suppress(BrokenPipeError, OSError):
        for outcome, name in settled:
            reports.send(outcome or name)
        reports.send(None)


def _alone(declared: TransferFolder, name: str) -> TransferFolder:
    """The folder as if it held one transfer, with no other's file."""
    files = {name: declared.files[name]} if name in declared.files else {}
    return replace(declared.only(name), files=files)


def _died(worker: _Worker, ended: Ended, work: Job[Result]) -> Result | None:
    """Return the outcome of the transfer that a process had; none if it had none."""
    if worker.transfer is None:
        return None
    reason = f"the process ended with exit code {ended.exit_code}"
    return work.died(worker.transfer, reason, time.perf_counter() - worker.began)


def _work(parent: Parent, work: Job[Any]) -> None:
    """Work on the transfers that the parent names, in turn, until it closes the pipe."""
    if work.log_level:
        start_logging(work.log_level)
    instance, home = event_log.open_to_record(), event_log.home_path()
    endpoints = Servers(settings.servers(), sharing(instance))
    try:
        while True:
            declared = parent.receive()
            (name,) = declared.transfers
            session = Session(lambda: instance, declared, endpoints, home=home)
            parent.send(work(session, name, parent.send))
    except (EOFError, ConnectionResetError):
        instance.dispose()
