"""What the ranges cannot show of a table, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from tableferry.assets.log.history import failed_checks
from tableferry.assets.log.runs import RANGE_END, RANGE_START
from tableferry.assets.running import execute
from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry

pytestmark = pytest.mark.integration

TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
    "INSERT INTO {t} SELECT g, 'name ' || g FROM generate_series(1, 100) g",
)
HOPS = "['clickhouse://warehouse.{t}']"
REPLACE_ONE_ROW_BY_ANOTHER = (
    "ALTER TABLE warehouse.{t} DELETE WHERE id = 60 SETTINGS mutations_sync = 2",
    "INSERT INTO warehouse.{t} (id, name) VALUES (61, 'name 61')",
)
WHOLE = {"total_rows", "unique_key", "no_stray_rows", "schema"}
Make = Callable[..., Ferry]


def test_a_failure_of_the_whole_table_fails_the_run_and_the_check(ferry: Make) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    found = runner.check(one.session, one.table).checks
    assert {checked.verdict.check for checked in found if checked.range is None} == WHOLE
    assert not any(checked.failed for checked in found)

    for statement in REPLACE_ONE_ROW_BY_ANOTHER:
        one.session.servers.endpoints["clickhouse"].execute(statement.format(t=one.table))
    one.source("UPDATE {t} SET name = 'changed' WHERE id = 7")
    view = one.run()
    assert all(row.state in ("committed", "skipped_unchanged") for row in view.ranges)
    assert all(all(row.checks.values()) for row in view.ranges), "no range knows of it"
    assert not view.good
    assert [error.partition(": ")[2].partition(":")[0] for error in view.errors] == [
        "unique_key FAILED"
    ]
    checks = runner.check(one.session, one.table, level="count").checks
    assert {(one.range, one.verdict.check) for one in checks if one.failed} == {
        (None, "unique_key")
    }


def test_rows_that_arrive_during_a_run_are_no_failure(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 50}")
    late = "INSERT INTO {t} VALUES (101, 'late')"
    after_the_ranges(monkeypatch, lambda: one.source(late))
    view = one.run()
    assert view.good, view.errors
    assert sum(row.rows or 0 for row in view.ranges) == 100


def test_nor_are_those_of_a_source_without_snapshots(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ferry("['sqlserver://dbo.{t}']", *TABLE)
    assert first.run().good
    first.declare(HOPS, source=f"sqlserver://dbo.{first.table}")
    server, late = (
        first.session.servers.endpoints["sqlserver"],
        f"INSERT INTO dbo.{first.table} VALUES ",
    )
    after_the_ranges(monkeypatch, lambda: server.execute(f"{late}(101, N'late')"))
    view = first.run()
    assert view.good, view.errors
    failed = [
        one for one in runner.check(first.session, first.table).checks if not one.verdict.passed
    ]
    assert ("total_rows", True) in {(one.verdict.check, one.warning) for one in failed}


@pytest.mark.parametrize("filtered", [{}, {"where": "name <> 'none'"}])
def test_rows_that_arrive_in_other_ranges_are_no_failure(
    ferry: Make, filtered: dict[str, str]
) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 50}", **filtered)
    one.source(
        "ALTER TABLE {t} ADD on_day date", "UPDATE {t} SET on_day = '0044-03-15 BC' WHERE id = 60"
    )
    assert not one.run().good
    one.source(
        "UPDATE {t} SET on_day = NULL",
        "INSERT INTO {t} SELECT g, 'new' FROM generate_series(200, 224) g",
    )
    # as the sensor that retries starts it: without a plan of the table
    failed = "0000000051..0000000101"
    result = one.launch(tags={RANGE_START: failed, RANGE_END: failed})
    check = dg.AssetCheckKey(dg.AssetKey(["clickhouse", "warehouse", one.table]), "total_rows")
    storage = one.session.instance.event_log_storage
    evaluation = storage.get_asset_check_execution_history(check, limit=1)[0].evaluation
    assert evaluation is not None
    assert not evaluation.passed
    assert evaluation.severity is dg.AssetCheckSeverity.WARN
    assert evaluation.metadata["source_rows_since"].value == 25
    assert failed_checks(one.session.instance, result.run_id) == []


def after_the_ranges(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let something happen when a run's ranges are done, before it checks the whole tables."""
    run_ranges = execute.run_ranges

    def and_then(*arguments: Any) -> Any:
        outcomes = run_ranges(*arguments)
        act()
        return outcomes

    monkeypatch.setattr(execute, "run_ranges", and_then)
