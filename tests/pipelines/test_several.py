"""The summary of several transfers."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

from tableferry.assets.judging import ProofState, RangeJudgement
from tableferry.assets.log.states import Reason, State
from tableferry.assets.planning.rows.decisions import Decision
from tableferry.pipelines.command.show.fleet_views import show_plans, show_summary
from tableferry.pipelines.command.show.range_views import (
    Attempt,
    RangeView,
    TransferOutcome,
    TransferView,
)
from tableferry.pipelines.command.show.views import PlannedRange, PlanView


def test_rows_of_a_range_count_once_whatever_the_hops() -> None:
    views = [
        RangeView(
            name, State.COMMITTED, hop=hop, target="", rows=rows, rows_moved=moved, run_id="now"
        )
        for hop, moved in ((1, 7), (2, 5))
        for name, rows in (("a", 10), ("b", 20))
    ]
    view = TransferView("t", views, run_ids=["now"])
    assert TransferOutcome(view, 1.0).rows == 14


def test_ranges_that_an_earlier_command_has_committed_were_not_moved() -> None:
    """A run that fails before its first range leaves all of them as they were."""
    failed = RangeJudgement(ProofState.FAILED, ("failed: no",))
    views = [
        RangeView("a", State.COMMITTED, hop=1, target="", rows=10, run_id="before"),
        RangeView("b", State.SKIPPED_UNCHANGED, hop=1, target="", rows=10, run_id="before"),
        RangeView(
            "c", State.FAILED, hop=1, target="", run_id="before", error="no", judgement=failed
        ),
    ]
    outcome = TransferOutcome(TransferView("t", views, False, ["drift"], ["now"]), 1.0)
    assert (outcome.moved, outcome.rows) == ([], 0)
    *_, line, total = _printed(lambda out: show_summary(out, [outcome]))
    assert line.split()[:5] == ["t", "FAILED", "0", "1", "1"]
    assert total == "0 of 1 transfer succeeded; 0 rows moved"


def test_of_transfers_that_have_not_ended_there_is_no_table() -> None:
    assert _printed(lambda out: show_summary(out, [])) == []


def test_plan_and_run_count_a_range_once_whatever_the_hops() -> None:
    planned = [
        PlannedRange(hop, "", name, Decision(reason), rows=10)
        for name, first, second in (
            ("a", Reason.MISSING, Reason.MISSING),
            ("b", Reason.UNCHANGED, Reason.ROW_COUNT_DIFFERS),
            ("c", Reason.UNCHANGED, Reason.UNCHANGED),
        )
        for hop, reason in ((1, first), (2, second))
    ]
    plan = Attempt("t", PlanView("t", planned, []), [], 1.0)
    *_, line, total = _printed(lambda out: show_plans(out, [plan]))
    assert line.split()[1:6] == ["ok", "2", "0", "1", "20"]
    assert line.endswith("1 missing, 1 row_count_differs")
    assert total == "1 of 1 transfer would move rows"

    moved, skipped = State.COMMITTED, State.SKIPPED_UNCHANGED
    views = [
        RangeView(name, state, hop=hop, target="", rows=10, run_id="now")
        for name, *states in (("a", moved, moved), ("b", skipped, moved), ("c", skipped, skipped))
        for hop, state in enumerate(states, 1)
    ]
    outcome = TransferOutcome(TransferView("t", views, run_ids=["now"]), 1.0)
    *_, line, total = _printed(lambda out: show_summary(out, [outcome]))
    assert line.split()[1:6] == ["ok", "2", "1", "0", "20"]


def _printed(show: Callable[[Console], None]) -> list[str]:
    out = io.StringIO()
    show(Console(file=out, width=100))
    return [line.rstrip() for line in out.getvalue().splitlines()]
