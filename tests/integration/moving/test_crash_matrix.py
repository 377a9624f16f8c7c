"""Commands are killed at every named point, and the next one goes on as if nothing had been."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from tests.integration.conftest import Ferry
from tests.integration.support import homes
from tests.integration.support.crash_bench import CHANGED, RANGES, ROWS_PER_RANGE, bench_of
from tests.integration.support.crashing import (
    Command,
    Row,
    crash,
    reopen,
    rows_of,
    runs_by_status,
    staging_tables,
)

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]

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
# a range that has been through the first hop passes there again
POINTS = [*BEFORE_COMMIT, "between_hops", "after_event"]
WHERE_MODES_DIFFER = ["during_load", "after_load", "inside_finalise", "after_commit", "after_event"]

RUNNING = dg.DagsterRunStatus.STARTED

CHAINS = [
    (
        "direct",
        "replace",
        1,
        [*BEFORE_COMMIT[:-2], "after_marker", *BEFORE_COMMIT[-2:], "inside_event", *AFTER_EVENT],
    ),
    ("chain", "replace", 1, POINTS),
    ("direct", "upsert", 1, WHERE_MODES_DIFFER),
    ("chain", "upsert", 1, WHERE_MODES_DIFFER),
    ("chain", "replace", 2, ["during_load", "after_audit", "inside_finalise", *AFTER_EVENT]),
    (
        "copy",
        "replace",
        1,
        ["during_load", "after_load", "after_audit", "inside_finalise", "after_commit"],
    ),
    ("delta", "replace", 1, [*BEFORE_COMMIT, "after_event"]),
    ("delta", "upsert", 1, ["after_commit"]),
    (
        "delta_sqlserver",
        "replace",
        1,
        ["during_load", "after_load", "inside_finalise", "after_commit"],
    ),
    ("sqlserver_postgres", "replace", 2, ["during_load", "inside_finalise", "after_commit"]),
    ("clickhouse_postgres", "replace", 2, ["during_load", "inside_finalise", "after_commit"]),
]
"""By route and write mode: the hop in which commands die, and the points, in their order."""


@pytest.mark.invariant("I1", "I3", "I4")
@pytest.mark.parametrize(
    ("route", "mode", "hop", "points"),
    CHAINS,
    ids=[f"{route}-{mode}-{hop}" for route, mode, hop, _ in CHAINS],
)
def test_one_command_after_the_other_is_killed(
    ferry: Make,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    route: str,
    mode: str,
    hop: int,
    points: list[str],
) -> None:
    """Each goes on where the one before it died, and dies in the same range, a point later."""
    command, bench = Command(tmp_path), bench_of(ferry, monkeypatch, route, mode)
    one = bench.ferry
    old = rows_of(one, "postgres")
    bench.change()
    new = rows_of(one, "postgres")
    was, is_to_be = by_range(old), by_range(new)
    # one worker takes range after range through all hops, those that are not done yet
    moves = list(itertools.product(CHANGED, range(1, len(bench.systems) + 1)))
    done: list[tuple[str, int]] = []
    for point in points:
        if point == "inside_event" and not homes.stores_groups():
            continue
        ahead = [move for move in moves if move not in done]
        # the first command dies in the second range
        dying = next(move for move in ahead if move[1] == hop and (done or move[0] != CHANGED[0]))
        passed = ahead.index(dying)
        crash(command, one.table, f"{point}:{passed + 1}", "--profile", "safe")
        done += ahead[: passed + (point in AFTER_EVENT)]

        for number, system in enumerate(bench.systems, start=1):
            shown = by_range(rows_of(one, system))
            for rows, *either in zip(shown, was, is_to_be, strict=True):
                assert rows in either, f"{point}: a range is neither old nor new"
            committed = [name for name, of_hop in done if of_hop == number]
            assert bench.commits(system) == dict.fromkeys(committed, 1), point
        dead = [run for run, status in runs_by_status(one).items() if status is RUNNING]
        assert len(dead) == 1, f"{point}: the log cannot know yet that the run is dead"

        reopen(one)
        assert runs_by_status(one)[dead[0]] is dg.DagsterRunStatus.FAILURE, point
        unchecked = [view.range for view in one.plan().ranges if view.reason == "unchecked"]
        assert unchecked == [], f"{point}: a commit and its verdicts are recorded at once"
    again = one.run()
    assert again.good, again.errors
    for system in bench.systems:
        assert rows_of(one, system) == new
        assert staging_tables(one, system) == []
        assert bench.commits(system) == dict.fromkeys(CHANGED, 1), (
            "each changed range was committed once, and no other"
        )
    assert {view.state for view in one.plan().ranges} == {"skip"}


def by_range(rows: list[Row]) -> list[list[Row]]:
    """Rows by the key range that they are in."""
    found: list[list[Row]] = [[] for _ in range(RANGES)]
    for row in rows:
        found[max(int(row[0]) - 1, 0) // ROWS_PER_RANGE].append(row)
    return found
