"""The command is killed at the points of a swap: readers see all ranges change at once, or none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.integration.support.crash_bench import ALL, CHANGED, Benches
from tests.integration.support.crashing import crash, reopen, rows_of, staging_tables
from tests.servers import Servers

pytestmark = pytest.mark.integration

BEFORE = [
    "during_load",
    "before_audit",
    "after_audit",
    "inside_finalise",
    "after_shadowed",
    "before_swap",
]
AFTER = ["after_swap", "after_event"]


@pytest.fixture(scope="module")
def benches(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benches]:
    made = Benches(stack, tmp_path_factory)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("route", "point"),
    [
        *itertools.product(("direct", "half"), (*BEFORE, "inside_swap", *AFTER)),
        *itertools.product(("copy",), ("inside_swap", "after_swap")),
    ],
)
def test_a_swap_killed_at(benches: Benches, route: str, point: str) -> None:
    with benches.of(route, "swap") as bench:
        ferry, (system,) = bench.ferry, bench.systems
        old = rows_of(ferry, "postgres")
        bench.change()
        new = rows_of(ferry, "postgres")

        # of the points that every range passes, the second; a swap is but one
        nth = 1 if point.endswith("_swap") else 2
        crash(benches.command, ferry.table, f"{point}:{nth}", "--profile", "safe")

        # on SQL Server the point is inside of a transaction
        swapped = point in AFTER or (point == "inside_swap" and system == "clickhouse")
        assert rows_of(ferry, system) == (new if swapped else old), "all at once, or nothing"
        recorded = ["unchanged", "unchecked"] if point == "after_event" else []
        assert len(bench.commits(system)) == len(recorded)

        reopen(ferry)
        reasons = [str(view.reason) for view in ferry.plan().ranges]
        if swapped:
            assert reasons == [*recorded, *["promoted"] * (len(ALL) - len(recorded))]
        again = ferry.run()
        assert again.good, again.errors
        assert rows_of(ferry, system) == new
        assert staging_tables(ferry, system) == []
        assert bench.moves() == dict.fromkeys(ALL, 1), "nothing was moved twice"
        assert bench.commits(system) == dict.fromkeys(ALL, 1)
        assert {view.state for view in ferry.plan().ranges} == {"skip"}


def test_what_a_dead_swap_put_in_place_is_proven_before_it_is_recorded(benches: Benches) -> None:
    with benches.of("direct", "swap") as bench:
        ferry = bench.ferry
        bench.change()
        crash(benches.command, ferry.table, "after_swap", "--profile", "safe")
        reopen(ferry)
        ferry.session.servers.endpoints["clickhouse"].execute(
            f"ALTER TABLE warehouse.{ferry.table} UPDATE amount = 0 WHERE id = 300 "
            "SETTINGS mutations_sync = 2"
        )
        damaged = ferry.run()
        assert not damaged.good
        assert [view.range for view in damaged.ranges if view.state == "failed"] == [CHANGED[1]]
        assert CHANGED[1] not in bench.commits("clickhouse")
        again = ferry.run()
        assert again.good, again.errors
        assert rows_of(ferry, "clickhouse") == rows_of(ferry, "postgres")
