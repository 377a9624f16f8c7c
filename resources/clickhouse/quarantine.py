"""Keeps the values that ranges were published without, a partition of a table for each range."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tableferry.resources import crash_points
from tableferry.resources.clickhouse.dialect import literal
from tableferry.resources.clickhouse.layout import layout_of
from tableferry.resources.clickhouse.locks import HeldRange
from tableferry.resources.clickhouse.replaced import let_go
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target_names import (
    COLUMNS,
    RANGE,
    ROW_NUMBER,
    of_ranges,
    quarantine_of,
)
from tableferry.resources.tables import TableRef

SETTINGS = {"insert_deduplicate": 0, "async_insert": 0}

VALUE = "row_key, column_name, value, row_number"
"""What identifies a value that is kept of a range."""


def create_quarantine(resource: ClickHouseServer, plan: CopyPlan) -> None:
    """Create the table beside a target that rejects rows, or give it the columns that it lacks."""
    if not plan.fitting:
        return
    table = qualified(quarantine_of(plan.target))
    columns = ", ".join(f"{name} Nullable(String)" for name in COLUMNS)
    resource.execute(
        f"CREATE TABLE IF NOT EXISTS {table} ({RANGE} String, {columns})"
        f" ENGINE = MergeTree PARTITION BY {RANGE} ORDER BY tuple()"
    )
    resource.execute(f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {ROW_NUMBER} Nullable(String)")


def replace_quarantine(held: HeldRange, *, keep: bool = False) -> None:
    """Replace what is kept of a range, at once; it may be repeated.

    Args:
        held: the range, whose publication says what is to be kept of it.
        keep: whether what is kept already stays, each value once.
    """
    resource, target, range_name = held.resource, held.plan.target, held.key_range.name
    quarantine, table = held.publication.quarantine, qualified(quarantine_of(target))
    if quarantine.rows is None:
        return
    rows = [*quarantine.stored(range_name, literal)]
    if not rows:
        if not keep:
            _forget(resource, target, [range_name])
        return
    staging = replace(held.staging_table, name=f"{held.staging}v")
    staged, partition = qualified(staging), literal(range_name)
    resource.execute(drop_table(staging))
    resource.execute(f"CREATE TABLE {staged} AS {table} COMMENT {held.owner.comment()}")
    try:
        _insert(resource, staged, rows)
        if keep:
            resource.execute(
                f"INSERT INTO {staged} SELECT * FROM {table} WHERE {RANGE} = {partition} "
                f"AND ({VALUE}) NOT IN (SELECT {VALUE} FROM {staged})",
                SETTINGS | {"transform_null_in": 1},
            )
        crash_points.reached("inside_quarantine")
        resource.execute(f"ALTER TABLE {table} REPLACE PARTITION {partition} FROM {staged}")
    finally:
        resource.execute(drop_table(staging))
    if not keep:
        _let_go(resource, target, [range_name])


def keep_quarantined(resource: ClickHouseServer, target: TableRef, ranges: Collection[str]) -> None:
    """Remove what is kept of other ranges than these."""
    table = qualified(quarantine_of(target))
    if not layout_of(resource, quarantine_of(target)):
        return
    rest = f"WHERE NOT ({of_ranges(target, ranges)})" if ranges else ""
    names = resource.query(f"SELECT DISTINCT {RANGE} FROM {table} {rest}")
    _forget(resource, target, [str(name) for (name,) in names])


def _forget(resource: ClickHouseServer, target: TableRef, ranges: Collection[str]) -> None:
    for name in ranges:
        table = qualified(quarantine_of(target))
        resource.execute(f"ALTER TABLE {table} DROP PARTITION {literal(name)}")
    _let_go(resource, target, ranges)


def _let_go(resource: ClickHouseServer, target: TableRef, ranges: Collection[str]) -> None:
    if ranges:
        names = ", ".join(map(literal, ranges))
        let_go(resource, quarantine_of(target), f"partition IN ({names})", "''")


def _insert(resource: ClickHouseServer, table: str, rows: Sequence[str]) -> None:
    names = ", ".join((RANGE, *COLUMNS))
    resource.execute(f"INSERT INTO {table} ({names}) VALUES {', '.join(rows)}", SETTINGS)
