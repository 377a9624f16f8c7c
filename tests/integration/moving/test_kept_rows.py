"""`append` and `upsert` keep rows that the source has no more: those alone make no check fail."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg
import pytest

from tableferry.assets.log.runs import RANGE_END, RANGE_START
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import rows_of

pytestmark = pytest.mark.integration

SCHEMAS = {"clickhouse": "warehouse", "sqlserver": "dbo"}
FIRST, SECOND = "..0000000101", "0000000101..0000000201"
Make = Callable[..., Ferry]


def upserted(ferry: Make, system: str, **settings: str) -> Ferry:
    """A transfer whose first range has a row in the target that was deleted in the source."""
    one = ferry(
        f"['{system}://{SCHEMAS[system]}.{{t}}']",
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
        "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 FROM generate_series(1, 200) g",
        ranges="{rows: 100}",
        **{"write": "upsert", **settings},
    )
    first = one.run()
    assert first.good, first.errors
    one.source("DELETE FROM {t} WHERE id = 10", "UPDATE {t} SET name = 'changed' WHERE id = 11")
    return one


def evaluation(one: Ferry, system: str, check: str) -> dg.AssetCheckEvaluation:
    """The latest verdict of a check, on the first range or on the whole table."""
    asset = dg.AssetKey([system, SCHEMAS[system], one.table])
    found = one.session.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(asset, check), limit=50
    )
    # without a range, a check of ranges says how a run did in it
    whole = check in WHOLE_TABLE_CHECKS
    return next(
        record.evaluation
        for record in found
        if record.evaluation and record.partition == (None if whole else FIRST)
    )


@pytest.mark.parametrize(
    ("system", "level"),
    [
        ("clickhouse", "count"),
        ("clickhouse", "checksum"),
        ("clickhouse", "sample_hash"),
        ("sqlserver", "checksum"),
        ("sqlserver", "full_hash"),
    ],
)
def test_kept_rows_are_counted_and_make_no_check_fail(ferry: Make, system: str, level: str) -> None:
    one = upserted(ferry, system, reconcile=level)
    view = one.run()
    assert view.good, view.errors
    assert one.moved(view) == [FIRST]
    names = {row[0]: row[1] for row in rows_of(one, system)}
    assert (len(names), names[10], names[11]) == (200, "name 10", "changed")
    for check in {"row_count", level} - {"count"}:
        found = evaluation(one, system, check)
        assert found.passed
        assert found.metadata["kept_rows"].value == 1
    assert evaluation(one, system, "total_rows").severity is dg.AssetCheckSeverity.WARN
    assert {row.state for row in one.plan().ranges} == {"skip"}
    assert not any(check.failed for check in runner.check(one.session, one.table).checks)


@pytest.mark.parametrize(
    "damage",
    [
        "ALTER TABLE {t} DELETE WHERE id = 12",
        "ALTER TABLE {t} UPDATE amount = 0 WHERE id = 12",
        "INSERT INTO {t} (id, name, amount, _range) SELECT id, name, amount, _range FROM {t} "
        "WHERE id = 12",
    ],
    ids=["missing", "different", "twice"],
)
def test_kept_rows_hide_no_damage(ferry: Make, damage: str) -> None:
    one = upserted(ferry, "clickhouse")
    assert one.run().good
    server = one.session.servers.endpoints["clickhouse"]
    server.execute(
        damage.format(t=f"warehouse.{one.table}"),
        {"mutations_sync": 2, "insert_allow_materialized_columns": 1},
    )
    checks = runner.check(one.session, one.table).checks
    assert {check.range for check in checks if check.failed and check.range} == {FIRST}
    again = one.run()
    assert again.good, again.errors
    assert one.moved(again) == [FIRST]
    shown = [row for row in rows_of(one, "clickhouse") if row[0] != 10]
    assert shown == rows_of(one, "postgres")


def test_append_keeps_rows_but_not_their_changes(ferry: Make) -> None:
    one = upserted(ferry, "sqlserver", write="append")
    view = one.run()
    assert not view.good
    assert evaluation(one, "sqlserver", "row_count").passed
    assert "1 row differs: name" in view.errors[0]


def test_an_unchanged_range_with_kept_rows_is_skipped(ferry: Make) -> None:
    """Also when Dagster's UI asks for it; the command would not have run it."""
    one = upserted(ferry, "clickhouse")
    assert one.run().good
    result = one.launch(
        tags={RANGE_START: FIRST, RANGE_END: SECOND},
        raise_on_error=False,
    )
    assert result.success
    assert evaluation(one, "clickhouse", "row_count").metadata["kept_rows"].value == 1
    assert {row.state for row in runner.status(one.session, one.table).ranges[:2]} == {
        "skipped_unchanged"
    }
