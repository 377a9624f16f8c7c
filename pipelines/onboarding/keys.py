"""Which column cuts a table into ranges, how many rows each has, and which tells their age."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tableferry.resources.columns.key_kind import is_text_key, key_kind
from tableferry.resources.contract.catalog import TableSize
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError
from tableferry.resources.types.column import Column

USUAL_ROWS = 250_000
RANGE_BYTES = 64 << 20
"""Aimed-at size of a range in the source: seconds of work, and little to repeat."""
FEWEST_ROWS, MOST_ROWS = 10_000, 1_000_000
COMFORTABLE_RANGES = 400
"""Aimed-at maximum of ranges per table; see `assets.declaring.bounds.MAX_RANGES`."""
CHANGED = ("updated_at", "modified_at", "changed_at", "last_modified", "last_update", "updated")
"""Usual names of columns that hold the time of a row's last change."""


def choose_key(
    columns: Sequence[Column], leading: Sequence[str], system: System
) -> tuple[str | None, str, tuple[Column, ...]]:
    """Choose the column to cut ranges by; return it, the reason, and all possible columns.

    The first choice is the primary key's first column, if it is orderable; then one of the columns
    that lead an index, because without one every range would scan the whole table. A text is
    chosen only if it is the whole primary key.
    """
    primary_key = [column.name for column in columns if column.primary_key]
    composite = len(primary_key) > 1
    possible = [
        column
        for column in columns
        if not column.generated and is_orderable(column, system)
        if column.primary_key == 1 or not is_text_key(column, system)
    ]
    primary = sorted(
        (column for column in possible if column.primary_key),
        key=lambda column: column.primary_key or 0,
    )
    by_name = {column.name: column for column in possible}
    indexed = [by_name[name] for name in leading if name in by_name]
    keys = tuple(dict.fromkeys([*primary, *indexed, *possible]))
    # many rows may have the same text in the first column of a composite key
    shared = composite and bool(primary) and is_text_key(primary[0], system)
    if primary and primary[0].primary_key == 1 and not shared:
        why = "the first column of the primary key" if composite else "the primary key"
        return primary[0].name, why, keys
    for column in indexed:
        if not column.nullable and not is_text_key(column, system):
            return column.name, "an index begins with it, and it is NOT NULL", keys
    if not possible:
        return None, "there is no integer, date, timestamp or uuid column", keys
    if primary_key:
        begins = "a text, which many rows may share" if shared else "a column that cannot be cut"
        return None, f"the primary key ({', '.join(primary_key)}) begins with {begins}", keys
    return None, "there is no primary key, nor an index that begins with a NOT NULL column", keys


def range_rows(size: TableSize) -> int:
    """Choose the rows per range, so that ranges are neither too large nor too many."""
    rows = USUAL_ROWS
    if size.bytes and size.rows:
        fitting = RANGE_BYTES * size.rows // size.bytes
        rows = min(max(_round_up(fitting), FEWEST_ROWS), MOST_ROWS)
    return max(rows, _round_up(size.rows // COMFORTABLE_RANGES))


def _round_up(rows: int) -> int:
    """Round up to 1, 2.5 or 5 times a power of ten."""
    unit = 1
    while unit * 10 <= max(rows, 1):
        unit *= 10
    return next(step for step in (unit, unit * 5 // 2, unit * 5, unit * 10) if step >= rows)


def is_orderable(column: Column, system: System) -> bool:
    try:
        key_kind(column, system)
    except InputError:
        return False
    return True


def is_watermark(column: Column, system: System) -> bool:
    if column.name.lower() not in CHANGED or not is_orderable(column, system):
        return False
    return key_kind(column, system)[0] == "timestamp"


def description_of(column: Column, leading: Collection[str]) -> str:
    parts = [column.type]
    if column.nullable:
        parts.append("may be NULL")
    if column.name not in leading:
        parts.append("not indexed: each range would read the whole table")
    return ", ".join(parts)
