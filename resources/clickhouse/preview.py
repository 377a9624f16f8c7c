"""The statements that load a range into a ClickHouse table, for a dry run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tableferry.resources.clickhouse.ddl import (
    copy_columns,
    create_table,
    drop_known,
    in_partition,
    kept_rows,
    replace_partition,
    rewrite,
    stage_kept,
)
from tableferry.resources.clickhouse.locks import Owner
from tableferry.resources.clickhouse.markers import STEP, MarkerTable
from tableferry.resources.clickhouse.staging import Image, plain_staging_table, staging_table
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Publication, Published
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target import ATTEMPT
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.contract.target_options import (
    TargetOptions,
    appends,
    keeps_rows,
    written_to,
)
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import staging_name


def creation(
    plan: CopyPlan, options: TargetOptions, markers: MarkerTable, *, creates: bool
) -> Iterator[str]:
    """The statements that create the tables; see `Target.creation`."""
    yield markers.creation()
    if creates:
        yield create_table(plan, options)
    if options.recreate:
        yield create_table(replace(plan, target=shadow_of(plan.target)), options)
    elif options.mode.whole_table:
        yield f"CREATE TABLE {qualified(shadow_of(plan.target))} AS {qualified(plan.target)}"
        yield "-- its partitions are attached to that table, without a copy"


def publication(
    plan: CopyPlan,
    key_range: KeyRange,
    options: TargetOptions,
    markers: MarkerTable,
    *,
    atomic: bool,
    image: Image,
) -> Iterator[str]:
    """The statements that stage and publish a range; see `Target.publication`.

    `atomic` says whether the table has one partition per key range, and `image` what its staging
    tables look like.
    """
    table = written_to(plan, options)
    staging, owner = f"{staging_name(plan.target, key_range.name)}_{ATTEMPT}", Owner("<run>")
    staged, columns = qualified(table, staging), copy_columns(plan)
    in_range = plan.target_range(key_range)
    if atomic:
        yield from staging_table(table, staging, owner, key_range, image)
    else:
        yield from plain_staging_table(table, staging, owner)
    yield f"INSERT INTO {staged} ({columns})"
    yield "-- the rows, as a stream; then the checks"
    target = qualified(table)
    if appends(plan, options) and atomic:
        yield drop_known(plan, target, staged)
    if atomic and keeps_rows(plan, options):
        # the rows of a range are those of its partition, whatever their keys
        in_range = in_partition(key_range)
        yield stage_kept(columns, target, staged, kept_rows(plan, options, staged, in_range))
    if options.audits_shown and atomic:
        yield f"-- the partition as it is in {table} is kept, to be put back"
    known = Published()
    what = Publication(plan, key_range, "<data version>", "<run>", "<home>", known)
    identity, token = "<UUID of the table>", "<token>"
    yield markers.putting(identity, what, token, announced=True)
    if atomic:
        yield replace_partition(target, staged, key_range)
    else:
        yield from filter(None, rewrite(plan, options, target, staged, in_range))
    if options.audits_shown:
        yield f"-- the rows of the range in {table} must be those that were staged"
    yield markers.confirming(identity, what, token, STEP)
    yield drop_table(table, staging)
