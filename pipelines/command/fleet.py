"""Runs several transfers side by side: those with nothing to do in threads, others in processes."""

from __future__ import annotations

import heapq
import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, fields, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import TransferFolder
from tableferry.assets.log import sqlite_home
from tableferry.assets.log.past_runs import seconds_of_last_runs
from tableferry.assets.log.queries import Log
from tableferry.assets.planning.expected import expected_seconds, sizes_of
from tableferry.assets.planning.resolve import Servers
from tableferry.assets.running.progress import Progress
from tableferry.pipelines import event_log
from tableferry.pipelines.command import running
from tableferry.pipelines.command.child import SECONDS_TO_END, become_child, end_children
from tableferry.pipelines.command.range_views import TransferView
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.several import TransferOutcome
from tableferry.pipelines.command.shell import say, start_logging
from tableferry.pipelines.command.watching import Watch
from tableferry.pipelines.settings import servers
from tableferry.resources.contract.snapshots import HeldSnapshot
from tableferry.resources.errors import TableferryError

LOOKING = 4
"""Transfers that are compared with the event log at a time; that is mostly waiting for servers."""
TABLES_PER_PROCESS = 4
SECONDS_TO_START = 2.0
"""What a process costs to start; another one is worth it for many tables, or for slow ones."""


@dataclass(frozen=True)
class Selection:
    """What the user asks of each transfer."""

    hop: int | None = None
    ranges: Sequence[str] = ()
    failed: bool = False
    force: bool = False
    profile: str | None = None
    log_level: str | None = None
    held: Mapping[str, HeldSnapshot] = field(default_factory=dict)
    """The snapshots in which the tables are read, by connection, if they are to be consistent."""

    def options(self, transfer: Transfer) -> dict[str, Any]:
        """Return the keyword arguments of `running.run`."""
        options = {item.name: getattr(self, item.name) for item in fields(self)}
        del options["held"]
        return {**options, "joined": self.held.get(transfer.source.connection)}


@dataclass(frozen=True)
class _FileSession(Session):
    """A session that reads the event log's files, though runs of its own command are active."""

    def _files(self) -> AbstractContextManager[Log | None]:
        assert self.home is not None
        return sqlite_home.opened(self.home)


@dataclass
class _Worker:
    """A process that moves one transfer after the other."""

    process: BaseProcess
    transfer: str | None = None
    began: float = 0.0


@dataclass
class _Queue:
    """The transfers that have to be moved, the one that is expected to take longest first."""

    seconds: Mapping[str, float]
    _heap: list[tuple[float, str]] = field(default_factory=list)

    def put(self, name: str) -> None:
        heapq.heappush(self._heap, (-self.seconds[name], name))

    def take(self) -> str:
        return heapq.heappop(self._heap)[1]

    def clear(self) -> None:
        self._heap.clear()

    def __len__(self) -> int:
        return len(self._heap)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_fleet(
    session: Session,
    names: Sequence[str],
    selection: Selection,
    watch: Watch,
    jobs: int,
    may_start: Callable[[], bool] = lambda: True,
) -> Iterator[TransferOutcome]:
    """Run transfers side by side; a failure does not stop the others.

    Args:
        session: the session of the command.
        names: the transfers.
        selection: what to do with each.
        watch: shows how far they are.
        jobs: how many transfers may be moved at a time; 1: all in this process.
        may_start: asked before each; once it says no, those that have begun are the last.

    Yields:
        The outcome of each, in the order in which they end.
    """
    quiet = session.quiet
    past = session.read(
        lambda log: seconds_of_last_runs(
            log, {name: session.transfer(name).hops[-1].to for name in names}
        )
    )
    transfers = [session.transfer(name) for name in names]
    # a last run may have found most rows unchanged, which this one moves if it is forced to
    sized = [item for item in transfers if selection.force or past.get(item.transfer) is None]
    sizes = sizes_of([transfer.source for transfer in sized], session.servers)
    seconds = expected_seconds(transfers, past, sizes)
    watch.expect(seconds)
    queue = _Queue(seconds)
    # a transfer that has never run has something to do, and a consistent set is recorded anew
    looked_at = not (selection.force or selection.held)
    known = [name for name in names if name in past and looked_at]
    for name in names:
        if name not in known:
            queue.put(name)
    reading = session
    if quiet and session.resources is None:
        home = session.home
        reading = _FileSession(session.open_instance, session.declared, session.servers, home=home)
    looks = _looks(reading, known, selection)
    if jobs == 1 or session.resources is not None:
        # servers that code has passed in exist in this process only
        for outcome, name in looks:
            if outcome is None:
                queue.put(name)
            else:
                watch.finished(outcome)
                yield outcome
        while queue and may_start():
            name = queue.take()
            watch.started(name)
            outcome = _move(session, name, selection, watch.progress)
            watch.finished(outcome)
            yield outcome
        return
    yield from _in_processes(session, looks, queue, selection, watch, jobs, may_start)


def _looks(
    session: Session, names: Sequence[str], selection: Selection
) -> Iterator[tuple[TransferOutcome | None, str]]:
    """Look which transfers have nothing to do, side by side, a batch at a time.

    The catalogs are read about all tables of a batch at once. A table about which they say
    something else when its batch ends may have changed before or after its turn, and counts as one
    that has something to do.

    Yields:
        The outcome of each that has nothing to do or cannot be planned, else None; and its name.
    """
    with ThreadPoolExecutor(LOOKING, "look") as executor:
        try:
            for batch, ahead in session.looks(names):
                pending = [executor.submit(_look, ahead, name, selection) for name in batch]
                outcomes = [future.result() for future in pending]
                changed = ahead.servers.changed()
                for name, outcome in zip(batch, outcomes, strict=True):
                    unsure = changed.intersection(session.transfer(name).tables)
                    yield None if unsure else outcome, name
        finally:
            executor.shutdown(cancel_futures=True)


def _look(session: Session, name: str, selection: Selection) -> TransferOutcome | None:
    began = time.perf_counter()
    try:
        view = running.view_if_unchanged(
            session, name, hop=selection.hop, ranges=selection.ranges, failed=selection.failed
        )
    except Exception as error:
        view = _failed(name, error)
    return None if view is None else TransferOutcome(view, time.perf_counter() - began)


def _move(
    session: Session, name: str, selection: Selection, on_progress: Callable[[Progress], None]
) -> TransferOutcome:
    began = time.perf_counter()
    try:
        if blocking := running.blocking_runs(session, name, moves=True):
            runs = ", ".join(run[:8] for run in blocking)
            on_progress(Progress(name, "", "", f"waiting for run {runs} to end"))
        options = selection.options(session.transfer(name))
        view = running.run(session, name, **options, on_progress=on_progress, on_note=say)
    except Exception as error:
        view = _failed(name, error)
    return TransferOutcome(view, time.perf_counter() - began)


def _failed(name: str, error: Exception) -> TransferView:
    """Describe an error that stops one transfer, and none of the others."""
    if isinstance(error, TableferryError):
        lines = str(error).splitlines()
    elif problem := event_log.storage_problem(error):
        lines = [problem]
    else:
        traceback.print_exception(error)
        lines = [f"{type(error).__name__}: {error}"]
    return TransferView(name, [], False, lines)


def _in_processes(
    session: Session,
    looks: Iterator[tuple[TransferOutcome | None, str]],
    queue: _Queue,
    selection: Selection,
    watch: Watch,
    jobs: int,
    may_start: Callable[[], bool],
) -> Iterator[TransferOutcome]:
    """Move what the looks do not settle, in processes that are started as they are worth it."""
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, _Worker] = {}
    processes: list[BaseProcess] = []
    looked, reports = context.Pipe(duplex=False)
    threading.Thread(target=_report, args=(looks, reports), daemon=True).start()
    looking, orderly, began = True, False, 0.0

    def allowed() -> int:
        patience = int((time.monotonic() - began) / SECONDS_TO_START) if began else 0
        return min(jobs, 1 + len(queue) // TABLES_PER_PROCESS + patience)

    try:
        while looking or queue or any(worker.transfer for worker in workers.values()):
            if queue and not may_start():
                queue.clear()
                continue
            idle = [pipe for pipe, worker in workers.items() if worker.transfer is None]
            if len(queue) > len(idle) and len(workers) < allowed():
                pipe, worker = _start(context, selection)
                workers[pipe] = worker
                processes.append(worker.process)
                idle.append(pipe)
                began = began or time.monotonic()
            for pipe, _ in zip(idle, range(len(queue)), strict=False):
                worker = workers[pipe]
                worker.transfer, worker.began = queue.take(), time.perf_counter()
                watch.started(worker.transfer)
                with suppress(BrokenPipeError):  # its end is read below
                    pipe.send(_alone(session.declared, worker.transfer))
            if queue and len(workers) < allowed():
                continue
            pipes = [*workers, *([looked] if looking else [])]
            waits = queue and len(workers) < jobs
            for ready in wait(pipes, SECONDS_TO_START if waits else None):
                assert isinstance(ready, Connection)
                if ready is looked:
                    message = looked.recv()
                    looking = message is not None
                    if isinstance(message, str):
                        queue.put(message)
                        continue
                else:
                    message = _receive(ready, workers)
                if isinstance(message, Progress):
                    watch.progress(message)
                elif message is not None:
                    watch.finished(message)
                    yield message
        orderly = True
    finally:
        looked.close()
        for pipe in workers:
            pipe.close()
        if orderly:
            for process in processes:
                process.join(SECONDS_TO_END)
        end_children(processes)
        if any(process.exitcode for process in processes):
            # the run of a process that died would hold its transfer's slot
            from tableferry.sensors.reaper import reap

            reap(session.instance)


def _report(looks: Iterator[tuple[TransferOutcome | None, str]], reports: Connection) -> None:
    """Send the outcome of each look, or else the name of its transfer, and None at the end."""
    with suppress(BrokenPipeError, OSError):
        for outcome, name in looks:
            reports.send(outcome or name)
        reports.send(None)


def _start(context: SpawnContext, selection: Selection) -> tuple[Connection, _Worker]:
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, selection))
    process.start()
    # only the child keeps its end, so that its death closes the pipe
    theirs.close()
    return ours, _Worker(process)


def _alone(declared: TransferFolder, name: str) -> TransferFolder:
    """The folder as if it held one transfer, with no other's file."""
    files = {name: declared.files[name]} if name in declared.files else {}
    return replace(declared.only(name), files=files)


def _receive(
    pipe: Connection, workers: dict[Connection, _Worker]
) -> Progress | TransferOutcome | None:
    """Receive what a process says; one that died has failed the transfer that it moved."""
    worker = workers[pipe]
    try:
        message: Progress | TransferOutcome = pipe.recv()
    except (EOFError, OSError):
        del workers[pipe]
        pipe.close()
        worker.process.join()
        if worker.transfer is None:
            return None
        line = (
            f"the process ended with exit code {worker.process.exitcode}; run it again, which "
            "moves what it has not committed"
        )
        view = TransferView(worker.transfer, [], False, [line])
        return TransferOutcome(view, time.perf_counter() - worker.began)
    if isinstance(message, TransferOutcome):
        worker.transfer = None
    return message


def _work(pipe: Connection, selection: Selection) -> None:
    """Move the transfers that the parent names, one after the other, until it closes the pipe."""
    become_child()
    if selection.log_level:
        start_logging(selection.log_level)
    sending = threading.Lock()

    def send(message: Progress | TransferOutcome) -> None:
        with sending, suppress(OSError):
            pipe.send(message)

    endpoints, home = Servers(servers()), event_log.home_path()
    instance = event_log.open_to_record()
    try:
        while True:
            declared = pipe.recv()
            (name,) = declared.transfers
            session = Session(lambda: instance, declared, endpoints, home=home)
            send(_move(session, name, selection, send))
    except (EOFError, ConnectionResetError):
        instance.dispose()
    except KeyboardInterrupt:
        sys.exit(1)
