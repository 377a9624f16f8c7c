"""Which rows of a changed range move: all, those that differ, or those from a watermark on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.records import Proven, RangeRecord
from tableferry.assets.log.states import Reason
from tableferry.assets.planning.columns.hop_columns import watermark_column
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.decision import Decision
from tableferry.assets.planning.servers import Servers
from tableferry.checks.levels import LEVELS
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import having
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.table_sql import filtered, predicate
from tableferry.resources.contract.target_columns import unfilled
from tableferry.resources.digest.probe import DigestRefused, shared
from tableferry.resources.digest.stretches import changed_segments, span
from tableferry.resources.keys.cover import to_bound
from tableferry.resources.keys.range import KeyRange

FEW = 100
"""So few rows are moved by themselves by `auto`, whatever their share of a range."""

SMALL = 1_000
"""A range of fewer rows is moved in the time that its comparison takes."""

MOST_ROWS = 50_000
"""Maximum number of rows of a range that are moved by themselves: their keys are held in memory,
and are listed in statements."""

FEW_OF = 4
"""Up to one in so many segments is read row by row in less time than all are summed up."""


def compares_first(transfer: Transfer, hop: Hop, servers: Servers, rows: int) -> bool:
    """Whether a range of so many rows is compared, if few may differ, to move only these."""
    if transfer.delta == "never" or only_whole(transfer, hop):
        return False
    if transfer.delta == "always":
        return True
    if not LEVELS[transfer.reconcile].values:
        return False
    if _unfilled(hop):
        return True  # rows that stay as they are keep their values there
    if not loader_of(hop.plan.target.system).delta_share:
        return False
    if having(hop.options.hazards, "destroys"):
        return True  # to replace the range is refused
    if rows < SMALL:
        return False
    return bool(having(hop.options.hazards, "changes")) or not _digests_slowly(hop, servers)


def changed_parts(key_range: KeyRange, before: str, now: str) -> tuple[KeyRange, ...]:
    """Return the parts of a range whose source has changed since its commit.

    Args:
        key_range: the range.
        before: the hashes of its segments, as they were recorded.
        now: those of its present rows.

    Returns:
        The parts; none if they are not known, or are so many that both sides are compared in
        less time.
    """
    changed = changed_segments(key_range, before, now)
    if not changed:
        return ()
    keys = sum(span(part) for part in changed)
    return tuple(changed) if keys * FEW_OF <= span(key_range) else ()


def most_rows(transfer: Transfer, hop: Hop, rows: int) -> int:
    """Return how many rows of a range may differ for them to be moved by themselves."""
    if transfer.delta == "always":
        return MOST_ROWS
    share = 1.0 if _unfilled(hop) else loader_of(hop.plan.target.system).delta_share
    return min(MOST_ROWS, max(FEW, int(rows * share)))


def _unfilled(hop: Hop) -> bool:
    """Whether the target has columns whose values a move of whole ranges would not bring again."""
    return bool(unfilled(hop.plan, (hop.existing or {}).values(), hop.options.mark))


def _digests_slowly(hop: Hop, servers: Servers) -> bool:
    """Whether the target's server takes longer to digest a range than to replace it, or cannot."""
    source, target = (servers.endpoint(table) for table in (hop.plan.source, hop.plan.target))

    def slowly() -> bool:
        with suppress(DigestRefused):
            _, dialect = shared(source, target)
            return dialect.variant in target.system.slow_digests
        return True

    # asked of each changed range
    return target.settings().facts.known(("digests slowly", source.settings().address), slowly)


def only_whole(transfer: Transfer, hop: Hop) -> str:
    """Why single rows of a range cannot be told, compared, or written by themselves.

    Empty if they can be.
    """
    plan, mode = hop.plan, hop.options.mode
    if hop.existing is None:
        return f"{plan.target} does not exist"
    changed = [c.source.name for c in plan.columns if c.on_overflow != "refuse"]
    problems = {
        # a column that is added to the target differs in every row
        f"{plan.target} lacks columns": hop.lacking,
        f"rows of {plan.target.system.title} are not written by themselves": (
            not loader_of(plan.target.system).deltas
        ),
        f"'write: {mode}' never changes rows": mode.keeps_known,
        f"{plan.source} has no primary key that is copied as a whole": not plan.row_identity,
        transfer.read_in_one_state: transfer.read_in_one_state,
        f"{plan.source.system.title} have no key": source_of(plan.source.system).file_key,
        # of values that a policy changes, a move counts those of all rows
        f"on_overflow changes values of {', '.join(map(repr, changed))}": changed,
        "expectations may be about all rows of a range": transfer.expectations,
        "the rows that on_reject keeps back are found as a range moves": hop.plan.fitting,
    }
    return next((why for why, problem in problems.items() if problem), "")


def uses_segments(transfer: Transfer) -> bool:
    """Whether ranges are fingerprinted by segments, which tell a run where rows have changed."""
    mode = transfer.write
    if not mode.moves or transfer.read_in_one_state or transfer.keeps_rows:
        return False
    if transfer.delta != "auto":
        return transfer.delta == "always"
    shares = [loader_of(hop.to.system).delta_share for hop in transfer.hops]
    return any(shares) and LEVELS[transfer.reconcile].values


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
