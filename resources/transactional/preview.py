"""The statements that publish a range, to be shown before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target import ATTEMPT
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.contract.target_options import (
    TargetOptions,
    appends,
    replaces,
    written_to,
)
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import staging_name
from tableferry.resources.transactional.markers import MarkerTable
from tableferry.resources.transactional.statements import Statements


def creation(
    sql: Statements, plan: CopyPlan, options: TargetOptions, *, creates: bool
) -> Iterator[str]:
    """The statements that create the table and, with `swap`, its shadow; see `Target.creation`."""
    if creates:
        yield sql.create_schema(plan.target)
        yield from sql.create_table(plan, plan.target)
        if options.mark:
            yield sql.add_mark(plan.target, options.mark)
        yield f"-- and unless it is there: {MarkerTable(sql, plan.target).creation()}"
    if options.mode.whole_table:
        shadow = shadow_of(plan.target)
        if options.recreate:
            yield from sql.create_table(plan, shadow)
        else:
            yield from sql.create_shadow(plan, shadow)
            yield sql.insert_all(plan, shadow, plan.target)


def publication(
    sql: Statements, plan: CopyPlan, key_range: KeyRange, options: TargetOptions, *, unstaged: bool
) -> Iterator[str]:
    """The statements that stage a range, unless it is unstaged, and publish it; see
    `Target.publication`."""
    table = written_to(plan, options)
    lock = staging_name(plan.target, key_range.name)
    staging, in_range = replace(table, name=f"{lock}_{ATTEMPT}"), plan.target_range(key_range)
    yield from sql.create_staging(plan, staging)
    if unstaged:
        yield from sql.begin
        if replaces(plan, options):
            yield sql.delete_range(table, in_range)
        yield f"-- the rows, by the server's bulk loader, into {table}; then the checks"
    else:
        yield "-- the rows, by the server's bulk loader; then the checks"
        if appends(plan, options):
            yield from sql.stage_known(plan, table, staging, in_range)
        yield from sql.begin
        if options.removes:
            yield sql.remove_gone(plan, table, staging, in_range, options.mark)
        yield from sql.publish(plan, options, table, staging, in_range)
        if options.audits_shown:
            yield from sql.run_deferred
            yield f"-- the rows of the range in {table} must be those that were staged"
    marked = Publication(plan, key_range, "<data version>", "<run>", "<home>")
    yield from MarkerTable(sql, plan.target, table).preview(marked)
    yield "-- a mark that tells whether a commit whose answer is lost took place"
    yield sql.commit
    yield sql.drop_staging(staging)
