"""Which rows of a changed range are moved, if it is `incremental`: all, or from a watermark on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.records import Proven, RangeRecord, Reason
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.table_sql import filtered, predicate
from tableferry.resources.errors import InputError
from tableferry.resources.keys.bounds import to_bound
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.ranges.key_kind import key_kind

KINDS = ("integer", "date", "timestamp")
"""Kinds of columns that can be watermarks."""


@dataclass(frozen=True)
class Increment:
    """What is to become of a range whose rows have watermarks."""

    reason: Reason
    since: str | None = None
    """Move only the rows with this watermark or a later one; None: all, if any."""


def now() -> float:
    """Seconds since 1970."""
    return time.time()


def increment(
    reason: Reason,
    records: Sequence[RangeRecord | None],
    *,
    failed: bool,
    column: str,
    full_check: float,
    at: float,
) -> Increment:
    """Decide about one range of a hop.

    Only what was committed, and not doubted since, can be gone on from. What a hop reads was
    proven by the hop before: if that has happened since, this hop is to be proven, too.

    Args:
        reason: why it would run if the transfer were not incremental.
        records: the newest of the range in each hop up to this one, whose own is the last.
        failed: a check of it has failed since.
        column: the watermark column.
        full_check: seconds after which a range is to be proven as a whole again.
        at: the present, in seconds since 1970.
    """
    own = intact(records[-1], column)
    # a hop before is asked when it was proven; that it was attempted again says nothing of this one
    proven = [one.proven if one else None for one in records[:-1]] + [own]
    due = failed or any(one is None or at - one.at >= full_check for one in proven)
    times = [one.at for one in proven if one]
    due = due or times != sorted(times)
    if reason is Reason.UNCHANGED and due:
        return Increment(Reason.FULL_CHECK)
    if reason is Reason.SOURCE_CHANGED and not due and own is not None:
        return Increment(reason, own.watermark)
    return Increment(reason)


def intact(record: RangeRecord | None, column: str) -> Proven | None:
    """What can be gone on from: nothing after an attempt that did not get to its end."""
    if record is None or not record.state.in_target or record.proven is None:
        return None
    return record.proven if record.proven.column == column else None


def watermark_column(plan: CopyPlan, transfer: Transfer) -> ColumnPlan:
    """The watermark column of a hop.

    Raises:
        InputError: it does not travel, or has no order that can be gone by.
    """
    assert transfer.watermark is not None, "the declaration has been checked"
    name = transfer.target_name(transfer.watermark)
    found = next((one for one in plan.columns if one.target.name == name), None)
    where = f"{transfer.transfer}: incremental: {plan.source}"
    if found is None:
        raise InputError(f"{where} has no column {name!r} that is copied")
    if _kind(found, plan) not in KINDS:
        raise InputError(
            f"{where}: the watermark column {found.source.name!r} is of type {found.source.type}; "
            "it should be an integer, date or timestamp"
        )
    return found


def from_watermark(plan: CopyPlan, transfer: Transfer, since: str) -> CopyPlan:
    """The plan of a hop for the rows with this watermark, a later one or none at all."""
    column = watermark_column(plan, transfer)
    kind = key_kind(column.source, plan.source.system)[0]
    rows = KeyRange(kind, to_bound(since, kind))
    condition = predicate(column.source, rows, plan.source.system)
    if column.source.nullable:
        condition += f" OR {plan.source.system.quote(column.source.name)} IS NULL"
    return replace(plan, where=filtered(condition, plan.where))


def keys_and_watermarks(plan: CopyPlan, transfer: Transfer) -> CopyPlan:
    """The plan of a hop, of nothing but these columns."""
    names = {plan.key.target.name, watermark_column(plan, transfer).target.name, *plan.primary_key}
    columns = tuple(one for one in plan.columns if one.target.name in names)
    return replace(plan, columns=columns, figures=())


def _kind(column: ColumnPlan, plan: CopyPlan) -> str:
    try:
        return key_kind(column.source, plan.source.system)[0]
    except InputError:
        return "none"
