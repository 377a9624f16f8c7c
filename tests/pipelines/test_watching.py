"""What is shown of a run while it goes on."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

import pytest

from tableferry.assets.running.progress import Progress
from tableferry.pipelines.command.shell import say
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
    tally.finished(outcome("small"))
    assert tally.left() is None, "10 of 150 say nothing of those under way"
    tally.finished(outcome("broken", "it is not there"))
    head, running = (line.plain for line in fleet_lines(tally, 100))
    for part in ("2/3 tables", "1 failed", "1 running", "0 waiting"):
        assert part in head
    # 60 of 150 expected seconds are done
    assert "about 0:45 left" in head
    assert running.startswith("  large")


def test_transfers_that_took_no_time_are_counted() -> None:
    tally = Tally(began=time.monotonic() - 30)
    tally.expect({"one": 0.0, "other": 0.0})
    tally.finished(outcome("one"))
    (head,) = (line.plain for line in fleet_lines(tally, 100))
    assert "about 0:30 left" in head


def test_nobody_has_to_read_along(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stderr = os.fdopen(writer, "w", buffering=1)
    monkeypatch.setattr(sys, "stderr", stderr)
    lines = RangeLines()
    lines.progress(Progress("orders", "t", "r", "committed", rows=20))
    lines.finished(outcome("orders"))
    say("a note")
    assert lines.rows == 20
    with suppress(BrokenPipeError):
        stderr.close()


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
        "orders: 1 of 2: 1..9 -> clickhouse://w.orders committed, 8 rows (8 so far), 0:00",
    ]


def test_rows_of_a_chain_are_counted_once_and_each_range_shows_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = RangeLines()
    lines.started("orders")
    lines.progress(Progress("orders", "", "", "planned", total=4))
    for target in ("sqlserver://dbo.orders", "clickhouse://w.orders"):
        for range_, batches in (("1..9", (5, 4)), ("10..19", ())):
            for rows in batches:
                lines.progress(Progress("orders", target, range_, "load", rows=rows))
            lines.progress(Progress("orders", target, range_, "committed"))
    assert [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "1 of 4: 1..9 -> sqlserver://dbo.orders committed, 9 rows (9 so far), 0:00",
        "2 of 4: 10..19 -> sqlserver://dbo.orders committed, 0 rows (9 so far), 0:00",
        "3 of 4: 1..9 -> clickhouse://w.orders committed, 9 rows (9 so far), 0:00",
        "4 of 4: 10..19 -> clickhouse://w.orders committed, 0 rows (9 so far), 0:00",
    ]
    head, running = (line.plain for line in fleet_lines(lines, 100))
    assert "9 rows" in head and "9 rows" in running


def test_parts_that_do_not_fit_are_left_out_and_times_have_hours() -> None:
    assert fitted(["name", "0:10", "1/2", "", "much too long to fit", "100"], 24) == (
        "name  0:10  1/2  100"
    )
    assert [clock(seconds) for seconds in (5.4, 75, 3_725)] == ["0:05", "1:15", "1:02:05"]
