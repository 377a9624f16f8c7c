"""The command is killed at every named point, and the next one goes on as if nothing had been."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import dagster as dg
import pytest

from tests.integration.support.crash_bench import CHANGED, RANGES, ROWS_PER_RANGE, Benches
from tests.integration.support.crashing import (
    Row,
    crash,
    reopen,
    rows_of,
    runs_by_status,
    staging_tables,
)
from tests.servers import Servers

pytestmark = pytest.mark.integration

BEFORE_COMMIT = [
    "before_export",
    "during_export",
    "after_export",
    "during_load",
    "after_load",
    "before_audit",
    "after_audit",
    "inside_finalise",
    "after_commit",
]
AFTER_EVENT = ["after_event", "between_hops"]
POINTS = [*BEFORE_COMMIT, *AFTER_EVENT]
IN_LATER_HOP = ["during_load", "after_audit", "inside_finalise", *AFTER_EVENT]
WHERE_MODES_DIFFER = ["during_load", "after_load", "inside_finalise", "after_commit", "after_event"]

RUNNING = dg.DagsterRunStatus.STARTED

# route, write mode, hop in which the second range dies, point
CELLS = [
    ("direct", "replace", 1, "inside_event"),
    ("direct", "replace", 1, "after_marker"),
    *itertools.product(("direct", "chain"), ("replace",), (1,), POINTS),
    *itertools.product(("direct", "chain"), ("upsert",), (1,), WHERE_MODES_DIFFER),
    *itertools.product(("chain",), ("replace",), (2,), IN_LATER_HOP),
    *itertools.product(
        ("copy",),
        ("replace",),
        (1,),
        ("during_load", "after_load", "after_audit", "inside_finalise", "after_commit"),
    ),
    *itertools.product(("delta",), ("replace",), (1,), (*BEFORE_COMMIT, "after_event")),
    ("delta", "upsert", 1, "after_commit"),
    *itertools.product(
        ("delta_sqlserver",),
        ("replace",),
        (1,),
        ("during_load", "after_load", "inside_finalise", "after_commit"),
    ),
    *itertools.product(
        ("sqlserver_postgres", "clickhouse_postgres"),
        ("replace",),
        (2,),
        ("during_load", "inside_finalise", "after_commit"),
    ),
]


@pytest.fixture(scope="module")
def benches(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benches]:
    made = Benches(stack, tmp_path_factory)
    yield made
    made.close()


@pytest.mark.parametrize(("route", "mode", "hop", "point"), CELLS)
def test_killed_at(benches: Benches, route: str, mode: str, hop: int, point: str) -> None:
    with benches.of(route, mode) as bench:
        ferry, hops = bench.ferry, len(bench.systems)
        old = rows_of(ferry, "postgres")
        bench.change()
        new = rows_of(ferry, "postgres")

        # one worker takes range after range through all hops: the second range is to die
        crash(benches.command, ferry.table, f"{point}:{hops + hop}", "--profile", "safe")

        for number, system in enumerate(bench.systems, start=1):
            was, is_to_be = by_range(old), by_range(new)
            for shown, *either in zip(by_range(rows_of(ferry, system)), was, is_to_be, strict=True):
                assert shown in either, "a range is neither old nor new"
            passed = number < hop or (number == hop and point in AFTER_EVENT)
            assert bench.commits(system) == dict.fromkeys(CHANGED[: 1 + passed], 1)
        dead = [run for run, status in runs_by_status(ferry).items() if status is RUNNING]
        assert len(dead) == 1, "the log cannot know yet that the run is dead"

        reopen(ferry)
        assert runs_by_status(ferry)[dead[0]] is dg.DagsterRunStatus.FAILURE
        unchecked = [view.range for view in ferry.plan().ranges if view.reason == "unchecked"]
        assert unchecked == [], "a commit and its verdicts are recorded at once"
        again = ferry.run()
        assert again.good, again.errors
        for system in bench.systems:
            assert rows_of(ferry, system) == new
            assert staging_tables(ferry, system) == []
            assert bench.commits(system) == dict.fromkeys(CHANGED, 1), (
                "each changed range was committed once, and no other"
            )
        assert {view.state for view in ferry.plan().ranges} == {"skip"}


def by_range(rows: list[Row]) -> list[list[Row]]:
    """Rows by the key range that they are in."""
    found: list[list[Row]] = [[] for _ in range(RANGES)]
    for row in rows:
        found[max(int(row[0]) - 1, 0) // ROWS_PER_RANGE].append(row)
    return found
