"""Keeps the values that ranges were published without, a partition of a table for each range."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources import crash_points
from tableferry.resources.clickhouse.dialect import literal
from tableferry.resources.clickhouse.locks import Owner
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.contract.quarantine import COLUMNS, RANGE, Quarantine
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target import quarantine_of
from tableferry.resources.tables import TableRef

SETTINGS = {"insert_deduplicate": 0, "async_insert": 0}


def create_quarantine(resource: ClickHouseServer, target: TableRef) -> None:
    """Create the table beside a target, if it is missing."""
    columns = ", ".join(f"{name} Nullable(String)" for name in COLUMNS)
    resource.execute(
        f"CREATE TABLE IF NOT EXISTS {qualified(quarantine_of(target))} ({RANGE} String, {columns})"
        f" ENGINE = MergeTree PARTITION BY {RANGE} ORDER BY tuple()"
    )


def add_to_quarantine(
    resource: ClickHouseServer, target: TableRef, range_name: str, quarantine: Quarantine
) -> None:
    """Keep values of a range beside those that are kept of it already."""
    if kept := [*quarantine.stored(range_name)]:
        _insert(resource, qualified(quarantine_of(target)), kept)


def replace_quarantine(
    resource: ClickHouseServer,
    target: TableRef,
    range_name: str,
    quarantine: Quarantine,
    staging: TableRef,
    owner: Owner,
) -> None:
    """Replace what is kept of a range, at once; it may be repeated.

    Args:
        resource: the server.
        target: the table that the range is of.
        range_name: the range.
        quarantine: what is to be kept of it.
        staging: a table of that name is used in between.
        owner: who owns it.
    """
    kept, table = [*quarantine.stored(range_name)], qualified(quarantine_of(target))
    if not kept:
        resource.execute(f"ALTER TABLE {table} DROP PARTITION {literal(range_name)}")
        return
    staged = qualified(staging)
    resource.execute(drop_table(staging))
    resource.execute(f"CREATE TABLE {staged} AS {table} COMMENT {owner.comment()}")
    try:
        _insert(resource, staged, kept)
        crash_points.reached("inside_quarantine")
        resource.execute(
            f"ALTER TABLE {table} REPLACE PARTITION {literal(range_name)} FROM {staged}"
        )
    finally:
        resource.execute(drop_table(staging))


def forget_quarantine(resource: ClickHouseServer, target: TableRef, ranges: Sequence[str]) -> None:
    """Remove what is kept of ranges that there are no longer."""
    create_quarantine(resource, target)
    for name in ranges:
        table = qualified(quarantine_of(target))
        resource.execute(f"ALTER TABLE {table} DROP PARTITION {literal(name)}")


def _insert(resource: ClickHouseServer, table: str, rows: Sequence[tuple[str | None, ...]]) -> None:
    values = ", ".join(
        f"({', '.join('NULL' if text is None else literal(text) for text in row)})" for row in rows
    )
    resource.execute(f"INSERT INTO {table} VALUES {values}", SETTINGS)
