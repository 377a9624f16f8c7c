"""Which transfers can be repaired that move nothing (`write: none`), whose targets others fill."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.movers import MOVERS
from tableferry.assets.log.ledger import committed_records
from tableferry.assets.log.queries import Log
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.deltas import only_whole
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.assets.running.adopting import unfit
from tableferry.assets.verifying.as_committed import changed_since
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import InputError


def require_repairable(plan: TransferPlan, hops: Sequence[Hop], servers: Servers) -> None:
    """Refuse to repair what another tool has moved, where a row of it cannot be written.

    Nothing is created or altered for a repair, as it is for a move.

    Args:
        plan: the plan of a repair.
        hops: its hops that would be repaired.
        servers: the servers of its tables.

    Raises:
        InputError: names each target, and why its rows cannot be put right.
    """
    if plan.declared.write.moves:
        return
    transfer, reasons = plan.transfer, []
    for hop in hops:
        why = (
            _kept_by_its_mover(transfer)
            or _of_versions(hop)
            or _no_table(hop, servers)
            or unfit(transfer, hop)
            or only_whole(transfer, hop)
            or _incomplete(hop, servers)
        )
        if why:
            target = hop.plan.target
            reasons.append(why if str(target) in why else f"{target}: {why}")
    if reasons:
        raise InputError(f"{transfer.transfer} cannot be repaired: {'; '.join(reasons)}")


def damaged_sources(
    plan: TransferPlan, number: int | None, servers: Servers, log: Log, names: Collection[str]
) -> dict[str, str]:
    """Say of which ranges the source of a later hop is not what the hop before has proved.

    Args:
        plan: the plan of the transfer.
        number: the only hop that is repaired; None: all are, the one before first.
        servers: the servers of its tables.
        log: the event log.
        names: the ranges in question.
    """
    if number in (None, 1) or not plan.declared.write.moves:
        return {}
    before, hop = plan.hops[number - 2 : number]
    ranges = [each for name, each in plan.ranges.items() if name in names]
    known = committed_records(log, before.spec.to, [each.name for each in ranges])
    changed = changed_since(before, servers, ranges, known)
    return {
        name: f"{hop.plan.target} {name}: {before.plan.target} has other rows than "
        f"hop {before.number} has proved there: {verdict.summary()}; repair it first"
        for name, verdict in changed.items()
    }


def _kept_by_its_mover(transfer: Transfer) -> str:
    if transfer.mover is None:
        return ""
    title = MOVERS[transfer.mover].title
    return f"{title} keeps its own columns and versions of rows there; let it copy the rows again"


def _of_versions(hop: Hop) -> str:
    if hop.plan.target not in hop.plan.final:
        return ""
    return (
        "it keeps several versions of a row, and is read with FINAL; have who fills it write anew"
    )


def _no_table(hop: Hop, servers: Servers) -> str:
    target = hop.plan.target
    if target.system.by_path:
        return f"rows of {target.system.title} are not written by themselves"
    listed = source_of(target.system).tables(servers.endpoint(target), target.connection)
    if any(each.table == target and each.view for each in listed):
        return "it is a view, which shows rows of other tables; compare the table itself"
    return ""


def _incomplete(hop: Hop, servers: Servers) -> str:
    """Say which columns of both tables a transfer leaves out, so that rows would lack them."""
    plan, existing = hop.plan, hop.existing or {}
    copied = {column.target.name for column in plan.columns}
    others = {
        name.casefold()
        for name, column in existing.items()
        if name not in copied and not column.generated
    }
    compared = {column.source.name for column in plan.columns}
    left_out = [
        column.name
        for column in servers.endpoint(plan.source).columns(plan.source)
        if column.name not in compared and column.name.casefold() in others
    ]
    if not left_out:
        return ""
    return f"rows would be written without {', '.join(map(repr, left_out))}, which is left out"
