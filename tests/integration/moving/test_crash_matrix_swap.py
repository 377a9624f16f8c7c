"""The command is killed at the points of a swap: readers see all ranges change at once, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import Ferry
from tests.integration.support.crash_bench import ALL, CHANGED, Bench, bench_of
from tests.integration.support.crashing import Command, Row, crash, reopen, rows_of, staging_tables

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]

BEFORE = [
    "during_load",
    "before_audit",
    "after_audit",
    "inside_finalise",
    "after_shadowed",
    "before_swap",
]
AFTER = ["after_swap", "after_event"]
ALL_POINTS = [*BEFORE, "inside_swap", *AFTER]


@pytest.mark.invariant("I1", "I4")
@pytest.mark.parametrize(
    ("route", "points"),
    [("direct", ALL_POINTS), ("half", ALL_POINTS), ("copy", ["inside_swap", "after_swap"])],
    ids=["direct", "half", "copy"],
)
def test_one_command_after_the_other_is_killed(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, route: str, points: list[str]
) -> None:
    """Each goes on where the one before it died, until one has swapped; then all changes again."""
    command, bench = Command(tmp_path), bench_of(ferry, monkeypatch, route, "swap")
    one, (system,) = bench.ferry, bench.systems
    settled = True
    for point in points:
        if settled:
            old = rows_of(one, "postgres")
            bench.change()
            new = rows_of(one, "postgres")
        # of the points that every range passes, the second; a swap is but one
        nth = 2 if settled and not point.endswith("_swap") else 1
        crash(command, one.table, f"{point}:{nth}", "--profile", "safe")

        # on SQL Server and PostgreSQL the point is inside of a transaction
        settled = point in AFTER or (point == "inside_swap" and system == "clickhouse")
        shown = rows_of(one, system)
        assert shown == (new if settled else old), f"{point}: all at once, or nothing"
        recorded = ["unchanged", "unchecked"] if point == "after_event" else []
        assert len(bench.commits(system)) == len(recorded), point

        reopen(one)
        if settled:
            reasons = [str(view.reason) for view in one.plan().ranges]
            assert reasons == [*recorded, *["promoted"] * (len(ALL) - len(recorded))], point
            settle(bench, new)


def settle(bench: Bench, new: list[Row]) -> None:
    """Run what is left of a swap."""
    one, (system,) = bench.ferry, bench.systems
    again = one.run()
    assert again.good, again.errors
    assert rows_of(one, system) == new
    assert staging_tables(one, system) == []
    assert bench.moves() == dict.fromkeys(ALL, 1), "nothing was moved twice"
    assert bench.commits(system) == dict.fromkeys(ALL, 1)
    assert {view.state for view in one.plan().ranges} == {"skip"}


@pytest.mark.invariant("I3")
def test_what_a_dead_swap_put_in_place_is_proven_before_it_is_recorded(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command, bench = Command(tmp_path), bench_of(ferry, monkeypatch, "direct", "swap")
    one = bench.ferry
    bench.change()
    crash(command, one.table, "after_swap", "--profile", "safe")
    reopen(one)
    one.session.servers.endpoints["clickhouse"].execute(
        f"ALTER TABLE warehouse.{one.table} UPDATE amount = 0 WHERE id = 300 "
        "SETTINGS mutations_sync = 2"
    )
    damaged = one.run()
    assert not damaged.good
    assert [view.range for view in damaged.ranges if view.state == "failed"] == [CHANGED[1]]
    assert CHANGED[1] not in bench.commits("clickhouse")
    again = one.run()
    assert again.good, again.errors
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
