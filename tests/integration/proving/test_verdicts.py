"""Which verdicts count, how commands end, and what a run that skips says of the proof."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import Result

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.log.runs import RANGE_END, RANGE_START
from tableferry.assets.running import moving
from tableferry.assets.verifying import on_demand
from tableferry.checks.comparing.tables import ComparisonByKey
from tableferry.checks.sides import Comparison
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.session import open_session
from tableferry.pipelines.command.show.views import CheckView
from tests.integration.conftest import Ferry
from tests.integration.support.command import command
from tests.integration.support.crashing import Command, ask_clickhouse, rows_of
from tests.integration.support.interface import Interface, served

pytestmark = pytest.mark.integration

DIRECT = "['clickhouse://warehouse.{t}']"
CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
    "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 FROM generate_series(1, 100) g",
)
FIRST, SECOND, LAST = "..0000000051", "0000000051..0000000101", "0000000101.."
Make = Callable[..., Ferry]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only errors are on standard error."""
    monkeypatch.setenv("TABLEFERRY_QUIET", "1")


def assert_ends(result: Result, code: int, *parts: str) -> None:
    """The exit code, and that standard error says why it is not 0."""
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    lines = result.stderr.splitlines()
    assert bool(lines) == bool(code), result.output
    assert all(line.startswith("ferry: ") for line in lines), result.stderr
    for part in parts:
        assert part in result.stderr, result.stderr


def damage(one: Ferry, change: str) -> None:
    one.session.servers.endpoints["clickhouse"].execute(
        f"ALTER TABLE warehouse.{one.table} {change} SETTINGS mutations_sync = 2"
    )


def materialize_all(one: Ferry, hop: int | None = None) -> dg.ExecuteInProcessResult:
    """What the button does, for all ranges, changed or not."""
    names = one.session.instance.get_dynamic_partitions(f"{one.table}_ranges")
    hops = one.session.transfer(one.table).hops
    return one.launch(
        tags={RANGE_START: names[0], RANGE_END: names[-1]},
        asset_selection=[asset_key(item.to) for item in ([hops[hop - 1]] if hop else hops)],
        raise_on_error=False,
    )


@pytest.mark.invariant("I11")
def test_a_check_that_ran_beside_a_move_does_not_outlive_it(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was planned, and so its rows of checks created, before the check failed."""
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    # no pool, so that they do run side by side
    one.session.instance.event_log_storage.set_concurrency_slots(one.table, 2)
    one.source("UPDATE {t} SET name = 'changed' WHERE id = 7")
    inside, go_on = threading.Event(), threading.Event()

    def reached(point: str) -> None:
        if point == "before_export" and not inside.is_set():
            inside.set()
            assert go_on.wait(300)

    monkeypatch.setattr(moving, "reached", reached)
    moved: list[bool] = []
    second = open_session()
    move = threading.Thread(target=lambda: moved.append(runner.run(second, one.table).good))
    move.start()
    assert inside.wait(300)
    one.session.servers.endpoints["clickhouse"].execute(
        f"ALTER TABLE warehouse.{one.table} UPDATE name = 'damaged' WHERE id = 8 "
        "SETTINGS mutations_sync = 2"
    )
    assert [check.range for check in runner.check(one.session, one.table).checks if check.failed]
    go_on.set()
    move.join()
    assert moved == [True]
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert {view.reason for view in one.plan().ranges} == {"unchanged"}
    assert runner.status(one.session, one.table).good
    assert one.run().good
    # a run with nothing to do records none, so that a check answers the one that failed
    assert_ends(command("check", one.table), 0)
    assert_ends(command("report", one.table), 0)


def test_a_range_that_moves_while_it_is_compared_is_compared_again(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    one.session.instance.event_log_storage.set_concurrency_slots(one.table, 2)
    one.source("UPDATE {t} SET name = 'changed' WHERE id = 7")
    compare, second = on_demand.reconcile_all, open_session()
    moved: list[bool] = []

    def after_a_move(*arguments: Any, **options: Any) -> Any:
        found = compare(*arguments, **options)
        if not moved:
            move = threading.Thread(target=lambda: moved.append(runner.run(second, one.table).good))
            move.start()
            move.join()
        return found

    monkeypatch.setattr(on_demand, "reconcile_all", after_a_move)
    found = runner.check(one.session, one.table)
    assert moved == [True]
    assert found.good, found.errors
    assert runner.status(one.session, one.table).good
    assert {view.reason for view in one.plan().ranges} == {"unchanged"}


@pytest.mark.parametrize("slots", [1, 4], ids=["in turns", "at once"])
def test_real_commands_side_by_side(ferry: Make, tmp_path: Path, slots: int) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 25}")
    assert one.run().good
    if slots > 1:
        one.session.instance.event_log_storage.set_concurrency_slots(one.table, slots)
    started = []
    for name, *more in (("check",), ("run", "--force")):
        (tmp_path / name).mkdir()
        started.append(Command(tmp_path / name))
        started[-1].start(name, one.table, *more)
    for process in started:
        assert process.wait() == 0, process.output
    assert runner.status(one.session, one.table).good
    again = one.run()
    assert again.good, again.errors
    assert one.moved(again) == []


def test_check_names_what_is_failed_or_missing(ferry: Make) -> None:
    one = ferry(
        DIRECT,
        *TABLE,
        "UPDATE {t} SET name = NULL WHERE id = 77",
        ranges="{rows: 50}",
        expectations=("[{type: expect_column_values_to_not_be_null, kwargs: {column: name}}]"),
    )
    assert_ends(command("check", one.table), 1, "nothing was checked")
    assert_ends(command("run", one.table, "--range", FIRST), 0)
    missing = command("check", one.table)
    assert_ends(missing, 1, f"warehouse.{one.table} {SECOND}: missing", f"{LAST}: missing")
    assert "0 of 7 checks failed, 1 warned; ranges: 2 missing" in missing.stdout
    assert_ends(command("run", one.table), 1, SECOND, "expectations FAILED")
    failed = command("check", one.table, "--json")
    assert_ends(failed, 1, f"{SECOND}: failed", "expect_column_values_to_not_be_null")
    document = json.loads(failed.stdout)
    assert not document["ok"]
    assert document["summary"].endswith("; ranges: 1 failed")
    assert [(row["range"], row["state"]) for row in document["not_committed"]] == [
        (SECOND, "failed")
    ]
    checks = {(row["range"], row["check"]) for row in document["checks"]}
    assert {(FIRST, "expectations"), (FIRST, "checksum"), (None, "total_rows")} <= checks
    assert_ends(command("check", one.table, "--range", FIRST), 0)
    # an expectation that is no longer met in a committed range
    damage(one, "UPDATE name = NULL WHERE id = 3")
    met = command("check", one.table, "--range", FIRST)
    assert_ends(met, 1, f"{FIRST}: expectations FAILED", f"{FIRST}: checksum FAILED")
    assert met.stdout.splitlines()[-1] == "2 of 3 checks failed"


def test_the_seconds_of_a_check_are_its_own(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}", reconcile="sample_hash")
    assert one.run().good
    found = runner.check(one.session, one.table).checks
    own = {check.verdict.ranges for check in found if check.verdict.check == "sample_hash"}
    together = {check.verdict.ranges for check in found if check.verdict.check == "row_count"}
    assert (own, together) == ({1}, {3})
    lines = command("check", one.table).stdout.splitlines()[1:-1]
    took: dict[str, list[str]] = {}
    for _, _, seconds, verdict in (re.split("  +", line) for line in lines):
        took.setdefault(verdict.split()[0], []).append(seconds)
    assert took["row_count"][0].endswith(" for 3")
    assert took["row_count"][1:] == ["-", "-"], "one query took them all, and is shown once"
    assert all(float(seconds) >= 0 for seconds in took["sample_hash"])


def test_every_exit_code_but_0_says_why(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    for name in ("run", "plan", "status", "check", "report", "validate", "clean"):
        assert_ends(command(name, one.table), 0)
    damage(one, "DELETE WHERE id IN (7, 8)")
    plan = json.loads(command("plan", one.table, "--json").stdout)
    (row,) = (row for row in plan["ranges"] if row["range"] == FIRST)
    assert (row["reason"], row["detail"]) == ("row_count_differs", "2 of 50 rows missing")
    assert "row_count_differs (2 of 50 rows missing)" in command("plan", one.table).stdout
    assert_ends(command("diff", one.table, "--range", FIRST), 1, FIRST, "differ")
    for form in ((), ("--json",)):
        assert_ends(command("check", one.table, *form), 1, FIRST, "50 rows in source, 48 in target")
        assert_ends(command("report", one.table, *form), 1, one.table, FIRST)
    # a failed check that no run is to mend: the range alone is asked for
    done = command("run", one.table, "--range", SECOND)
    assert_ends(done, 0)
    assert_ends(command("run", one.table), 0)
    assert_ends(command("report", one.table), 0)
    one.source("ALTER TABLE {t} ADD extra integer")
    refused = command("run", one.table)
    text = f"postgres://public.{one.table} has a new column 'extra' (integer)"
    assert_ends(refused, 1, text, "on_schema_drift to add_columns or ignore_new")
    plan = command("plan", one.table)
    assert_ends(plan, 1, text)
    assert "refused" in plan.stdout
    assert_ends(command("validate", one.table), 2, "1 of 1 transfers cannot run", one.table)


def test_a_failed_check_without_anything_to_move_is_named(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that only warns fails; the range is not moved for it, and yet the run is not good."""
    one = ferry(
        DIRECT,
        *TABLE,
        ranges="{rows: 50}",
        checks="{expectations: {blocking: false}}",
        expectations="[{type: sql, kwargs: {query: 'SELECT id FROM {table} WHERE {range}'}}]",
    )
    result = command("run", one.table)
    assert_ends(result, 1, f"{FIRST}: expectations FAILED")


def test_a_target_that_lost_its_rows_or_a_column(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    damage(one, "DELETE WHERE id <= 50")
    reasons = {view.range: (view.reason, view.detail) for view in one.plan().ranges}
    assert reasons[FIRST] == ("target_missing", "all 50 rows missing")
    assert reasons[SECOND] == ("unchanged", "row versions")
    damage(one, "DROP COLUMN name")
    for view in one.plan().ranges:
        assert (view.state, view.reason) == ("refused", "target_changed")
        assert "has lost the column 'name'" in str(view.detail)
    assert "has lost the column 'name'" in one.run().errors[0]


@pytest.fixture
def interface(ferry: Make, tmp_path: Path) -> Iterator[tuple[Ferry, Interface]]:
    def make() -> Ferry:
        return ferry(
            CHAIN,
            *TABLE,
            ranges="{rows: 50}",
            expectations="[{type: expect_column_values_to_be_unique, kwargs: {column: id}}]",
        )

    with served(make, tmp_path / "dagster") as found:
        yield found


EXECUTIONS = """query($asset: AssetKeyInput!, $name: String!) {
  assetCheckExecutions(assetKey: $asset, checkName: $name, limit: 100) {
    runId status evaluation { partition success description metadataEntries {
      label ... on PipelineRunMetadataEntry { runId } } } } }"""
STATUSES = """query($asset: AssetKeyInput!) { assetNodeOrError(assetKey: $asset) {
  ... on AssetNode { assetChecksOrError { ... on AssetChecks { checks {
    name executionForLatestMaterialization { status }
    partitionStatuses { ... on AssetCheckDefaultPartitionStatuses {
      succeededPartitions failedPartitions inProgressPartitions skippedPartitions
      executionFailedPartitions } } } } } } } }"""


def test_a_skip_shows_the_proof_that_still_holds(interface: tuple[Ferry, Interface]) -> None:
    one, api = interface
    assert one.run().good
    (first,) = (run.run_id for run in one.session.instance.get_runs())
    for _ in range(2):
        result = materialize_all(one)
        assert result.success
    for system, schema in (("sqlserver", "dbo"), ("clickhouse", "warehouse")):
        asset = {"path": [system, schema, one.table]}
        node = api.ask(STATUSES, asset=asset)
        for check in node["assetChecksOrError"]["checks"]:
            latest = check["executionForLatestMaterialization"]
            assert latest["status"] == "SUCCEEDED", check
            if statuses := check["partitionStatuses"]:
                assert sorted(statuses.pop("succeededPartitions")) == sorted((FIRST, SECOND, LAST))
                assert not any(statuses.values()), check
        for name in ("row_count", "checksum", "expectations"):
            found = api.ask(EXECUTIONS, asset=asset, name=name)
            assert {row["status"] for row in found} == {"SUCCEEDED"}, "no empty rows"
            assert len(found) == 9, "three ranges in three runs"
        for row in api.ask(EXECUTIONS, asset=asset, name="checksum")[:6]:
            evaluation = row["evaluation"]
            assert "checksum passed: " in evaluation["description"]
            assert "are unchanged since" in evaluation["description"]
            links = {
                entry["label"]: entry["runId"]
                for entry in evaluation["metadataEntries"]
                if "runId" in entry
            }
            assert links == {"found_in_run": first}, "also when it is repeated twice"
    assert runner.status(one.session, one.table).good
    assert {view.reason for view in one.plan().ranges} == {"unchanged"}


def test_a_good_runs_log_has_nothing_that_looks_like_an_error(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    one.source("UPDATE {t} SET name = 'changed' WHERE id = 7")
    assert materialize_all(one).success
    for run in one.session.instance.get_runs():
        for entry in one.session.instance.all_logs(run.run_id):
            assert entry.level <= 20, entry.user_message
            text = f"{entry.user_message} {entry.dagster_event and entry.dagster_event.message}"
            for word in ("did not yield", "expected outputs", "rror", "ailed", "implicit Nothing"):
                assert word not in text, text


@pytest.mark.invariant("I13")
def test_a_later_hop_fails_only_the_ranges_whose_earlier_hop_is_stale(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    before = ask_clickhouse(one, f"SELECT id, name FROM warehouse.{one.table} WHERE id = 7")
    one.source("UPDATE {t} SET name = 'changed' WHERE id = 7")
    damage(one, "DELETE WHERE id = 77")
    result = materialize_all(one, hop=2)
    assert not result.success
    (failure,) = (event for event in result.all_events if event.is_step_failure)
    user_failure = failure.step_failure_data.user_failure_data
    assert user_failure is not None and user_failure.description is not None
    (line,) = user_failure.description.splitlines()
    for part in (FIRST, f"sqlserver://dbo.{one.table}", "source_changed", "run hop 1 first"):
        assert part in line
    assert user_failure.metadata["failed_ranges"].value == [FIRST]
    seen = {
        view.range: view.state
        for view in runner.status(one.session, one.table).ranges
        if view.hop == 2
    }
    assert seen == {FIRST: "failed", SECOND: "committed", LAST: "skipped_unchanged"}
    after = ask_clickhouse(one, f"SELECT id, name FROM warehouse.{one.table} WHERE id IN (7, 77)")
    assert sorted(after) == sorted([*before, (77, "name 77")])
    assert one.run().good
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


def test_a_stricter_level_is_proven_without_moving(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}", reconcile="count")
    assert one.run().good
    one.declare(DIRECT, ranges="{rows: 50}", reconcile="full_hash")
    assert {view.reason for view in one.plan().ranges} == {"unchecked"}
    view = one.run()
    assert view.good, view.errors
    assert one.moved(view) == []
    assert all(row.checks["full_hash"] for row in view.ranges)
    assert {view.reason for view in one.plan().ranges} == {"unchanged"}


def test_a_check_waits_for_a_move_and_says_so(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE)
    assert one.run().good
    assert runner.blocking_runs(one.session, one.table) == []
    log = one.session.instance.event_log_storage
    assert log.claim_concurrency_slot(one.table, "another-run", one.table).is_claimed
    threading.Timer(5, log.free_concurrency_slots_for_run, ["another-run"]).start()
    result = command("check", one.table)
    assert result.exit_code == 0
    assert result.stderr == "ferry: waiting for run another- of this transfer to end\n"
    checked = next(iter(one.session.instance.get_runs(limit=1)))
    blocked = [
        entry
        for entry in one.session.instance.all_logs(checked.run_id)
        if entry.dagster_event and "blocked" in str(entry.dagster_event.message)
    ]
    assert blocked, "Dagster's pool held it back"


def test_the_json_of_a_check_is_complete(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    view = runner.check(one.session, one.table)
    assert isinstance(view, CheckView)
    assert view.closing == f"all {len(view.checks)} checks passed"
    assert json.loads(json.dumps(view.json(), default=str))["not_committed"] == []


def hide_rows(one: Ferry, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, the source's table is gone whenever differing rows are looked for."""

    def hidden(both: Any, look: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        one.source("ALTER TABLE {t} RENAME TO {t}_away")
        try:
            return look(both, *arguments, **options)
        finally:
            one.source("ALTER TABLE {t}_away RENAME TO {t}")

    for owner, name in ((Comparison, "rows_that_differ"), (ComparisonByKey, "compare_rows")):
        monkeypatch.setattr(owner, name, partialmethod(hidden, getattr(owner, name)))


@pytest.mark.invariant("I11")
@pytest.mark.parametrize(
    ("level", "mode"),
    [("checksum", "replace"), ("full_hash", "replace"), ("count", "upsert"), ("checksum", "none")],
)
def test_a_failure_stands_whose_rows_cannot_be_shown(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, level: str, mode: str
) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}", write="replace" if mode == "none" else mode)
    assert one.run().good
    if mode == "none":
        one.declare(DIRECT, ranges="{rows: 50}", write=mode)
        assert_ends(command("check", one.table), 0)
    damage(one, "DELETE WHERE id = 7" if level == "count" else "UPDATE name = '' WHERE id = 7")
    why = "which rows differ cannot be shown: "
    with monkeypatch.context() as patch:
        hide_rows(one, patch)
        tables = f"postgres://public.{one.table}", f"clickhouse://warehouse.{one.table}"
        compared = command("compare", *tables)
        assert compared.exit_code == 1 and why in compared.output, compared.output
        assert_ends(command("check", one.table, "--level", level), 1, f"{why}postgres")
    if mode == "none":
        assert not runner.status(one.session, one.table).good
    else:
        assert "last_check_failed" in {view.reason for view in one.plan().ranges}
        assert one.run().good
        assert_ends(command("check", one.table), 0)


def test_a_failure_stands_if_the_next_check_cannot_be_done(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    expected = "[{type: sql, kwargs: {query: 'SELECT gone FROM {table} WHERE {range}'}}]"
    one.declare(DIRECT, ranges="{rows: 50}", write="none")
    assert_ends(command("check", one.table), 0)
    damage(one, "UPDATE name = '' WHERE id = 7")
    one.declare(DIRECT, ranges="{rows: 50}", write="none", expectations=expected)
    assert command("check", one.table).exit_code != 0
    assert not runner.status(one.session, one.table).good
