"""`ferry plan` and `ferry check` of several transfers side by side; a failure stops no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tableferry.assets.running.progress import OnProgress, ignore_progress
from tableferry.pipelines.command.many.fleet import expected, quietly
from tableferry.pipelines.command.many.side_by_side import Queue, error_lines, in_processes
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.shell import report_waiting
from tableferry.pipelines.command.show.range_views import Attempt, View
from tableferry.pipelines.command.show.watching import Watch

if TYPE_CHECKING:
    from tableferry.pipelines.command.show.views import CheckView, PlanView

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
