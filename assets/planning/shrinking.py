"""Tells that a source has lost many of the rows that were committed, before that is published."""

from __future__ import annotations

from tableferry.assets.log.ledger import committed_records
from tableferry.assets.log.queries import Log
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.resources.errors import TableferryError, concerning

LEAST_ROWS = 1_000
"""Smaller tables may come and go."""
IF_RIGHT = "if that is right, let one run go on with on_shrink: warn"


def shrunk(plan: TransferPlan, log: Log) -> str:
    """Say that the ranges of a plan have lost a greater share of their rows than is declared.

    Args:
        plan: the plan of a run; of ranges that are not fingerprinted nothing is known.
        log: the event log.

    Returns:
        A sentence; empty if they have not, or if the targets keep such rows.
    """
    transfer = plan.declared
    if transfer.keeps_rows or not transfer.write.moves:
        return ""
    known = committed_records(log, plan.hops[0].spec.to, plan.fingerprints).values()
    before = sum((record.rows or 0) + (record.quarantined or 0) for record in known)
    now = sum(plan.rows().values())
    share = float(transfer.max_shrink.removesuffix("%")) / 100
    if before < LEAST_ROWS or before - now <= before * share:
        return ""
    return (
        f"{transfer.source} has {now:,} rows where {before:,} were committed: more than "
        f"{transfer.max_shrink} of them are gone"
    )


def require_not_shrunk(plan: TransferPlan, log: Log) -> str:
    """Return `shrunk`.

    Raises:
        TableferryError: a run may not go on, as `on_shrink: fail` is declared.
    """
    said = shrunk(plan, log)
    if said and plan.declared.on_shrink == "fail":
        with concerning(plan.declared.transfer):
            raise TableferryError(f"{said}; {IF_RIGHT}")
    return said
