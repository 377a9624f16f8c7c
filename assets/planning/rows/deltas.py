"""Which changed ranges are compared first, so that only the rows that differ are moved."""

from __future__ import annotations

from contextlib import suppress

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.checks.levels import LEVELS
from tableferry.resources.contract.hazards import having
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.target_columns import unfilled
from tableferry.resources.digest.probe import DigestRefused, shared
from tableferry.resources.digest.segments import changed_segments, span
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
