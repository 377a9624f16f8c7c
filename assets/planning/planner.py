"""Plans what a run does: which ranges there are, what is in them, and why each of them runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.ledger import committed, records
from tableferry.assets.log.queries import Log
from tableferry.assets.log.states import Reason, State
from tableferry.assets.planning.intent import AS_DECLARED, Intent
from tableferry.assets.planning.rows.decisions import with_decisions
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.snapshots import read_under
from tableferry.assets.planning.transfer_plan import TransferPlan, plan_transfer
from tableferry.assets.planning.wires import sends_digests
from tableferry.resources.contract.snapshots import SharedSnapshot, Snapshot


def make_plan(
    declared: Transfer,
    servers: Servers,
    log: Log,
    intent: Intent = AS_DECLARED,
    *,
    shared: SharedSnapshot | None = None,
    names: Collection[str] | None = None,
    asked: Callable[[TransferPlan], Collection[str]] = lambda plan: plan.ranges,
) -> TransferPlan:
    """Plan a transfer, fingerprint its ranges and decide about them, in one state of the source.

    Args:
        declared: the transfer.
        servers: the servers of its tables.
        log: the event log.
        intent: what a run is asked to do.
        shared: the snapshots of the source, if it is read under one.
        names: plan these of the known ranges only, and do not look for new ones.
        asked: the ranges of a plan that are fingerprinted and decided about; by default all.

    Raises:
        TableferryError: the declaration does not fit the servers, or one of them does not answer.
        SourceMoved: the source was altered or replaced each time it was read.
    """

    def planned(snapshot: Snapshot | None) -> TransferPlan:
        plan = plan_transfer(declared, servers, log, intent, names=names)
        plan = replace(plan, shared=shared, snapshot=snapshot)
        wanted = set(asked(plan))
        plan = with_fingerprints(plan, servers, log, wanted)
        decided = with_decisions(plan.only(wanted), servers, log).decided
        return replace(plan, decided=decided)

    return read_under(shared, planned)


def with_fingerprints(
    plan: TransferPlan, servers: Servers, log: Log, names: Collection[str]
) -> TransferPlan:
    """Return the plan with fingerprints of these ranges added, unless it has them already."""
    return plan.fingerprinted(servers, names, _ranges_to_send(plan, servers, log, names))


def _ranges_to_send(
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
            # what a swap has gathered moves again only if its rows have changed
            latest = records(log, hop.spec.to, moving).items()
            moving -= {name for name, record in latest if record.state is State.SHADOWED}
    return moving


def ranges_moving_with(
    plan: TransferPlan, servers: Servers, log: Log, names: Collection[str]
) -> set[str]:
    """Return the ranges that have to move with the named ones, if ranges are cut by storage blocks.

    An updated row may be stored in another range. So all changed ranges move under one snapshot:
    otherwise rows would be lost or duplicated. Ranges that were never committed have none to lose.
    """
    if not plan.transfer.by_place:
        return set()
    if plan.transfer.write.whole_table:
        return set(plan.ranges) - set(names)
    # a run of some ranges moves others only if they have changed
    changed = plan.of(replace(plan.intent, force=False)).only(plan.fingerprints)
    decided = with_decisions(changed, servers, log).decided
    return {
        name
        for hop in plan.selected
        for name, decision in decided[hop.number].items()
        if not decision.reason.needs_no_move
        and decision.reason is not Reason.MISSING
        and name not in names
    }
