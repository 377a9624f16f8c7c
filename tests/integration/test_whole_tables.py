"""What the ranges cannot show of a table, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assets.running import execute
from pipelines.command import runner
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


def after_the_ranges(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let something happen when a run's ranges are done, before it checks the whole tables."""
    run_ranges = execute.run_ranges

    def and_then(*arguments: Any) -> Any:
        outcomes = run_ranges(*arguments)
        act()
        return outcomes

    monkeypatch.setattr(execute, "run_ranges", and_then)
