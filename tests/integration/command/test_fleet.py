"""Transfers side by side, in processes that may die; test_fleet_of_200.py kills them all."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from tableferry.assets.log.runs import COMPLETE
from tableferry.assets.running.processes import PROCESS
from tableferry.assets.running.progress import Progress
from tableferry.pipelines.command.many import side_by_side
from tableferry.pipelines.command.many.fleet import run_fleet
from tableferry.pipelines.command.one.finding import Selection
from tableferry.pipelines.command.show.range_views import TransferOutcome
from tableferry.pipelines.command.show.watching import Watch
from tests.integration.conftest import Ferry
from tests.integration.support import ferry_process
from tests.integration.support.crashing import Command, ask_clickhouse, reopen

pytestmark = pytest.mark.integration

TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
    "INSERT INTO {t} SELECT g, 'name ' || g FROM generate_series(1, 100) g",
)


@pytest.fixture
def fleet(ferry: Callable[..., Ferry]) -> Ferry:
    """Transfers `a` and `b` of one table, and one whose source does not exist."""
    moves = ferry("['clickhouse://warehouse.{t}']", *TABLE)
    (moves.folder / "t.yaml").unlink()
    for name in ("a", "b", "broken"):
        source = "not_there" if name == "broken" else moves.table
        (moves.folder / f"{name}.yaml").write_text(
            f"transfer: {name}\nsource: postgres://public.{source}\nkey: id\n"
            f"hops: ['clickhouse://warehouse.{moves.table}_{name}']\n"
        )
    reopen(moves)
    return moves


@pytest.mark.slow
def test_checks_and_plans_go_side_by_side(fleet: Ferry, tmp_path: Path) -> None:
    command = Command(tmp_path)
    assert command.run("run", "a", "b", "--jobs", "1") == 0, command.output
    ask_clickhouse(fleet, f"ALTER TABLE warehouse.{fleet.table}_b UPDATE name = 'x' WHERE id = 7")
    text = (fleet.folder / "a.yaml").read_text()
    for name in "cdef":
        (fleet.folder / f"{name}.yaml").write_text(
            text.replace("transfer: a", f"transfer: {name}").replace("_a'", f"_{name}'")
        )
    every = [*"abcdef", "broken"]
    assert command.run("check", *every, "--jobs", "2") == 1
    lines = [line.split() for line in command.output.splitlines()]
    results = {line[0]: line[1] for line in lines if len(line) == 7 and line[0] in every}
    assert results == dict.fromkeys(every, "FAILED") | {"a": "ok"}, command.output
    assert "1 of 7 transfers passed" in command.output
    assert "ferry: broken: postgres://public.not_there does not exist" in command.output
    reopen(fleet)
    runs = fleet.session.instance.get_runs(dg.RunsFilter(tags={COMPLETE: "true"}))
    assert len({run.tags[PROCESS] for run in runs}) == 2, "two processes have checked"
    assert command.run("plan", *every, "--jobs", "3", "--json") == 1
    document = json.loads(command.output[: command.output.rindex("}") + 1])
    planned = {item["transfer"]: item for item in document["transfers"]}
    assert list(planned) == every, "in the order in which they were named"
    assert {range_["state"] for range_ in planned["a"]["ranges"]} == {"skip"}
    assert "last_check_failed" in {range_["reason"] for range_ in planned["b"]["ranges"]}
    [error] = document["errors"]
    assert error.startswith("broken: postgres://public.not_there does not exist in the database ")


class Killer(Watch):
    """Kills the process that moves the first transfer, when it begins to."""

    def __init__(self) -> None:
        self.killed: str | None = None
        self.others = {*multiprocessing.active_children()}

    def progress(self, event: Progress) -> None:
        if self.killed is None and event.range:
            self.killed = event.transfer
            (child,) = {*multiprocessing.active_children()} - self.others
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)


def test_a_process_that_dies_fails_its_transfer_alone(
    fleet: Ferry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: ferry_process.forking)
    # one process at a time, however slow this machine is
    monkeypatch.setattr(side_by_side, "SECONDS_TO_START", 3_600)
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
