"""Writes the rows by which a range differs, and no others, in the transaction that publishes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tableferry.resources.contract.delta import Delta
from tableferry.resources.digest.same_rows import SameRows
from tableferry.resources.errors import ReceiptMismatch
from tableferry.resources.transactional.other_ranges import Changes, other_ranges
from tableferry.resources.transactional.publish_audit import (
    hazards_now,
    require_deletable,
    require_unchanged,
)

if TYPE_CHECKING:
    from tableferry.resources.transactional.load import TransactionalLoad


def write_delta(load: TransactionalLoad[Any], delta: Delta) -> int:
    """Delete, update and insert rows in this order, and prove the range before the commit.

    Rows are deleted first, so that others can take over their unique values. A row is never deleted
    to be inserted again: its foreign keys would take rows of other tables with it.

    Returns:
        The range's rows.

    Raises:
        InputError: rows of other tables would be deleted along with those of the delta.
        ReceiptMismatch: other rows than those of the delta would be changed.
        ShownDiffers: rows of other ranges have changed.
        TableferryError: the range does not agree with its source.
    """
    sql, plan, table, options = load.sql, load.plan, load.table, load.options
    assert options.proof is not None
    others = None
    if options.audits_shown:
        same = SameRows.of(load.resource, plan, load.staging, table, load.columns)
        others = other_ranges(load, same)
        others.before()
    if delta.deleted and options.mark is None:
        require_deletable(load.session.query, sql, plan, load.key_range, options, table)
    update = sql.update_known(plan, table, load.staging, options.mark)
    # a row that comes back may be there, with a mark
    updates = delta.updated or (delta.inserted and options.mark)
    steps = (
        [sql.remove(table, condition, options.mark) for condition in delta.delete],
        [update] if update and updates else [],
        [sql.insert_new(plan, table, load.staging)] if delta.inserted else [],
    )
    deleted, updated, inserted = (sum(load.run(statements)) for statements in steps)
    expected = (delta.deleted, delta.updated, delta.inserted)
    differs = (deleted, updated, inserted) != expected
    if options.mark:
        differs = (deleted, updated + inserted) != (delta.deleted, delta.moved)
    # triggers add to these counts
    if not options.audits_shown and differs:
        raise ReceiptMismatch(
            f"{table} range {load.key_range.name}: {deleted} rows would be deleted, {updated} "
            f"updated and {inserted} inserted, not {', '.join(map(str, expected))}; rolled back"
        )
    if others is not None:
        load.run(sql.run_deferred)
    rows = options.proof(load.own_reader(), table)
    if others is not None:
        written = Changes(delta.inserted, delta.updated, delta.deleted)
        if options.mark:
            written = Changes(inserted, updated, deleted).marked(options.mark)
        require_unchanged(others, written, lambda: hazards_now(load))
    return rows
