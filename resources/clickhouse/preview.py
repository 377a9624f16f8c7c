"""The statements by which a range gets into a ClickHouse table, for who wants to see them first."""

from __future__ import annotations

from collections.abc import Iterator

from resources.clickhouse.ddl import (
    Owner,
    copy_columns,
    create_table,
    drop_table,
    is_in,
    not_in,
    partition,
    plain_staging_table,
    range_hash,
    staging_table,
)
from resources.dialects import qualified
from resources.keys.range import KeyRange
from resources.plan import CopyPlan
from resources.tables import staging_name
from resources.target import ATTEMPT, TargetOptions, appends, row_identity, shadow_of, written_to


def creation(plan: CopyPlan, options: TargetOptions, *, creates: bool) -> Iterator[str]:
    """What makes the table; see `Target.creation`."""
    if creates:
        yield create_table(plan, options)
    if options.mode == "swap":
        yield f"CREATE TABLE {qualified(shadow_of(plan.target))} AS {qualified(plan.target)}"
        yield "-- its partitions are attached to that table, without a copy"


def publication(
    plan: CopyPlan, key_range: KeyRange, options: TargetOptions, *, atomic: bool
) -> Iterator[str]:
    """What stages a range and makes it visible; see `Target.publication`.

    Args:
        plan: the hop.
        key_range: the rows.
        options: how they are written.
        atomic: the table has one partition per key range.
    """
    table = written_to(plan, options)
    staging, owner = f"{staging_name(plan.target, key_range.name)}_{ATTEMPT}", Owner("<run>")
    staged, columns = qualified(table, staging), copy_columns(plan)
    own = plan.target_range(key_range)
    if atomic:
        yield from staging_table(table, staging, owner, key_range)
    else:
        yield from plain_staging_table(table, staging, owner)
    yield f"INSERT INTO {staged} ({columns})"
    yield "-- the rows, as a stream; then the checks"
    there = ""
    if row_identity(plan):
        there = f"(SELECT * FROM {qualified(table)} WHERE {is_in(plan, staged)})"
    if appends(plan, options) and atomic:
        yield f"DELETE FROM {staged} WHERE {is_in(plan, there)}"
    if options.mode in ("append", "upsert") and atomic and there:
        # whatever their keys, the rows of a range are those of its partition
        own = f"_partition_id = '{range_hash(key_range)}'"
        kept = own if options.mode == "append" else f"{own} AND {not_in(plan, staged)}"
        yield (
            f"INSERT INTO {staged} ({columns}) "
            f"SELECT {columns} FROM {qualified(table)} WHERE {kept}"
        )
    if atomic:
        yield f"ALTER TABLE {qualified(table)} REPLACE {partition(key_range)} FROM {staged}"
    else:
        delete, added = own, "1"
        if appends(plan, options):
            delete, added = "", f"NOT ({is_in(plan, there)})"
        elif options.mode == "upsert":
            delete = is_in(plan, staged)
        if delete:
            yield f"ALTER TABLE {qualified(table)} DELETE WHERE {delete}"
        yield (
            f"INSERT INTO {qualified(table)} ({columns}) SELECT {columns} FROM {staged} "
            f"WHERE {added}"
        )
    yield drop_table(table, staging)
