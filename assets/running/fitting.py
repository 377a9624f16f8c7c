"""Makes the targets of a run fit what is about to be moved, as `on_schema_drift` allows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import dagster as dg

from tableferry.assets.log.written_columns import committed_schema
from tableferry.assets.planning.changes.drift import (
    ADDING,
    Unplanned,
    add_columns,
    removals,
    require_no_dropped,
    require_no_new,
)
from tableferry.assets.planning.changes.evolving import evolve, made_anew
from tableferry.assets.planning.changes.refusals import too_narrow
from tableferry.assets.planning.columns.hop_columns import new_columns, target_columns
from tableferry.assets.planning.columns.renaming import statements
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.actions import with_actions
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.assets.running.caller import Caller
from tableferry.resources.contract.target import Target
from tableferry.resources.crash_points import reached
from tableferry.resources.errors import SchemaDrift, StatementFailed, concerning


def with_fitting_targets(
    context: dg.AssetExecutionContext,
    plan: TransferPlan,
    servers: Servers,
    selected: Sequence[Hop],
    moving: Collection[Hop],
    caller: Caller,
) -> tuple[TransferPlan, tuple[Hop, ...]]:
    """Widen the columns of targets where the transfer asks for it, and drop empty ones of ours.

    Args:
        context: the context of the run.
        plan: the plan.
        servers: the servers of its tables.
        selected: the hops of the run.
        moving: those of them into which rows are about to move.
        caller: gets the notes for the user.

    Returns:
        The plan and the selected hops, with the columns that their targets have now.

    Raises:
        SchemaDrift: a server refuses to alter a column.
    """
    if plan.intent.recreate:
        return plan, tuple(selected)
    policy, anew = plan.transfer.on_schema_drift, {}
    for hop in moving:
        anew[hop.number] = made_anew(hop, servers, context.instance)
        # before any table is altered
        if not anew[hop.number]:
            target = servers.target(hop.plan.target)
            if problems := too_narrow(plan.transfer, hop, target):
                raise SchemaDrift("; ".join(problems))
    changed: dict[int, Hop] = {}
    published = {**plan.published}
    for hop in moving:
        endpoint, notes = servers.endpoint(hop.plan.target), []
        target, identity = servers.target(hop.plan.target), anew[hop.number]
        for statement, (was, name) in zip(
            statements(hop.plan.target, hop.renames), hop.renames, strict=True
        ):
            try:
                endpoint.execute(statement)
            except StatementFailed as error:
                raise SchemaDrift(
                    f"{hop.plan.target}: column {was!r} cannot be renamed {name!r}: {error}; "
                    "`ferry run --recreate` makes the table anew"
                ) from None
            reached("during_evolution")
            notes.append(f"{hop.plan.target}: renamed column {was!r} to {name!r}")
        with concerning(f"{hop.plan.target}: is not made anew"):
            dropped = identity is not None and target.drop_empty(hop.plan.target, identity)
        if dropped:
            notes += [f"{hop.plan.target}: was empty and did not fit, and is made anew"]
            if hop.number in published:
                # what its markers said is no longer said of any table
                published[hop.number] = replace(published[hop.number], table=None)
        elif policy == "evolve":
            notes += evolve(endpoint, hop.plan, hop.existing, target)
        if notes:
            existing = target_columns(endpoint, hop.plan.target)
            changed[hop.number] = replace(hop, existing=existing, renames=())
            caller.notes += notes
            for note in notes:
                context.log.warning(note)
    hops = tuple(changed.get(hop.number, hop) for hop in plan.hops)
    plan = replace(plan, hops=hops, published=published)
    # a range whose target has all columns now may be moved otherwise
    decided = {
        number: with_actions(plan, hop, servers, plan.decided[number])
        for number, hop in changed.items()
    }
    plan = replace(plan, decided={**plan.decided, **decided})
    return plan, tuple(changed.get(hop.number, hop) for hop in selected)


def prepare(
    plan: TransferPlan,
    hop: Hop,
    servers: Servers,
    target: Target,
    instance: dg.DagsterInstance,
    gone: Unplanned,
) -> list[str]:
    """Create or verify a hop's target by the transfer's drift policy; return notes for the user.

    Args:
        plan: the plan of the transfer.
        hop: one of its hops.
        servers: the servers of its tables.
        target: its loader.
        instance: tells what earlier runs have done.
        gone: the columns of the target that the hop lacks.

    Raises:
        SchemaDrift: the columns of source and target differ, and the policy does not allow it.
    """
    transfer, endpoint = plan.transfer, servers.endpoint(hop.plan.target)
    actual, policy = hop.existing, transfer.on_schema_drift
    if plan.intent.recreate:
        return target.prepare(hop.plan, hop.options, [*actual.values()] if actual else None)
    before = committed_schema(instance, hop.asset)
    handled = transfer.dropped_columns
    notes = require_no_dropped(hop.plan, actual, before, gone, policy, handled)
    removed = removals(hop.plan, gone, handled)
    for statement in removed:
        endpoint.execute(statement)
    added = new_columns(hop.plan, actual) if policy in ADDING else []
    if policy in ADDING:
        notes += add_columns(endpoint, hop.plan.target, added)
    else:
        require_no_new(hop.plan, actual, before, policy)
    if problems := too_narrow(transfer, hop, target):
        raise SchemaDrift("; ".join(problems))
    if actual is not None:
        notes += target.unapplied(hop.plan, hop.options)
    columns = [*actual.values()] if actual and not (added or removed) else None
    return notes + target.prepare(hop.plan, hop.options, columns)
