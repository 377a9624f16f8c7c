"""Two runs of the same range at once, dead runs, and how many ranges a change runs again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from tableferry.assets.running import moving, processes
from tableferry.pipelines.command.one import runner, running
from tableferry.pipelines.command.session import Session, open_session
from tableferry.pipelines.command.show.range_views import TransferView
from tableferry.sensors.reaper import reap, reaper
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import (
    Command,
    reopen,
    rows_of,
    runs_by_status,
    staging_tables,
)

pytestmark = pytest.mark.integration

DIRECT = "['clickhouse://warehouse.{t}']"
ONE_HOP = "['sqlserver://dbo.{t}']"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
    "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 FROM generate_series(1, 200) g",
)
Make = Callable[..., Ferry]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.mark.invariant("I7")
@pytest.mark.parametrize("apart", ["", "another home", "another home on another host"])
@pytest.mark.parametrize(("system", "hops"), [("clickhouse", DIRECT), ("sqlserver", ONE_HOP)])
def test_of_two_runs_of_a_range_one_wins(
    ferry: Make,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    system: str,
    hops: str,
    apart: str,
) -> None:
    """Without Dagster's pool, so that only the target's own lock stands between them."""
    one = ferry(hops, *TABLE, ranges="{count: 1}")
    monkeypatch.setattr("tableferry.resources.transactional.target.LOCK_SECONDS", 1)
    one.session.instance.event_log_storage.set_concurrency_slots(one.table, 2)
    name = runner.plan(one.session, one.table).ranges[0].range
    inside, go_on = threading.Event(), threading.Event()

    def reached(point: str) -> None:
        if point == "after_load" and not inside.is_set():
            inside.set()
            assert go_on.wait(300)

    monkeypatch.setattr(moving, "reached", reached)
    found: dict[str, TransferView] = {}

    def run(which: str, session: Session) -> None:
        found[which] = runner.run(session, one.table, ranges=[name])

    if apart:
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "another"))
    second = open_session()
    first = threading.Thread(target=run, args=("first", one.session))
    first.start()
    assert inside.wait(300)
    if "host" in apart:
        monkeypatch.setattr(processes, "_space", lambda: "another host")
    run("second", second)
    go_on.set()
    first.join()
    assert found["first"].good, found["first"].errors
    assert not found["second"].good
    (line,) = found["second"].errors
    assert "is being loaded by" in line
    assert name in line
    assert rows_of(one, system) == rows_of(one, "postgres")
    assert staging_tables(one, system) == []
    schema = "warehouse" if system == "clickhouse" else "dbo"
    assert one.materializations(system, schema)[name] == 1


def test_who_waits_for_another_run_says_so_now_and_then(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "TOLD_SECONDS", 1.0)
    one = ferry(DIRECT, *TABLE, ranges="{count: 1}", parallel="{runs: 2}")
    under_way = iter([["0123456789"]] * 3)
    monkeypatch.setattr(running, "blocking_runs", lambda *_, **__: next(under_way, []))
    heard: list[str] = []
    assert one.run(on_note=heard.append).good
    told = [note for note in heard if "waiting" in note]
    assert len(told) >= 2
    assert set(told) == {f"{one.table}: waiting for run 01234567 of it to end"}


def start_and_kill(one: Ferry, command: Command) -> str:
    """The id of a run that was killed while it held its pool slot."""
    command.run("run", one.table, TABLEFERRY_CRASH_AT="after_load")
    (run_id,) = (
        run for run, status in runs_by_status(one).items() if status is dg.DagsterRunStatus.STARTED
    )
    return run_id


def slots(one: Ferry) -> int:
    return one.session.instance.event_log_storage.get_concurrency_info(one.table).active_slot_count


def test_a_dead_run_is_ended_and_its_slot_is_free(ferry: Make, command: Command) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    by_sensor = start_and_kill(one, command)
    assert slots(one) == 1
    context = dg.build_sensor_context(instance=one.session.instance)
    assert by_sensor in str(reaper(context))
    assert runs_by_status(one)[by_sensor] is dg.DagsterRunStatus.FAILURE
    assert slots(one) == 0

    by_command = start_and_kill(one, command)
    assert slots(one) == 1
    assert command.run("status", one.table) == 1, "its last run has failed"
    assert runs_by_status(one)[by_command] is dg.DagsterRunStatus.FAILURE
    assert slots(one) == 0
    assert reap(one.session.instance) == [], "once is enough"


def test_a_run_that_repeats_a_dead_one_is_not_ended_for_it(ferry: Make, command: Command) -> None:
    """Dagster copies the tags of a run to the one that repeats it."""
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    dead = start_and_kill(one, command)
    reopen(one)
    instance = one.session.instance
    parent = instance.get_run_by_id(dead)
    assert parent is not None
    child = dg.DagsterRun(
        job_name=parent.job_name,
        status=dg.DagsterRunStatus.STARTED,
        tags=parent.tags,
        parent_run_id=dead,
        root_run_id=dead,
    )
    instance.add_run(child)
    assert reap(instance) == []


@pytest.mark.slow
@pytest.mark.invariant("I6")
def test_one_changed_row_runs_one_range_of_a_hundred(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 2}")
    first = one.run()
    assert first.good, first.errors
    assert len(first.ranges) == 101
    before = one.materializations("clickhouse", "warehouse")
    assert set(before.values()) == {1}

    nothing = one.run()
    assert nothing.good
    assert nothing.run_ids == [], "no range runs, so no run is needed"

    one.source("UPDATE {t} SET name = 'changed' WHERE id = 77")
    view = one.run()
    assert view.good, view.errors
    assert one.moved(view) == ["0000000077..0000000079"]
    assert one.materializations("clickhouse", "warehouse") == {
        **before,
        "0000000077..0000000079": 2,
    }
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


def test_what_dead_runs_left_goes_with_the_next_run(ferry: Make, command: Command) -> None:
    """Also of ranges that the next run does not touch."""
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    start_and_kill(one, command)
    assert staging_tables(one, "clickhouse")
    reopen(one)
    last = one.plan().ranges[-1].range
    assert one.run(ranges=[last]).good
    assert staging_tables(one, "clickhouse") == []
