"""Which transfers can be repaired that move nothing (`write: none`), whose targets others fill."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.deltas import only_whole
from tableferry.assets.planning.resolve import Hop, Servers
from tableferry.assets.running.adopting import unfit
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import InputError


def require_repairable(transfer: Transfer, hops: Sequence[Hop], servers: Servers) -> None:
    """Refuse to repair what another tool has moved, where a row of it cannot be written.

    Nothing is created or altered for a repair, as it is for a move.

    Args:
        transfer: the transfer, as `Transfer.repaired` returns it.
        hops: its hops that would be repaired.
        servers: the servers of its tables.

    Raises:
        InputError: names each target, and why its rows cannot be put right.
    """
    if not transfer.watches:
        return
    reasons = []
    for hop in hops:
        why = _no_table(hop, servers) or unfit(hop) or only_whole(transfer, hop)
        if why:
            target = hop.plan.target
            reasons.append(why if str(target) in why else f"{target}: {why}")
    if reasons:
        raise InputError(f"{transfer.transfer} cannot be repaired: {'; '.join(reasons)}")


def _no_table(hop: Hop, servers: Servers) -> str:
    target = hop.plan.target
    if target.system.by_path:
        return f"rows of {target.system.title} are not written by themselves"
    listed = source_of(target.system).tables(servers.endpoint(target), target.connection)
    if any(each.table == target and each.view for each in listed):
        return "it is a view, which shows rows of other tables; compare the table itself"
    return ""
