"""Tells that a source has lost many of the rows that were committed, before that is published."""

from __future__ import annotations

from dataclasses import replace

from tableferry.assets.log.declared import declaration_of, selects_other_rows
from tableferry.assets.log.ledger import committed_records, partitions
from tableferry.assets.log.queries import Log
from tableferry.assets.planning.ranges.known import known_ranges
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.resources.errors import TableferryError, concerning

LEAST_ROWS = 1_000
"""Smaller tables may come and go."""
IF_RIGHT = "if that is right, let one run go on with on_shrink: warn"


def shrunk(plan: TransferPlan, servers: Servers, log: Log) -> str:
    """Say that a source has lost a greater share of its committed rows than is declared.

    Args:
        plan: the plan of a run. Where the ranges that it has fingerprinted have lost so many, the
            rows of the others are counted: the table may have them.
        servers: the servers of its tables.
        log: the event log.

    Returns:
        A sentence; empty if they have not, or if the targets keep such rows.
    """
    transfer = plan.declared
    if transfer.keeps_rows or not transfer.write.moves:
        return ""
    first, declared = plan.hops[0], declaration_of(transfer, 1)
    names, now = partitions(log, transfer.partitions_name), plan.rows()
    committed = {
        name: (record.rows or 0) + (record.quarantined or 0)
        for name, record in committed_records(log, first.spec.to, names).items()
        if not selects_other_rows(record.declared, declared)
    }
    kept = 1 - float(transfer.max_shrink.removesuffix("%")) / 100
    before, own = sum(committed.values()), sum(committed.get(name, 0) for name in now)
    if before < LEAST_ROWS or sum(now.values()) >= own * kept:
        return ""
    if others := [each for each in known_ranges(transfer, plan.hops, log) if each.name not in now]:
        source = servers.side(replace(first.plan, fitting=None), "source")
        now = {**now, **source.counts(others)}
    rows = sum(now.values())
    if rows >= before * kept:
        return ""
    return (
        f"{transfer.source} has {rows:,} rows where {before:,} were committed: more than "
        f"{transfer.max_shrink} of them are gone"
    )


def require_not_shrunk(plan: TransferPlan, servers: Servers, log: Log) -> str:
    """Return `shrunk`.

    Raises:
        TableferryError: a run may not go on, as `on_shrink: fail` is declared.
    """
    said = shrunk(plan, servers, log)
    if said and plan.declared.on_shrink == "fail":
        with concerning(plan.declared.transfer):
            raise TableferryError(f"{said}; {IF_RIGHT}")
    return said
