"""What is shown of a run while it goes on."""

from __future__ import annotations

import time

import pytest

from tableferry.assets.running.progress import Progress
from tableferry.pipelines.command.show.range_views import TransferOutcome, TransferView
from tableferry.pipelines.command.show.watching import (
    RangeLines,
    Tally,
    TransferLines,
    clock,
    fitted,
    fleet_lines,
    transfer_line,
)


def outcome(name: str, *errors: str) -> TransferOutcome:
    return TransferOutcome(TransferView(name, [], not errors, [*errors]), 1.5)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_line_keeps_name_and_time_and_never_wraps(width: int) -> None:
    tally = Tally(began=time.monotonic() - 75)
    tally.progress(Progress("orders", "", "", "planned", total=8))
    tally.progress(Progress("orders", "t", "r", "committed", rows=2_000_000))
    name = "a_table_with_a_name_that_is_much_longer_than_any_terminal_" * 4
    for shown in ("orders", name):
        line = transfer_line(shown, tally, width).plain
        assert len(line) <= width
        assert "1:15, about 8:45 left" in line
        assert line.startswith(shown[:12])


def test_the_fleet_is_counted_and_its_end_estimated_by_what_is_expected() -> None:
    tally = Tally(began=time.monotonic() - 30)
    tally.expect({"large": 90.0, "small": 10.0, "broken": 50.0})
    for name in tally.expected:
        tally.started(name)
    tally.finished(outcome("broken", "it is not there"))
    tally.finished(outcome("small"))
    head, running = (line.plain for line in fleet_lines(tally, 100))
    for part in ("2/3 tables", "1 failed", "1 running", "0 waiting"):
        assert part in head
    # 60 of 150 expected seconds are done
    assert "about 0:45 left" in head
    assert running.startswith("  large")


def test_lines_for_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    lines = TransferLines()
    lines.expect({"orders": 1.0, "broken": 1.0})
    lines.finished(outcome("orders"))
    lines.finished(outcome("broken", "it is\nnot there"))
    ranges = RangeLines()
    ranges.progress(Progress("orders", "", "", "planned", total=2))
    ranges.progress(Progress("orders", "clickhouse://w.orders", "1..9", "export", rows=8))
    ranges.progress(Progress("orders", "clickhouse://w.orders", "1..9", "committed"))
    assert capsys.readouterr().err.splitlines() == [
        "1 of 2: orders: ok, nothing to move, 1.5 s",
        "2 of 2: broken: FAILED after 1.5 s: it is\\nnot there",
        "orders: 1 of 2: 1..9 -> clickhouse://w.orders committed, 8 rows so far, 0:00",
    ]


def test_parts_that_do_not_fit_are_left_out_and_times_have_hours() -> None:
    assert fitted(["name", "0:10", "1/2", "", "much too long to fit", "100"], 24) == (
        "name  0:10  1/2  100"
    )
    assert [clock(seconds) for seconds in (5.4, 75, 3_725)] == ["0:05", "1:15", "1:02:05"]
