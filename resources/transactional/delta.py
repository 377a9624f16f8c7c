"""Writes the rows by which a range differs, and no others, in the transaction that publishes it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from tableferry.resources.contract.delta import Delta
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import having, with_remedies
from tableferry.resources.contract.target_options import row_identity
from tableferry.resources.digest.same_rows import SameRows
from tableferry.resources.errors import ReceiptMismatch, RowsReferredTo
from tableferry.resources.transactional.other_ranges import Changes, other_ranges
from tableferry.resources.transactional.publish_audit import (
    hazards_now,
    require_deletable,
    require_unchanged,
)
from tableferry.resources.transactional.reader import SessionReader
from tableferry.resources.transactional.statements import Reference

if TYPE_CHECKING:
    from tableferry.resources.transactional.load import TransactionalLoad


def write_delta(load: TransactionalLoad[Any], delta: Delta) -> int:
    """Delete, update and insert rows in this order, and prove the range before the commit.

    Rows are deleted first, so that others can take over their unique values. A row is never deleted
    to be inserted again: its foreign keys would take rows of other tables with it.

    Returns:
        The range's rows.

    Raises:
        RowsReferredTo: rows of other tables would change along with those that are deleted.
        ReceiptMismatch: other rows than those of the delta would be changed.
        ShownDiffers: rows of other ranges have changed.
        TableferryError: the range does not agree with its source.
    """
    sql, plan, table, options = load.sql, load.plan, load.table, load.options
    others = None
    if options.audits_shown:
        same = SameRows.of(load.resource, plan, load.staging, table, load.columns)
        others = other_ranges(load, same)
        others.before()
    if delta.deleted and options.mark is None:
        _require_unreferred(load, delta)
    steps = sql.publish_delta(plan, delta, table, load.staging, options.mark)
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
    reader = SessionReader(load.resource, load.session)
    rows = delta.prove(cast(Endpoint, reader), table)
    if others is not None:
        written = Changes(delta.inserted, delta.updated, delta.deleted)
        if options.mark:
            written = Changes(inserted, updated, deleted).marked(options.mark)
        require_unchanged(others, written, lambda: hazards_now(load))
    return rows


def _require_unreferred(load: TransactionalLoad[Any], delta: Delta) -> None:
    """Refuse to delete a row that rows refer to which would change with it.

    These are locked out until the transaction ends. What refers to them in turn stays as they do.

    Raises:
        RowsReferredTo: names the row.
        InputError: rows would go that nothing refers to, as those of tables that inherit.
    """
    sql, plan, table, ask = load.sql, load.plan, load.table, load.session.query
    destroying = having(load.options.hazards, "destroys")
    if not destroying:
        return
    if any(hazard.kind != "foreign key" for hazard in destroying):
        return require_deletable(ask, sql, plan, load.key_range, load.options, table)
    for condition in delta.delete:
        if lock := sql.lock_referred(table, condition):
            ask(lock)
    pairs = [Reference(*row) for row in ask(sql.referring(table))]
    for (key, schema, name), references in groupby(pairs, key=lambda pair: pair[:3]):
        of_key = list(references)
        for condition in delta.delete:
            if rows := ask(sql.referred(plan, table, of_key, condition)):
                values = zip(row_identity(plan), rows[0], strict=True)
                row = ", ".join(f"{column} {str(value)!r}" for column, value in values)
                raise RowsReferredTo(
                    f"{table} range {load.key_range.name}: to delete the row with {row} would "
                    f"change rows of {schema}.{name} that refer to it by {key}; rolled back. "
                    f"{with_remedies(destroying)}"
                )
