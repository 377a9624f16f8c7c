"""Finds the columns that earlier runs filled, and that a transfer does not copy any more."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tableferry.assets.log.queries import Log
from tableferry.assets.log.written_columns import WrittenColumn, written_columns
from tableferry.assets.planning.changes.drift import Unplanned, origin_of
from tableferry.assets.planning.resolve import Hop

SCHEMAS_READ = 1_000
"""How many records are searched for the columns of earlier data versions; a run leaves a few."""


def unplanned_columns(hops: Sequence[Hop], log: Log) -> dict[int, Unplanned]:
    """Find the columns that the targets of a transfer have, and that its hops lack, by hop number.

    Args:
        hops: all hops of the transfer.
        log: the event log, which tells what earlier runs filled.
    """
    by_hop: dict[int, Unplanned] = {}
    held: set[str] = set()
    for hop in hops:
        written = next(written_columns(log, hop.spec.to), None)
        planned = {column.name for column in hop.plan.target_columns}
        lost: list[WrittenColumn] = []
        left_out: list[WrittenColumn] = []
        for column in written.columns if written else ():
            if column.name in planned or column.name not in (hop.existing or {}):
                continue
            # a column that was computed was never the source's to lose
            known = column.computed or {column.name, column.source} & (hop.known_columns | held)
            (left_out if known else lost).append(column)
        held = {column.name for column in left_out}
        filled = written.filled if written else None
        by_hop[hop.number] = Unplanned(tuple(lost), tuple(left_out), filled)
    return by_hop


def only_fewer_columns(hop: Hop, log: Log, schemas: Collection[str]) -> set[str]:
    """Return those hashes of earlier columns of a hop that had all of the present ones, and others.

    Args:
        hop: the hop.
        log: the event log.
        schemas: the hashes, as the data versions of ranges have them.
    """
    open_, fewer = {*schemas} - {hop.schema_hash}, set()
    if not open_:
        return set()
    now = {(each.target.name, each.target.type, origin_of(each)) for each in hop.plan.columns}
    for written in written_columns(log, hop.spec.to, most=SCHEMAS_READ):
        if written.schema in open_:
            open_.remove(written.schema)
            then = {(each.name, each.type, each.description) for each in written.filled}
            if now < then:
                fewer.add(written.schema)
        if not open_:
            break
    return fewer
