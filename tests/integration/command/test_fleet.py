"""`ferry run --all`: transfers side by side, in processes that may die, and the next run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from tableferry.assets.running.progress import Progress
from tableferry.pipelines.command.fleet import Selection, run_fleet
from tableferry.pipelines.command.several import TransferOutcome
from tableferry.pipelines.command.watching import Watch
from tests.integration.conftest import Ferry
from tests.integration.support import ferry_process
from tests.integration.support.crashing import Command, ask_clickhouse, reopen

pytestmark = pytest.mark.integration

TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
    "INSERT INTO {t} SELECT g, 'name ' || g FROM generate_series(1, 100) g",
)
COPIES = 6


@pytest.fixture
def fleet(ferry: Callable[..., Ferry]) -> Ferry:
    """Transfers `a` to `f` of one table, and one whose source does not exist."""
    moves = ferry("['clickhouse://warehouse.{t}']", *TABLE)
    (moves.folder / "t.yaml").unlink()
    for name in [*names(), "broken"]:
        source = "not_there" if name == "broken" else moves.table
        (moves.folder / f"{name}.yaml").write_text(
            f"transfer: {name}\nsource: postgres://public.{source}\nkey: id\n"
            f"hops: ['clickhouse://warehouse.{moves.table}_{name}']\n"
        )
    reopen(moves)
    return moves


def names() -> list[str]:
    return [chr(ord("a") + number) for number in range(COPIES)]


def commits(fleet: Ferry) -> Counter[tuple[str, str | None]]:
    """How often each range of each transfer was committed."""
    counts: Counter[tuple[str, str | None]] = Counter()
    for name in names():
        key = dg.AssetKey(["clickhouse", "warehouse", f"{fleet.table}_{name}"])
        for record in fleet.session.instance.fetch_materializations(key, limit=100).records:
            event = record.asset_materialization
            if event is not None and event.metadata["tableferry/state"].value == "committed":
                counts[name, event.partition] += 1
    return counts


def test_a_killed_fleet_goes_on_where_it_stopped(fleet: Ferry, tmp_path: Path) -> None:
    command = Command(tmp_path)
    began = time.monotonic()
    pid = command.start("run", "--all", "--jobs", "2")
    while "2 of 7: " not in command.output:
        assert command.running and time.monotonic() - began < 120, command.output
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    assert command.wait() == -signal.SIGKILL
    finished = [line.split(": ")[1] for line in command.output.splitlines() if ": ok, " in line]
    assert command.run("run", "--all", "--jobs", "2") == 1
    lines = command.output.splitlines()
    assert "ferry: broken: postgres://public.not_there does not exist" in lines
    assert any(line.startswith("6 of 7 transfers succeeded") for line in lines), command.output
    for name in finished:
        assert any(f" {name}: ok, nothing to move" in line for line in lines) or name == "broken"
    for name in names():
        figures = f"SELECT count(), sum(id) FROM warehouse.{fleet.table}_{name}"
        assert ask_clickhouse(fleet, figures) == [(100, 5050)]
    reopen(fleet)
    assert set(commits(fleet).values()) == {1}, "what was committed is not moved again"


class Killer(Watch):
    """Kills the process that moves the first transfer, when it begins to."""

    def __init__(self) -> None:
        self.killed: str | None = None

    def progress(self, event: Progress) -> None:
        if self.killed is None and event.range:
            self.killed = event.transfer
            (child,) = multiprocessing.active_children()
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)


def test_a_process_that_dies_fails_its_transfer_alone(
    fleet: Ferry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: ferry_process.forking)
    watch = Killer()

    def run(watch: Watch, *transfers: str) -> dict[str, TransferOutcome]:
        outcomes = run_fleet(fleet.session, transfers, Selection(), watch, 2)
        return {outcome.view.transfer: outcome for outcome in outcomes}

    first = run(watch, "a", "b", "broken")
    assert watch.killed in ("a", "b")
    assert {name for name, outcome in first.items() if outcome.view.good} == (
        {"a", "b"} - {watch.killed}
    )
    assert "ended with exit code -9; run it again" in first[watch.killed].view.errors[0]
    assert "not_there does not exist" in first["broken"].view.errors[0]
    again = run(Watch(), "a", "b")
    assert all(outcome.view.good for outcome in again.values())
    moved = {name for name, outcome in again.items() if outcome.rows}
    assert moved <= {watch.killed}
