"""The command is killed at every named point, and the next one goes on as if nothing had been."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
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
}
ROWS_PER_RANGE, RANGES = 200, 4

RUNNING = dg.DagsterRunStatus.STARTED
CHANGED = [
    "..0000000201",
    "0000000201..0000000401",
    "0000000401..0000000601",
    "0000000601..0000000801",
]

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
        if self.mode == "replace":
            statements.append(f"DELETE FROM {{t}} WHERE id % {ROWS_PER_RANGE} = {cell}")
        self.ferry.source(*statements)

    def commits(self) -> dict[str, dict[str, int]]:
        """How often each range was committed, by system."""
        return {
            system: self.ferry.materializations(system, schema)
            for system, schema in self.systems.items()
        }


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
