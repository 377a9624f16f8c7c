"""Why a run failed, in the words of a command."""

from __future__ import annotations

import dagster as dg
import pytest
from dagster._core.execution import api

from tableferry.pipelines.command.one.launching import failures


def test_an_error_without_a_message_has_its_name() -> None:
    @dg.op
    def move() -> None:
        raise MemoryError

    @dg.job
    def run() -> None:
        move()

    assert failures(run.execute_in_process(raise_on_error=False)) == ["MemoryError"]


def test_who_interrupts_a_run_is_told_how_it_goes_on() -> None:
    @dg.op
    def move() -> None:
        raise dg.DagsterExecutionInterruptedError

    @dg.job
    def run() -> None:
        move()

    (line,) = failures(run.execute_in_process(raise_on_error=False))
    assert line == "interrupted; what is committed stays, and the next run goes on from there"


def test_what_stopped_a_run_before_its_first_range_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(30, "Read-only file system", "/home/ferry/.dagster")

    @dg.op
    def move() -> None: ...

    @dg.job
    def run() -> None:
        move()

    monkeypatch.setattr(api, "log_dagster_event", refused)
    (line,) = failures(run.execute_in_process(raise_on_error=False))
    assert line == "OSError: [Errno 30] Read-only file system: '/home/ferry/.dagster'"
