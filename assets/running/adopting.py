"""Records ranges that are in the target already, without a move.

The event log was lost, or another tool filled the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import dagster as dg

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.profiles import profile
from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.states import State
from tableferry.assets.planning.changes.change import fitting_declaration, misfits
from tableferry.assets.planning.intent import Intent
from tableferry.assets.planning.resolve import Hop, levels_of
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.source_state import SourceState
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.assets.running.caller import Caller, plan_of_run
from tableferry.assets.running.execute import build_work
from tableferry.assets.running.fitting import changes_of_run, prepare
from tableferry.assets.running.work import RangeOutcome, Work
from tableferry.assets.running.workers import run_ranges
from tableferry.assets.verifying.checked import CheckRequest
from tableferry.checks.levels import LEVELS, Level
from tableferry.checks.whole_table import stray_rows
from tableferry.resources.errors import InputError
from tableferry.resources.words import counted


def adopting(transfer: Transfer, level: Level | None) -> Intent:
    """Return the intent to adopt ranges; by default as declared, but never without values.

    Args:
        transfer: the transfer.
        level: how strictly both sides are compared: one that is `complete`.
    """
    declared = transfer.reconcile if LEVELS[transfer.reconcile].complete else "checksum"
    return Intent(adopt=level or declared)


def adopt(
    context: dg.AssetExecutionContext,
    transfer: Transfer,
    servers: Servers,
    caller: Caller,
    request: CheckRequest,
) -> None:
    """Compare ranges with their targets, and record those that are equal as committed.

    Nothing is moved, and no table but that of the markers is created or altered. The outcomes are
    added to `caller.compared`.

    Args:
        context: the context of the run that records them.
        transfer: the transfer.
        servers: the servers of its tables.
        caller: the command of the run.
        request: which ranges, and how strictly.

    Raises:
        InputError: there is nothing to adopt, or the transfer's ranges cannot be adopted.
    """
    instance, intent = context.instance, adopting(transfer, request.level)
    names = request.ranges or instance.get_dynamic_partitions(transfer.partitions_name)
    with plan_of_run(transfer, servers, instance, intent, names, caller) as whole:
        _require_adoptable(transfer, whole.hops)
        fit = frozenset(hop.number for hop in whole.hops if not unfit(transfer, hop))
        plan = replace(whole, intent=replace(intent, hops=fit))
        changes = changes_of_run(plan, servers, instance, caller)
        changes.require_allowed()
        for hop in plan.selected:
            prepare(context, plan, hop, servers, caller)
        work = build_work(context, plan, servers, changes.gone, caller)
        compared = _compared(work)
    caller.compared += compared
    for outcome in compared:
        if not outcome.good:
            record, target = outcome.record, outcome.hop.plan.target
            context.log.info(f"{target} {record.range}: left: {record.why}")
    adopted = sum(outcome.good for outcome in compared)
    context.log.info(f"{counted(adopted, 'range')} of {len(compared)} adopted")


def compare(
    plan: TransferPlan, servers: Servers, instance: dg.DagsterInstance
) -> list[RangeOutcome]:
    """Compare the ranges that `adopt` would, and record nothing.

    Args:
        plan: a plan to adopt ranges, decided.
        servers: the servers of its tables.
        instance: the Dagster instance.

    Raises:
        InputError: there is nothing to adopt, or the transfer's ranges cannot be adopted.
    """
    _require_adoptable(plan.declared, plan.hops)
    transfer, source = plan.transfer, SourceState(plan, servers)
    workers = transfer.parallel.export or profile(transfer.profile).export
    return _compared(Work(plan, servers, instance, source, levels_of(transfer), workers))


def _compared(work: Work) -> list[RangeOutcome]:
    """Compare the ranges that are not committed as they are, and name the others of these.

    A range of a later hop is compared only if the table before has the source's present rows.
    """
    plan = work.plan
    work.refused = {
        (hop.number, name): why
        for hop in plan.hops
        if (why := unfit(plan.declared, hop))
        for name in plan.ranges
    }
    outcomes = {(each.hop.number, each.record.range): each for each in run_ranges(work, plan.hops)}
    compared: list[RangeOutcome] = []
    for hop in plan.hops:
        behind = f"{hop.plan.source} does not have the source's rows yet"
        for name, decision in plan.decided[hop.number].items():
            if not decision.reason.needs_no_move:
                left = RangeRecord(name, State.FAILED, why=behind)
                not_reached = RangeOutcome(hop, left, decision.reason)
                compared.append(outcomes.get((hop.number, name), not_reached))
    return compared


def unfit(transfer: Transfer, hop: Hop) -> str:
    """Why no rows of a hop's target can be adopted; empty if they can be."""
    if hop.existing is None:
        return f"{hop.plan.target} does not exist"
    if hop.not_yet:
        return hop.not_yet
    if hop.lacking:
        return f"{hop.plan.target} has no column {', '.join(map(repr, hop.lacking))}"
    if reasons := misfits(hop):
        declared = fitting_declaration(transfer, hop)
        remedy = f"; declare {declared} to compare the values" if declared else ""
        told = (f"column {name!r} {why}" for name, why in reasons.items())
        return f"{hop.plan.target}: {'; '.join(told)}{remedy}"
    return hop.incomparable


def stray_notes(plan: TransferPlan, servers: Servers) -> list[str]:
    """Name the targets with rows that belong to no range, which no run moves or checks."""
    notes = []
    for hop in plan.hops:
        if hop.existing is None:
            continue
        target = servers.side(hop.plan, "target")
        if rows := stray_rows(target, [*plan.ranges.values()]):
            notes.append(
                f"{hop.plan.target}: {counted(rows, 'row')} outside of all ranges of the transfer; "
                "no run will move, check or remove them"
            )
    return notes


def _require_adoptable(transfer: Transfer, hops: Sequence[Hop]) -> None:
    if transfer.by_place:
        raise InputError(
            f"{transfer.transfer}: ranges of storage blocks cannot be adopted: an updated row may "
            "since be stored in the blocks of another range; `ferry run` moves them"
        )
    if all(hop.existing is None for hop in hops):
        targets = ", ".join(str(hop.plan.target) for hop in hops)
        raise InputError(f"{transfer.transfer}: nothing to adopt: {targets} does not exist")
