"""Which rows of a changed range an `incremental` transfer moves: all, or from a watermark on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.records import Proven, RangeRecord
from tableferry.assets.log.states import Reason
from tableferry.assets.planning.columns.hop_columns import watermark_column
from tableferry.assets.planning.rows.decision import Decision
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.table_sql import filtered, predicate
from tableferry.resources.keys.bounds import to_bound
from tableferry.resources.keys.range import KeyRange


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
) -> Decision:
    """Decide why one range of a hop runs, and from which watermark on.

    An increment can only follow a commit that nothing has called into question since. A hop also
    proves a range again after the hop before has done so, as that is where its rows come from.

    Args:
        reason: why the range would run if the transfer were not incremental.
        records: its newest record in each hop up to this one, whose record is the last.
        failed: one of its checks has failed since.
        column: the watermark column.
        full_check: seconds after which a range has to be proven as a whole again.
        at: the current time, in seconds since 1970.
    """
    last = intact(records[-1], column)
    # for the hops before, it matters when a range was proven, not whether it was tried again since
    proven = [record.proven if record else None for record in records[:-1]] + [last]
    times = [proof.at for proof in proven if proof]
    due = (
        failed
        or any(proof is None or at - proof.at >= full_check for proof in proven)
        or times != sorted(times)
    )
    if reason is Reason.UNCHANGED and due:
        return Decision(Reason.FULL_CHECK)
    if reason is Reason.SOURCE_CHANGED and not due and last is not None:
        return Decision(reason, since=last.watermark)
    return Decision(reason)


def intact(record: RangeRecord | None, column: str) -> Proven | None:
    """The proof that an increment can follow; None after an attempt that was not completed."""
    if record is None or not record.state.in_target or record.proven is None:
        return None
    return record.proven if record.proven.column == column else None


def from_watermark(plan: CopyPlan, transfer: Transfer, since: str) -> CopyPlan:
    """Restrict a hop's plan to the rows with this watermark, a later one, or none."""
    column = watermark_column(plan, transfer)
    kind = key_kind(column.source, plan.source.system)[0]
    rows = KeyRange(kind, to_bound(since, kind))
    condition = predicate(column.source, rows, plan.source.system)
    if column.source.nullable:
        condition += f" OR {plan.source.system.quote(column.source.name)} IS NULL"
    return replace(plan, where=filtered(condition, plan.where))


def keys_and_watermarks(plan: CopyPlan, transfer: Transfer) -> CopyPlan:
    """Restrict a hop's plan to its key columns and its watermark column."""
    names = {plan.key.target.name, watermark_column(plan, transfer).target.name, *plan.primary_key}
    columns = tuple(column for column in plan.columns if column.target.name in names)
    return replace(plan, columns=columns, figures=())
