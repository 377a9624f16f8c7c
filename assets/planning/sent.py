"""Which rows are digested as their source sends them, instead of by a query of its own."""

from __future__ import annotations

from collections.abc import Collection

from tableferry.assets.log.ledger import committed
from tableferry.assets.log.queries import Log
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.assets.planning.wires import sends_digests


def ranges_to_send(
    plan: TransferPlan, servers: Servers, log: Log, names: Collection[str]
) -> set[str]:
    """Return those of some ranges that move whatever their rows are, and have their digest sent.

    Of others, the fingerprint decides whether they move.
    """
    intent, first = plan.intent, plan.hops[0]
    if plan.snapshot is None or intent.adopt or intent.repair or first not in plan.selected:
        return set()
    if first.wire != "text" or plan.transfer.fingerprint not in ("auto", "content"):
        return set()
    if not sends_digests(plan.transfer, first, servers.endpoint(first.plan.source)):
        return set()
    moving = set(names)
    for hop in plan.hops:
        if not (intent.force and hop in plan.selected):
            moving -= committed(log, hop.spec.to, ()).keys()
    return moving


def with_fingerprints(
    plan: TransferPlan, servers: Servers, log: Log, names: Collection[str]
) -> TransferPlan:
    """Return the plan with fingerprints of these ranges added, unless it has them already."""
    return plan.fingerprinted(servers, names, ranges_to_send(plan, servers, log, names))
