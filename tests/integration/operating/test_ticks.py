"""Ticks of the sensors and schedules that look at the servers, and the runs that they lead to."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.log.command_runs import selected
from tableferry.assets.log.runs import PARTITION, RANGE_END, RANGE_START, TRANSFER
from tableferry.assets.planning.transfer_plan import apply_growth, plan_transfer
from tableferry.pipelines.definitions import build
from tableferry.resources.connecting import retry
from tableferry.sensors import new_ranges, rounds
from tableferry.sensors.sending import Alert
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import rows_of

HOPS = "['clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount date NOT NULL)",
    "INSERT INTO {t} SELECT g, 'x', '2024-01-01' FROM generate_series(1, 50) g",
)
MORE = "INSERT INTO {t} SELECT g, 'y', '2024-01-01' FROM generate_series(51, 100) g"
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
Make = Callable[..., Ferry]


def tick(one: Ferry, sensor: str, cursor: str | None = None) -> Any:
    """One tick of a sensor, as the daemon evaluates it."""
    repository = build().get_repository_def()
    with dg.build_sensor_context(
        one.session.instance,
        cursor=cursor,
        repository_def=repository,
        resources=repository.get_top_level_resources(),
    ) as context:
        return repository.get_sensor_def(sensor).evaluate_tick(context)


def schedule_tick(one: Ferry, which: str) -> Any:
    repository = build().get_repository_def()
    with dg.build_schedule_context(
        one.session.instance,
        scheduled_execution_time=dt.datetime(2025, 1, 2, 3, 0, tzinfo=dt.UTC),
        repository_def=repository,
        resources=repository.get_top_level_resources(),
    ) as context:
        return repository.get_schedule_def(f"{one.table}_{which}").evaluate_tick(context)


def target(one: Ferry) -> dg.AssetKey:
    return dg.AssetKey(["clickhouse", "warehouse", one.table])


def spans(found: Any) -> list[tuple[str, str]]:
    return [(one.tags[RANGE_START], one.tags[RANGE_END]) for one in found.run_requests]


def launch(one: Ferry, found: Any) -> None:
    """What the daemon does with a tick's requests."""
    for request in found.run_requests:
        assert request.tags[TRANSFER] == one.table
        assert one.launch(tags=request.tags, asset_selection=request.asset_selection).success


def test_new_keys_become_ranges_and_are_moved_once(ferry: Make) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 25}")
    assert one.run().good
    nothing = tick(one, "new_ranges")
    assert not nothing.run_requests
    assert "no keys of" in nothing.skip_message
    one.source(MORE)
    known = set(one.session.instance.get_dynamic_partitions(f"{one.table}_ranges"))
    found = tick(one, "new_ranges")
    now = one.session.instance.get_dynamic_partitions(f"{one.table}_ranges")
    new = [name for name in now if name not in known]
    assert len(new) >= 2
    assert spans(found) == [(new[0], new[-1])]
    again = tick(one, "new_ranges")
    assert [request.run_key for request in again.run_requests] == [
        request.run_key for request in found.run_requests
    ], "of a daemon that died in between: Dagster launches each key once"
    launch(one, found)
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert not tick(one, "new_ranges").run_requests


@pytest.mark.parametrize("type_", ["integer", "text", "date"])
@pytest.mark.parametrize("ranges", ["{rows: 25}", "{count: 1}"])
def test_the_first_rows_of_an_empty_table_are_moved(ferry: Make, type_: str, ranges: str) -> None:
    """Also when it has been emptied meanwhile, though the range stays the same one."""
    start = "date '2024-01-01' + g" if type_ == "date" else f"g::{type_}"
    few = f"INSERT INTO {{t}} SELECT {start}, 'x', '2024-01-01' FROM generate_series(1, 20) g"
    one = ferry(HOPS, TABLE[0].replace("id integer", f"id {type_}"), ranges=ranges)
    keys: list[str] = []
    tick(one, "first_ranges")
    empty = tick(one, "new_ranges")
    assert spans(empty) == [("..", "..")], "it has no record yet"
    launch(one, empty)
    keys += [request.run_key for request in empty.run_requests]
    for _ in range(2):
        assert not tick(one, "new_ranges").run_requests, "it has no rows yet"
        one.source(few)
        found = tick(one, "new_ranges")
        again = tick(one, "new_ranges")
        assert len(found.run_requests) == 1
        assert [one.run_key for one in again.run_requests] == [found.run_requests[0].run_key]
        keys.append(found.run_requests[0].run_key)
        launch(one, found)
        assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
        assert not tick(one, "new_ranges").run_requests
        if type_ != "text" and "count" in ranges:
            return  # it has been cut, and grows as others do
        one.source("DELETE FROM {t}")
        assert one.run().good
    assert len(set(keys)) == len(keys) == 3, "Dagster launches each run key once"


def test_a_small_table_is_cut_by_the_sensor_when_it_has_outgrown_its_range(ferry: Make) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 60}")
    assert one.run().good
    assert one.session.instance.get_dynamic_partitions(f"{one.table}_ranges") == [".."]
    for more in ((51, 60), (61, 90)):
        rows = "INSERT INTO {{t}} SELECT g, 'y', '2024-01-01' FROM generate_series({}, {}) g"
        one.source(rows.format(*more))
        assert not tick(one, "new_ranges").run_requests, "the next run moves them"
    one.source("INSERT INTO {t} VALUES (91, 'z', '2024-01-01')")
    found = tick(one, "new_ranges")
    names = one.session.instance.get_dynamic_partitions(f"{one.table}_ranges")
    assert ".." not in names and len(names) == 3
    assert spans(found) == [(names[0], names[-1])]
    launch(one, found)
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert not tick(one, "new_ranges").run_requests


@pytest.mark.parametrize(
    "settings",
    [{"on_reject": "quarantine"}, {"where": '"id > 60"'}],
    ids=str,
)
def test_rows_that_never_arrive_are_not_asked_for_again_and_again(
    ferry: Make, settings: dict[str, str]
) -> None:
    one = ferry(HOPS, TABLE[0], ranges="{rows: 60}", **settings)
    one.source("INSERT INTO {t} SELECT g, 'x', '0044-03-15 BC' FROM generate_series(1, 50) g")
    first = one.run()
    assert first.good, first.errors
    assert rows_of(one, "clickhouse") == []
    assert not tick(one, "new_ranges").run_requests


def test_new_files_become_ranges_and_are_moved(ferry: Make, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id\n1\n", encoding="utf-8")
    one = ferry(HOPS, source=f"files://{folder}/*.csv", key="_file")
    assert one.run().good
    assert not tick(one, "new_ranges").run_requests
    (folder / "b.csv").write_text("id\n2\n", encoding="utf-8")
    found = tick(one, "new_ranges")
    assert spans(found) == [("b.csv", "b.csv")]
    launch(one, found)
    assert not tick(one, "new_ranges").run_requests
    assert not one.run().run_ids


def test_new_ranges_wait_for_a_run_that_is_under_way(
    ferry: Make,
) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 25}")
    assert one.run().good
    one.source(MORE)
    instance, partitions = one.session.instance, f"{one.table}_ranges"
    known = instance.get_dynamic_partitions(partitions)
    run = instance.add_run(
        dg.DagsterRun(
            ASSET_JOB, status=dg.DagsterRunStatus.STARTED, asset_selection=frozenset({target(one)})
        )
    )
    assert run.run_id in tick(one, "new_ranges").skip_message
    assert instance.get_dynamic_partitions(partitions) == known
    instance.report_run_failed(run)
    assert tick(one, "new_ranges").run_requests


def test_new_ranges_whose_run_recorded_nothing_are_tried_again_a_few_times(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed, or failed, before it came to them."""
    one = ferry(HOPS, *TABLE, ranges="{rows: 25}")
    assert one.run().good
    one.source(MORE)
    clock, alerts = [1_000_000.0], list[Alert]()
    monkeypatch.setattr(new_ranges, "time", lambda: clock[0])
    monkeypatch.setattr(rounds, "send", alerts.append)
    cursor, keys, asked = None, list[str](), list[tuple[str, str]]()
    for number in range(rounds.MOST_TRIES):
        found = tick(one, "new_ranges", cursor)
        keys += [request.run_key for request in found.run_requests]
        asked += spans(found)
        cursor = found.cursor
        one.session.instance.add_run(dg.DagsterRun(ASSET_JOB, status=dg.DagsterRunStatus.FAILURE))
        clock[0] += 10
        found = tick(one, "new_ranges", cursor)
        assert not found.run_requests
        assert "wait for a retry" in found.skip_message
        cursor = found.cursor
        clock[0] += rounds.FIRST_PAUSE * 2 ** (number + 1)
    assert len(keys) == len(set(keys)) == rounds.MOST_TRIES, "Dagster launches each run key once"
    assert len(set(asked)) == 1
    clock[0] += rounds.FIRST_PAUSE * 2**rounds.MOST_TRIES
    for _ in range(2):
        found = tick(one, "new_ranges", cursor)
        assert not found.run_requests
        assert "given up after 3 tries" in found.skip_message
        cursor = found.cursor
    assert [alert.kind for alert in alerts] == ["ranges_given_up"]
    assert one.run().good
    assert json.loads(tick(one, "new_ranges", cursor).cursor)["tries"] == {}


def queued(one: Ferry, tags: dict[str, str]) -> Callable[[], dg.JobExecutionResult]:
    """Queue a run, and return what Dagster does when its turn has come."""
    targets = frozenset({target(one)})
    job = build().resolve_implicit_global_asset_job_def().get_subset(asset_selection=targets)
    instance = one.session.instance
    run = instance.create_run_for_job(
        job,
        tags=tags,
        asset_selection=targets,
        run_config=QUIET,
    )

    def dequeue() -> dg.JobExecutionResult:
        return execute_run(InMemoryJob(job), run, instance, raise_on_error=False)

    return dequeue


@pytest.mark.parametrize("asked", ["range", "span"])
@pytest.mark.parametrize("type_", ["integer", "text", "date"])
def test_a_queued_run_takes_what_has_replaced_its_ranges(
    ferry: Make, type_: str, asked: str
) -> None:
    """By `ferry run` say, which does not look at the queue: Dagster failed the step."""
    key = "date '2024-01-01' + g" if type_ == "date" else f"(g + 10000)::{type_}"
    rows = f"INSERT INTO {{t}} SELECT {key}, 'x', '2024-01-01' FROM generate_series({{}}) g"
    first, more = (rows.replace("{}", span) for span in ("1, 50", "51, 300"))
    one = ferry(HOPS, TABLE[0].replace("id integer", f"id {type_}"), first, ranges="{rows: 25}")
    tick(one, "first_ranges")
    instance, partitions = one.session.instance, f"{one.table}_ranges"
    before = instance.get_dynamic_partitions(partitions)
    tags = {RANGE_START: before[0], RANGE_END: before[-1]}
    dequeue = queued(one, tags if asked == "span" else {PARTITION: before[-1]})
    one.source(more)
    plan = plan_transfer(
        one.session.transfer(one.table), one.session.servers, instance, purpose="cut"
    )
    apply_growth(plan, one.session.servers, instance)
    after = instance.get_dynamic_partitions(partitions)
    replaced = [name for name in after if name not in before]
    assert before[-1] not in after and len(replaced) > 3
    result = dequeue()
    assert result.success
    moved = one.materializations("clickhouse", "warehouse")
    if asked == "span":
        assert set(moved) == set(after)
        assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    else:
        assert set(moved) == set(replaced)


def test_a_tick_waits_for_a_queued_run_and_cuts_nothing_under_it(ferry: Make) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 25}", schedule="'0 3 * * *'")
    assert one.run().good
    instance, partitions = one.session.instance, f"{one.table}_ranges"
    names = instance.get_dynamic_partitions(partitions)
    dequeue = queued(one, {RANGE_START: names[0], RANGE_END: names[-1]})
    one.source(MORE)
    for found in (schedule_tick(one, "schedule"), tick(one, "new_ranges")):
        assert not found.run_requests
        assert "is under way" in found.skip_message
    assert instance.get_dynamic_partitions(partitions) == names
    assert dequeue().success
    launch(one, schedule_tick(one, "schedule"))
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


@pytest.mark.parametrize("name", ["POSTGRES", "SQLSERVER", "CLICKHOUSE"])
def test_a_night_is_not_lost_because_a_server_is_away_at_the_tick(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    one = ferry(
        "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']",
        *TABLE,
        ranges="{rows: 25}",
        schedule="'0 3 * * *'",
    )
    assert one.run().good
    one.source(MORE)
    variable = f"TABLEFERRY_{name}_URL"
    url = os.environ[variable]
    monkeypatch.setenv(retry.PATIENCE, "0")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        away = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv(variable, re.sub(r"(?<=@)[^/?]+", away, url))
        (request,) = schedule_tick(one, "schedule").run_requests
        assert request.tags["dagster/max_retries"] == "5"
        assert request.partition_key is None and RANGE_START not in request.tags
        selection = request.asset_selection
        failed = one.launch(tags=request.tags, asset_selection=selection, raise_on_error=False)
        assert not failed.success, "and failure_alert tells why"
    monkeypatch.setenv(variable, url)
    retry.forget_outages()
    assert one.launch(tags=request.tags, asset_selection=selection).success, "Dagster's retry"
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


def test_a_tick_fails_where_waiting_does_not_help(ferry: Make) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 25}", schedule="'0 3 * * *'")
    assert one.run().good
    one.source("DROP TABLE {t}")
    with pytest.raises(dg.DagsterError) as failed:
        schedule_tick(one, "schedule")
    assert "does not exist" in str(failed.value.__cause__)


def test_a_run_of_all_assets_is_under_way_for_each_transfer(ferry: Make) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 25}", schedule="'0 3 * * *'")
    run = dg.DagsterRun(ASSET_JOB, status=dg.DagsterRunStatus.STARTED)
    one.session.instance.add_run(run)
    assert f"run {run.run_id} is under way" in schedule_tick(one, "schedule").skip_message


def test_two_ticks_at_once_add_each_range_once(ferry: Make) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 25}")
    assert one.run().good
    one.source(MORE)
    found: list[Any] = []
    ticks = [
        threading.Thread(target=lambda: found.append(tick(one, "new_ranges"))) for _ in range(2)
    ]
    for thread in ticks:
        thread.start()
    for thread in ticks:
        thread.join()
    keys = [{one.run_key for one in data.run_requests} for data in found]
    assert any(keys) and all(each in (set(), keys[0] | keys[1]) for each in keys)
    names = one.session.instance.get_dynamic_partitions(f"{one.table}_ranges")
    assert len(names) == len(set(names))


def test_a_server_that_is_down_skips_the_tick_and_names_it(
    ferry: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = ferry(HOPS, *TABLE)
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", "postgresql://u:secret@127.0.0.1:1/db")
    found = tick(one, "new_ranges")
    assert not found.run_requests
    assert "127.0.0.1:1" in found.skip_message
    assert "secret" not in found.skip_message


def test_a_table_that_never_changes_stays_fresh(ferry: Make) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 25}", schedule='"0 3 * * *"', freshness="1h")
    assert one.run().good
    found = schedule_tick(one, "schedule")
    instance = one.session.instance
    last = instance.get_dynamic_partitions(f"{one.table}_ranges")[-1]
    assert spans(found) == [(last, last)], (
        "none has changed, but a day without an event is too long"
    )
    launch(one, found)
    asset = target(one)
    (newest,) = instance.fetch_materializations(asset, limit=1).records
    event = newest.asset_materialization
    assert event is not None
    assert event.partition == last
    assert event.metadata["tableferry/state"].value == "skipped_unchanged"
    schema, lineage = (
        event.metadata[f"dagster/column_{name}"].value for name in ("schema", "lineage")
    )
    source = dg.AssetKey(["postgres", "public", one.table])
    assert [column.name for column in schema.columns] == ["id", "name", "amount"]
    assert lineage.deps_by_column == {
        name: [dg.TableColumnDep(source, name)] for name in ("id", "name", "amount")
    }
    one.declare(HOPS, ranges="{rows: 25}", schedule='"0 3 * * *"', freshness="none")
    assert not schedule_tick(one, "schedule").run_requests


def test_a_schedule_runs_what_changed_and_nothing_else(ferry: Make) -> None:
    one = ferry(
        HOPS, *TABLE, ranges="{rows: 25}", schedule='"0 3 * * *"', check_schedule='"0 5 * * 0"'
    )
    assert one.run().good
    nothing = schedule_tick(one, "schedule")
    assert not nothing.run_requests
    assert "are unchanged" in nothing.skip_message
    one.source("UPDATE {t} SET name = 'changed' WHERE id = 7", MORE)
    found = schedule_tick(one, "schedule")
    names = one.session.instance.get_dynamic_partitions(f"{one.table}_ranges")
    assert spans(found)[0][0] == names[0]
    assert names[1] not in {name for span in spans(found) for name in span}
    assert all(request.run_key.startswith("20250102T0300:") for request in found.run_requests)
    launch(one, found)
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert not schedule_tick(one, "schedule").run_requests
    # the other schedule compares, and moves nothing
    (request,) = schedule_tick(one, "check_schedule").run_requests
    before = one.materializations("clickhouse", "warehouse")
    assert not request.asset_selection
    check = selected(build(), checks=request.asset_check_keys)
    assert check.execute_in_process(
        instance=one.session.instance, tags=dict(request.tags), run_config=QUIET
    ).success
    assert one.materializations("clickhouse", "warehouse") == before


def test_a_new_table_gets_ranges_before_anybody_moves_it(ferry: Make) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 25}")
    partitions = f"{one.table}_ranges"
    assert not one.session.instance.get_dynamic_partitions(partitions)
    found = tick(one, "first_ranges")
    assert not found.run_requests, "it cuts, and moves nothing"
    assert one.table in found.skip_message
    known = one.session.instance.get_dynamic_partitions(partitions)
    assert len(known) >= 3
    one.source("DROP TABLE {t}")
    assert "all transfers have" in tick(one, "first_ranges").skip_message, "it is asked no more"


def test_a_table_that_cannot_be_cut_is_named_and_stops_no_other(ferry: Make) -> None:
    one = ferry(HOPS, *TABLE)
    text = (one.folder / "t.yaml").read_text(encoding="utf-8")
    for name in ("aaa_missing", "zzz_missing"):
        other = text.replace(one.table, name)
        (one.folder / f"{name}.yaml").write_text(other, encoding="utf-8")
    message = tick(one, "first_ranges").skip_message
    assert f"{one.table} has" in message
    for name in ("aaa_missing", "zzz_missing"):
        assert f"{name} cannot be cut yet" in message and "does not exist" in message


def test_a_run_without_a_partition_moves_all_that_is_missing(ferry: Make) -> None:
    """As Dagster's Launchpad starts it."""
    one = ferry(HOPS, *TABLE, ranges="{rows: 25}")
    assert one.launch().success
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    one.source(MORE)
    assert one.launch().success
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres"), "also of keys that are new"
    view = one.run()
    assert view.good and not one.moved(view)


def test_a_tick_takes_no_ranges_away_from_targets_that_no_run_could_write_to(ferry: Make) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 25}", schedule="'0 3 * * *'", on_schema_drift="fail")
    assert one.run().good
    known = one.session.instance.get_dynamic_partitions(f"{one.table}_ranges")
    one.source("ALTER TABLE {t} ADD extra int", MORE.replace("{t}", "{t} (id, name, amount)"))
    assert "extra" in tick(one, "new_ranges").skip_message
    with pytest.raises(dg.DagsterError) as error:
        schedule_tick(one, "schedule")
    assert "extra" in str(error.value.__cause__)
    assert one.session.instance.get_dynamic_partitions(f"{one.table}_ranges") == known
