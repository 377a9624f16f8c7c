"""The command is killed at every named point, and the next one goes on as if nothing had been."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest

from local.stack import Stack
from pipelines.session import open_session
from tests.integration.conftest import Ferry
from tests.integration.crashing import (
    Command,
    Row,
    crash,
    reopen,
    rows_of,
    runs_by_status,
    staging_tables,
)

pytestmark = pytest.mark.integration

BEFORE_COMMIT = [
    "before_export",
    "during_export",
    "after_export",
    "during_load",
    "after_load",
    "inside_finalise",
    "after_commit",
]
AFTER_EVENT = ["after_event", "between_hops"]
POINTS = [*BEFORE_COMMIT, *AFTER_EVENT]

ROUTES = {
    "direct": {"clickhouse": "warehouse"},
    "chain": {"sqlserver": "dbo", "clickhouse": "warehouse"},
    "half": {"sqlserver": "dbo"},
}
ROWS_PER_RANGE, RANGES = 200, 4

RUNNING = dg.DagsterRunStatus.STARTED
CHANGED = [
    "..0000000201",
    "0000000201..0000000401",
    "0000000401..0000000601",
    "0000000601..0000000801",
]

ALL = [*CHANGED, "0000000801.."]
SWAPPED = ["after_swap", "after_event"]
SWAP_POINTS = ["after_load", "inside_finalise", "after_shadowed", "before_swap", "inside_swap"]

# route, write mode, hop in which the second range dies, point
CELLS = [
    *itertools.product(("direct",), ("replace", "upsert"), (1,), POINTS),
    *itertools.product(("chain",), ("replace", "upsert"), (1,), POINTS),
    *itertools.product(
        ("chain",), ("replace",), (2,), ("during_load", "inside_finalise", *AFTER_EVENT)
    ),
]


@dataclass
class Bench:
    """One transfer on one Dagster instance, on which the cells of a route and mode take turns."""

    ferry: Ferry
    mode: str
    systems: dict[str, str]
    cells: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def change(self) -> None:
        """Change every range: rows are updated and added and, where the mode follows, deleted."""
        cell = next(self.cells)
        statements = [
            "UPDATE {t} SET name = name || '.', amount = amount + 1",
            f"INSERT INTO {{t}} VALUES ({-cell}, NULL, 0)",
        ]
        if self.mode != "upsert":
            statements.append(f"DELETE FROM {{t}} WHERE id % {ROWS_PER_RANGE} = {cell}")
        self.ferry.source(*statements)

    def commits(self) -> dict[str, dict[str, int]]:
        """How often each range was committed, by system."""
        return {
            system: self.ferry.materializations(system, schema)
            for system, schema in self.systems.items()
        }

    def moves(self) -> Counter[str]:
        """How often each range was put into the first target, seen or unseen by readers."""
        asset = dg.AssetKey([*next(iter(self.systems.items())), self.ferry.table])
        log = self.ferry.session.instance.fetch_observations(asset, limit=1000).records
        events = [record.asset_observation for record in log]
        return Counter(
            str(event.partition)
            for event in events
            if event is not None and event.tags["tableferry/state"] == "finalised"
        )


Benches = Callable[[str, str], AbstractContextManager[Bench]]


@pytest.fixture(scope="module")
def benches(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benches]:
    """Makes the bench of a route and mode when it is first asked for, and points there."""
    made: dict[tuple[str, str], Bench] = {}
    homes: dict[tuple[str, str], dict[str, str]] = {}

    @contextmanager
    def bench(route: str, mode: str) -> Iterator[Bench]:
        key = (route, mode)
        if key not in homes:
            homes[key] = {
                **stack.environment(),
                "TABLEFERRY_TRANSFERS": str(tmp_path_factory.mktemp("transfers")),
                "DAGSTER_HOME": str(tmp_path_factory.mktemp("dagster")),
            }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in homes[key].items():
                patch.setenv(name, value)
            if key not in made:
                made[key] = make(route, mode, stack, Path(homes[key]["TABLEFERRY_TRANSFERS"]))
            yield made[key]

    yield bench
    for one in made.values():
        one.ferry.session.instance.dispose()
        one.ferry.source("DROP TABLE {t}")


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    made = Command(tmp_path_factory.mktemp("command"))
    yield made
    made.close()


def make(route: str, mode: str, stack: Stack, folder: Path) -> Bench:
    """A transfer whose ranges are all committed."""
    ferry = Ferry(stack, folder, f"crash_{route}_{mode}", open_session())
    ferry.source(
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
        "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 "
        f"FROM generate_series(1, {RANGES * ROWS_PER_RANGE}) g",
    )
    hops = ", ".join(f"'{system}://{schema}.{{t}}'" for system, schema in ROUTES[route].items())
    ferry.declare(f"[{hops}]", ranges=f"{{rows: {ROWS_PER_RANGE}}}", write=mode)
    first = ferry.run()
    assert first.good, first.errors
    return Bench(ferry, mode, ROUTES[route])


@pytest.mark.parametrize(("route", "mode", "hop", "point"), CELLS)
def test_killed_at(
    benches: Benches, command: Command, route: str, mode: str, hop: int, point: str
) -> None:
    with benches(route, mode) as bench:
        dies_at(bench, command, hop, point)


def dies_at(bench: Bench, command: Command, hop: int, point: str) -> None:
    """One cell of the matrix: killed at the point in the second range's hop, then run again."""
    ferry, hops = bench.ferry, len(bench.systems)
    old = rows_of(ferry, "postgres")
    before = bench.commits()
    bench.change()
    new = rows_of(ferry, "postgres")

    # one worker takes range after range through all hops: the second range is to die
    crash(command, ferry.table, f"{point}:{hops + hop}", "--profile", "safe")

    for number, system in enumerate(bench.systems, start=1):
        assert_whole_ranges(rows_of(ferry, system), old, new)
        done = bench.commits()[system]
        passed = number < hop or (number == hop and point in AFTER_EVENT)
        assert sum(done.values()) - sum(before[system].values()) == 1 + passed
    dead = [run for run, status in runs_by_status(ferry).items() if status is RUNNING]
    assert len(dead) == 1, "the log cannot know yet that the run is dead"

    reopen(ferry)
    assert runs_by_status(ferry)[dead[0]] is dg.DagsterRunStatus.FAILURE
    if point == "after_event":
        unchecked = [view.range for view in ferry.plan().ranges if view.reason == "unchecked"]
        assert unchecked == [CHANGED[1]], "its verdicts are still to come"
    again = ferry.run()
    assert again.good, again.errors
    for system in bench.systems:
        assert rows_of(ferry, system) == new
        assert staging_tables(ferry, system) == []
        assert {
            name: count - before[system][name]
            for name, count in bench.commits()[system].items()
            if count != before[system][name]
        } == dict.fromkeys(CHANGED, 1), "each changed range was committed once, and no other"
    assert {view.state for view in ferry.plan().ranges} == {"skip"}


def assert_whole_ranges(shown: list[Row], old: list[Row], new: list[Row]) -> None:
    """Every range is as it was or as it is to be, never a mix and never twice."""

    def by_range(rows: list[Row]) -> dict[int, list[Row]]:
        found: dict[int, list[Row]] = {number: [] for number in range(RANGES)}
        for row in rows:
            found[max(int(row[0]) - 1, 0) // ROWS_PER_RANGE].append(row)
        return found

    was, is_to_be = by_range(old), by_range(new)
    for number, rows in by_range(shown).items():
        assert rows in (was[number], is_to_be[number]), f"range {number} is neither old nor new"


@pytest.mark.parametrize("point", [*SWAP_POINTS, *SWAPPED])
@pytest.mark.parametrize("route", ["direct", "half"])
def test_a_swap_killed_at(benches: Benches, command: Command, route: str, point: str) -> None:
    with benches(route, "swap") as bench:
        ferry, (system,) = bench.ferry, bench.systems
        old = rows_of(ferry, "postgres")
        commits, moves = bench.commits()[system], bench.moves()
        bench.change()
        new = rows_of(ferry, "postgres")

        # of the points that every range passes, the second; a swap is but one
        nth = 1 if point.endswith("_swap") else 2
        crash(command, ferry.table, f"{point}:{nth}", "--profile", "safe")

        swapped = point in SWAPPED or (point == "inside_swap" and system == "clickhouse")
        assert rows_of(ferry, system) == (new if swapped else old), "all at once, or nothing"
        recorded = ["unchanged", "unchecked"] if point == "after_event" else []
        assert len(added(bench.commits()[system], commits)) == len(recorded)

        reopen(ferry)
        reasons = [str(view.reason) for view in ferry.plan().ranges]
        if swapped:
            assert reasons == [*recorded, *["promoted"] * (len(ALL) - len(recorded))]
        again = ferry.run()
        assert again.good, again.errors
        assert rows_of(ferry, system) == new
        assert staging_tables(ferry, system) == []
        assert added(bench.moves(), moves) == dict.fromkeys(ALL, 1), "nothing was moved twice"
        assert added(bench.commits()[system], commits) == dict.fromkeys(ALL, 1)
        assert {view.state for view in ferry.plan().ranges} == {"skip"}


def test_what_a_dead_swap_put_in_place_is_proven_before_it_is_recorded(
    benches: Benches, command: Command
) -> None:
    with benches("direct", "swap") as bench:
        ferry = bench.ferry
        before = bench.commits()
        bench.change()
        crash(command, ferry.table, "after_swap", "--profile", "safe")
        reopen(ferry)
        ferry.session.servers.clickhouse.execute(
            f"ALTER TABLE warehouse.{ferry.table} UPDATE amount = 0 WHERE id = 300 "
            "SETTINGS mutations_sync = 2"
        )
        damaged = ferry.run()
        assert not damaged.good
        assert [view.range for view in damaged.ranges if view.state == "failed"] == [CHANGED[1]]
        assert CHANGED[1] not in added(bench.commits()["clickhouse"], before["clickhouse"])
        again = ferry.run()
        assert again.good, again.errors
        assert rows_of(ferry, "clickhouse") == rows_of(ferry, "postgres")


def added(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """By how much the counts grew, where they did."""
    grown = {name: count - before.get(name, 0) for name, count in now.items()}
    return {name: count for name, count in grown.items() if count}
