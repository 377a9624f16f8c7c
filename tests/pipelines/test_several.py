"""The summary of several transfers."""

from __future__ import annotations

import io

from rich.console import Console

from tableferry.assets.judging import ProofState, RangeJudgement
from tableferry.assets.log.states import State
from tableferry.pipelines.command.show.fleet_views import show_summary
from tableferry.pipelines.command.show.range_views import RangeView, TransferOutcome, TransferView


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
    out = Console(file=io.StringIO(), width=100)
    show_summary(out, [outcome])
    printed = out.file
    assert isinstance(printed, io.StringIO)
    lines = [line.split() for line in printed.getvalue().splitlines()]
    assert lines[1][:5] == ["t", "FAILED", "0", "1", "1"]
    assert printed.getvalue().splitlines()[-1] == "0 of 1 transfer succeeded; 0 rows moved"
