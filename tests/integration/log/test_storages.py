"""Tableferry on each storage of Dagster's event log: ours, and Dagster's own SQLite and PostgreSQL.

`TABLEFERRY_TEST_STORAGE=sqlite` or `postgres` runs any other test on one of Dagster's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster_postgres import PostgresEventLogStorage

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.log import ledger
from tableferry.assets.log.storage import SqliteEventLog
from tableferry.sensors.reaper import reap
from tests.integration.conftest import Ferry, by_range
from tests.integration.operating.test_ticks import launch, tick
from tests.integration.support import homes
from tests.integration.support.command import command
from tests.integration.support.crashing import (
    Command,
    ask_clickhouse,
    crash,
    reopen,
    rows_of,
    runs_by_status,
)

Make = Callable[..., Ferry]
HOPS = "['clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12, 2))",
    "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 FROM generate_series(1, 300) g",
)
MORE = "INSERT INTO {t} SELECT g, 'more', 1 FROM generate_series(301, 500) g"
RANGES = "{rows: 100}"
CLASSES = {
    "ours": SqliteEventLog,
    "sqlite": SqliteEventLogStorage,
    "postgres": PostgresEventLogStorage,
}


@pytest.fixture(params=homes.STORAGES)
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv(homes.STORAGE, request.param)
    yield request.param


@pytest.fixture
def one(storage: str, ferry: Make) -> Ferry:
    """A transfer whose ranges are committed."""
    made = ferry(HOPS, *TABLE, ranges=RANGES, reconcile="full_hash")
    assert type(made.session.instance.event_log_storage) is CLASSES[storage]
    assert made.run().good
    return made


def states(one: Ferry) -> dict[str, str]:
    document = json.loads(command("status", one.table, "--json").stdout)
    return {each["range"]: each["state"] for each in document["ranges"]}


def damage(one: Ferry) -> None:
    ask_clickhouse(
        one,
        f"ALTER TABLE warehouse.{one.table} UPDATE name = 'damaged' WHERE id = 150 "
        "SETTINGS mutations_sync = 2",
    )


def newest_run(one: Ferry) -> dg.DagsterRun:
    return one.session.instance.get_runs(limit=1)[0]


@pytest.mark.parametrize("point", ["inside_finalise:2", "inside_record:2", "after_event:2"])
def test_a_killed_command_is_gone_on_with(one: Ferry, tmp_path: Path, point: str) -> None:
    one.source("UPDATE {t} SET amount = amount + 1")
    crash(Command(tmp_path), one.table, point, "--profile", "safe")
    recorded = len(states_of_run(one))
    # Dagster's own have the commit of a range whose verdicts could not be recorded any more
    beside_verdicts = point.startswith("inside_record") and not homes.stores_groups()
    assert recorded == (2 if point.startswith("after_event") or beside_verdicts else 1)
    reopen(one)
    reasons = {name: each.reason for name, each in by_range(one.plan()).items()}
    assert [*reasons.values()].count("unchecked") == beside_verdicts
    again = one.run()
    assert again.good, again.errors
    assert len(one.moved(again)) == 3 - recorded
    assert {*states(one).values()} <= {"committed", "skipped_unchanged"}
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    statuses = [status.value for status in runs_by_status(one).values()]
    assert {*statuses} == {"FAILURE", "SUCCESS"} and statuses.count("FAILURE") == 1
    assert not one.run().run_ids


def states_of_run(one: Ferry) -> set[str]:
    """The ranges that the newest run has committed, as Dagster has them."""
    with one.session.open_instance() as instance:
        found = instance.all_logs(
            newest_run(one).run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION
        )
    return {str(event.get_dagster_event().partition) for event in found}


def test_what_checks_find_is_shown_and_put_right(one: Ferry) -> None:
    assert command("check", one.table).exit_code == 0
    assert command("report", one.table).exit_code == 0
    damage(one)
    assert command("check", one.table).exit_code == 1
    asset = asset_key(one.session.transfer(one.table).hops[0].to)
    verdicts = ledger.verdicts(one.session.instance, asset, ["full_hash"])
    (bad,) = [name for name, by_check in verdicts.items() if not by_check["full_hash"]]
    found = command("status", one.table)
    assert found.exit_code == 1 and "full_hash" in found.stdout and "FAILED" in found.stdout
    fleet = command("status")
    assert "1 transfer:" in fleet.stdout and "0 proven" not in fleet.stdout.partition(",")[0]
    report = command("report", one.table, "--format", "json")
    assert report.exit_code == 1 and not json.loads(report.stdout)["passed"]
    planned = by_range(one.plan())
    assert {name for name, each in planned.items() if each.reason != "unchanged"} == {bad}
    assert command("repair", one.table).exit_code == 0
    assert command("check", one.table).exit_code == 0
    assert command("report", one.table).exit_code == 0
    assert not one.run().run_ids, "nothing is left to do"


def test_old_runs_are_forgotten_but_for_what_is_gone_by(one: Ferry) -> None:
    again = one.run(force=True)
    assert again.good
    before = states(one)
    pruned = json.loads(command("prune", "--keep", "0d", "--json").stdout)
    assert len(pruned["deleted"]) == 1 and {*pruned["needed"]} == {*again.run_ids}
    reopen(one)
    assert len(one.session.instance.get_runs()) == 1
    assert states(one) == before
    assert not one.run().run_ids
    assert command("report", one.table).exit_code == 0


def test_sensors_see_new_failed_and_dead(one: Ferry, tmp_path: Path) -> None:
    assert not tick(one, "new_ranges").run_requests
    one.source(MORE)
    found = tick(one, "new_ranges")
    assert found.run_requests
    launch(one, found)
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert not tick(one, "new_ranges").run_requests

    assert not tick(one, "failed_ranges").run_requests
    damage(one)
    assert command("check", one.table).exit_code == 1
    assert "1 failed" in str(tick(one, "failed_ranges").skip_message), "it is not due yet"

    one.source("UPDATE {t} SET amount = amount + 1")
    crash(Command(tmp_path), one.table, "after_event:2", "--profile", "safe")
    with one.session.open_instance() as instance:
        assert reap(instance) == [newest_run(one).run_id]
        assert newest_run(one).status is dg.DagsterRunStatus.FAILURE


def test_a_run_that_dagster_starts_records_the_same(one: Ferry) -> None:
    one.source("UPDATE {t} SET amount = amount + 1 WHERE id = 150")
    request: dict[str, Any] = {"tags": {}}
    assert one.launch(**request).success
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert {*states(one).values()} <= {"committed", "skipped_unchanged"}
    assert not one.run().run_ids
