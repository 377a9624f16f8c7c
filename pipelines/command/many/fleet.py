"""Runs, plans and checks several transfers side by side: in threads, or in processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log import queries
from tableferry.assets.log.queries import Log
from tableferry.assets.log.runs import seconds_of_last_runs
from tableferry.assets.planning.servers import Servers
from tableferry.assets.running.progress import OnProgress, Progress, ignore_progress
from tableferry.pipelines.command.many.side_by_side import Queue, error_lines, in_processes
from tableferry.pipelines.command.one import running
from tableferry.pipelines.command.one.finding import Selection
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.shell import report_waiting, say
from tableferry.pipelines.command.show.range_views import (
    Attempt,
    TransferOutcome,
    TransferView,
    View,
)
from tableferry.pipelines.command.show.watching import Watch
from tableferry.resources.contract.catalog import TableSize
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import TableferryError
from tableferry.resources.tables import TableRef

if TYPE_CHECKING:
    from tableferry.pipelines.command.show.views import CheckView, PlanView


LOOKING = 4
"""Transfers that are compared with the event log at a time; that is mostly waiting for servers."""

SECONDS_PER_HOP = 0.3
"""What a table takes that is empty."""
ROWS_PER_SECOND = 150_000
BYTES_PER_SECOND = 20_000_000
"""About what one process moves and proves; the greater of the two estimates is taken."""


@dataclass(frozen=True)
class _FileSession(Session):
    """A session that reads the event log's files, though runs of its own command are active."""

    def _files(self) -> AbstractContextManager[Log | None]:
        assert self.home is not None
        return queries.opened(self.home)


@dataclass(frozen=True)
class _Moving:
    """The work of `run`, for `in_processes`."""

    selection: Selection

    @property
    def log_level(self) -> str | None:
        return self.selection.log_level

    def __call__(self, session: Session, name: str, on_progress: OnProgress) -> TransferOutcome:
        began = time.perf_counter()
        try:
            if blocking := running.blocking_runs(session, name, moves=True):
                runs = ", ".join(run[:8] for run in blocking)
                on_progress(Progress(name, "", "", f"waiting for run {runs} to end"))
            view = running.run_selected(session, name, self.selection, on_progress, say)
        except Exception as error:
            view = TransferView(name, [], False, error_lines(error))
        return TransferOutcome(view, time.perf_counter() - began)

    def died(self, name: str, reason: str, seconds: float) -> TransferOutcome:
        line = f"{reason}; run it again, which moves what it has not committed"
        return TransferOutcome(TransferView(name, [], False, [line]), seconds)


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
    reading, past = quietly(session), _past_seconds(session, names)
    seconds = _expected(session, names, past, anew=selection.force or selection.recreate)
    watch.expect(seconds)
    queue, work = Queue(seconds), _Moving(selection)
    # a transfer that has never run has something to do, and a consistent set is recorded anew
    looked_at = not selection.looks_at_all
    known = [name for name in names if name in past and looked_at]
    for name in names:
        if name not in known:
            queue.put(name)
    looks = _looks(reading, known, selection)
    if jobs == 1 or session.resources is not None:
        # servers that code has passed in exist in this process only
        for outcome, name in looks:
            if outcome is None:
                queue.put(name)
            else:
                _record(session, outcome)
                watch.finished(outcome)
                yield outcome
        while queue and may_start():
            name = queue.take()
            watch.started(name)
            outcome = work(session, name, watch.progress)
            watch.finished(outcome)
            yield outcome
        return
    for outcome in in_processes(
        session, work, queue, jobs, watch=watch, settled=looks, may_start=may_start
    ):
        _record(session, outcome)
        watch.finished(outcome)
        yield outcome


def _record(session: Session, outcome: TransferOutcome) -> None:
    """Record that a transfer was refused by a look, which is no run."""
    if outcome.refused is not None:
        running.record_refusal(session, outcome.view.transfer, None, outcome.refused)


def quietly(session: Session) -> Session:
    """Return a session for many threads, which reads the event log's files if no run is active."""
    if session.quiet and session.resources is None:
        home = session.home
        return _FileSession(session.open_instance, session.declared, session.servers, home=home)
    _ = session.instance  # opened before several threads ask for it
    return session


def expected(session: Session, names: Sequence[str], *, anew: bool) -> dict[str, float]:
    """Return how many seconds each transfer is expected to take.

    Args:
        session: the session of the command.
        names: the transfers.
        anew: whether all rows are read, also those that last runs have found unchanged.
    """
    return _expected(session, names, _past_seconds(session, names), anew=anew)


def _past_seconds(session: Session, names: Sequence[str]) -> dict[str, float | None]:
    targets = {name: session.transfer(name).hops[-1].to for name in names}
    return session.ask_log(lambda log: seconds_of_last_runs(log, targets))


def _expected(
    session: Session, names: Sequence[str], past: Mapping[str, float | None], *, anew: bool
) -> dict[str, float]:
    transfers = [session.transfer(name) for name in names]
    sized = [item.source for item in transfers if anew or past.get(item.transfer) is None]
    return expected_seconds(transfers, past, sizes_of(sized, session.servers))


def expected_seconds(
    transfers: Collection[Transfer],
    past: Mapping[str, float | None],
    sizes: Mapping[TableRef, TableSize],
) -> dict[str, float]:
    """Return how long each transfer is expected to take, by its name.

    That is as long as its last run took, or as the size of its source suggests, whichever is
    longer. A transfer of which neither is known is expected to take as long as the median of the
    others, so that it begins neither first nor last.

    Args:
        transfers: the transfers.
        past: the seconds of their last runs; None where a run has not ended.
        sizes: the sizes of their sources, as far as they are known and matter.
    """
    seconds: dict[str, float] = {}
    for transfer in transfers:
        taken, size = past.get(transfer.transfer), sizes.get(transfer.source)
        estimates = [] if taken is None else [taken]
        if size is not None:
            estimates.append(seconds_of(size, len(transfer.hops)))
        if estimates:
            seconds[transfer.transfer] = max(estimates)
    usual = median(seconds.values()) if seconds else 1.0
    return {item.transfer: seconds.get(item.transfer, usual) for item in transfers}


def seconds_of(size: TableSize, hops: int) -> float:
    """Estimate how long the first load of a table takes."""
    moving = max(size.rows / ROWS_PER_SECOND, (size.bytes or 0) / BYTES_PER_SECOND)
    return hops * (SECONDS_PER_HOP + moving)


def sizes_of(tables: Collection[TableRef], servers: Servers) -> dict[TableRef, TableSize]:
    """Return the sizes of tables in the catalogs of their servers, as far as these know them."""
    by_connection: dict[str, list[TableRef]] = {}
    for table in dict.fromkeys(tables):
        by_connection.setdefault(table.connection, []).append(table)
    sizes: dict[TableRef, TableSize] = {}
    for group in by_connection.values():
        try:
            sizes |= source_of(group[0].system).sizes(servers.endpoint(group[0]), group)
        except TableferryError:
            # the transfers themselves will say what is wrong with their server
            continue
    return sizes


def _looks(
    session: Session, names: Sequence[str], selection: Selection
) -> Iterator[tuple[TransferOutcome | None, str]]:
    """Look which transfers have nothing to do, side by side, a batch at a time.

    The catalogs are read about all tables of a batch at once. A table about which they say
    something else when its batch ends may have changed before or after its turn, and counts as one
    that has something to do. What has something to do waits for no other look.

    Yields:
        The outcome of each that has nothing to do or cannot be planned, else None; and its name.
    """
    batches = [*session.looks(names)]
    left = [len(batch) for batch, _ in batches]
    outcomes: dict[str, TransferOutcome] = {}
    executor = ThreadPoolExecutor(LOOKING, "look")
    try:
        pending = {
            executor.submit(_look, ahead, name, selection): (number, name)
            for number, (batch, ahead) in enumerate(batches)
            for name in batch
        }
        for future in as_completed(pending):
            number, name = pending[future]
            outcome = future.result()
            if outcome is None:
                yield None, name
            else:
                outcomes[name] = outcome
            left[number] -= 1
            if not left[number]:
                batch, ahead = batches[number]
                changed = ahead.servers.changed()
                for name in batch:
                    if name in outcomes:
                        unsure = changed.intersection(session.transfer(name).tables)
                        yield None if unsure else outcomes[name], name
    finally:
        executor.shutdown(cancel_futures=True)


def _look(session: Session, name: str, selection: Selection) -> TransferOutcome | None:
    began = time.perf_counter()
    try:
        view = running.view_if_unchanged(session, name, selection)
    except Exception as error:
        failed = TransferView(name, [], False, error_lines(error))
        return TransferOutcome(failed, time.perf_counter() - began, error)
    return None if view is None else TransferOutcome(view, time.perf_counter() - began)


PLANNED_AT_A_TIME = 4
"""Transfers that are planned at a time, by default."""


@dataclass(frozen=True)
class _Checking:
    """The work of `check`, for `in_processes`."""

    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def log_level(self) -> str | None:
        level: str | None = self.options.get("log_level")
        return level

    def __call__(self, session: Session, name: str, on_progress: OnProgress) -> Attempt[CheckView]:
        from tableferry.pipelines.command.one import runner

        def check() -> CheckView:
            report_waiting(runner.blocking_runs(session, name))
            return runner.check(session, name, **self.options)

        return _attempt(name, check, lambda view: view.errors)

    def died(self, name: str, reason: str, seconds: float) -> Attempt[CheckView]:
        return Attempt(name, None, [f"{reason}; check it again"], seconds)


def check_each(
    session: Session, names: Sequence[str], jobs: int, options: Mapping[str, Any]
) -> list[Attempt[CheckView]]:
    """Check the transfers, each in one of several processes, the longest first.

    Args:
        session: the session of the command.
        names: the transfers.
        jobs: how many are checked at a time; 1: all in this process.
        options: the keyword arguments of `runner.check`.
    """
    work = _Checking(options)
    # servers that code has passed in exist in this process only
    if jobs == 1 or session.resources is not None:
        return [work(session, name, ignore_progress) for name in names]
    queue = Queue(expected(session, names, anew=True))
    for name in names:
        queue.put(name)
    done = in_processes(session, work, queue, jobs, watch=Watch())
    by_name = {attempt.transfer: attempt for attempt in done}
    return [by_name[name] for name in names]


def plan_each(
    session: Session, names: Sequence[str], jobs: int, *, force: bool
) -> list[Attempt[PlanView]]:
    """Plan the transfers, several at a time: that is mostly waiting for servers."""
    from tableferry.pipelines.command.one import runner

    reading = quietly(session)
    ahead = {name: looking for batch, looking in reading.looks(names) for name in batch}

    def plan(name: str) -> PlanView:
        return runner.plan(ahead[name], name, force=force)

    return in_threads(names, jobs, plan, lambda view: view.errors)


def in_threads(
    names: Sequence[str],
    jobs: int,
    command: Callable[[str], View],
    errors: Callable[[View], Sequence[str]] = lambda view: (),
) -> list[Attempt[View]]:
    """Do something with several transfers at a time that is mostly waiting for servers."""

    def attempt(name: str) -> Attempt[View]:
        return _attempt(name, lambda: command(name), errors)

    executor = ThreadPoolExecutor(jobs, "transfer")
    try:
        return list(executor.map(attempt, names))
    finally:
        executor.shutdown(cancel_futures=True)


def _attempt(
    name: str, command: Callable[[], View], errors: Callable[[View], Sequence[str]]
) -> Attempt[View]:
    began = time.perf_counter()
    view: View | None = None
    try:
        view = command()
        lines = errors(view)
    except Exception as error:
        lines = error_lines(error)
    return Attempt(name, view, lines, time.perf_counter() - began)
