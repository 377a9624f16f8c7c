"""Tells that a source has lost many of the rows that were committed, before that is published."""

from __future__ import annotations

from tableferry.assets.log.declared import declaration_of, selects_other_rows
from tableferry.assets.log.ledger import committed_records, partitions
from tableferry.assets.log.queries import Log
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.resources.errors import TableferryError, concerning

LEAST_ROWS = 1_000
"""Smaller tables may come and go."""
IF_RIGHT = "if that is right, let one run go on with on_shrink: warn"


def shrunk(plan: TransferPlan, log: Log) -> str:
    """Say that a source has lost a greater share of its committed rows than is declared.

    Args:
        plan: the plan of a run; ranges that it has not fingerprinted count as they were committed.
        log: the event log.

    Returns:
        A sentence; empty if they have not, or if the targets keep such rows.
    """
    transfer = plan.declared
    if transfer.keeps_rows or not transfer.write.moves:
        return ""
    declared, names = declaration_of(transfer, 1), partitions(log, transfer.partitions_name)
    rows = {
        name: (record.rows or 0) + (record.quarantined or 0)
        for name, record in committed_records(log, plan.hops[0].spec.to, names).items()
        if not selects_other_rows(record.declared, declared)
    }
    before, now = sum(rows.values()), sum({**rows, **plan.rows()}.values())
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
