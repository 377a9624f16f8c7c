"""Makes the targets of a run fit what is about to be moved, as `on_schema_drift` allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import dagster as dg

from tableferry.assets.log.queries import Log
from tableferry.assets.log.writer import Writer
from tableferry.assets.planning.changes.change_plan import ChangePlan, TargetChanges, plan_changes
from tableferry.assets.planning.columns.hop_columns import target_columns
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.actions import with_actions
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.assets.running.caller import Caller
from tableferry.resources.errors import SchemaDrift, StatementFailed, TableferryError
from tableferry.resources.tables import TableRef


def moves(plan: TransferPlan, hop: Hop) -> bool:
    """Whether a run of the plan moves rows into a hop's target."""
    decided = plan.decided.get(hop.number, {}).values()
    return not plan.intent.adopt and any(not each.reason.needs_no_move for each in decided)


def changes_of_run(plan: TransferPlan, servers: Servers, log: Log, caller: Caller) -> ChangePlan:
    """Plan what a run does to those targets that no run of its command has prepared."""
    new = [hop for hop in plan.selected if hop.written_plan.target not in caller.ready]
    return plan_changes(
        plan.transfer,
        plan.hops,
        servers,
        log,
        among=[hop.number for hop in new],
        moving=[hop.number for hop in new if moves(plan, hop)],
    )


def prepare_targets(
    context: dg.AssetExecutionContext,
    plan: TransferPlan,
    servers: Servers,
    changes: ChangePlan,
    stale: Mapping[tuple[int, str], str],
    caller: Caller,
) -> TransferPlan:
    """Create the targets of a run, and alter those that there are as the transfer allows.

    Args:
        context: the context of the run.
        plan: the plan.
        servers: the servers of its tables.
        changes: what the run does to the shape of the targets.
        stale: why ranges of hops will be refused, as what they read is not current.
        caller: gets the loaders, and the notes for the user.

    Returns:
        The plan, with the columns that the targets have now.

    Raises:
        SchemaDrift: nothing would be moved into a target that is to be altered, or a server refuses
            to alter one.
    """
    for planned in changes.targets:
        _require_current(plan, planned, stale)
    changed: dict[int, Hop] = {}
    published = {**plan.published}
    for planned in changes.targets:
        hop, table = planned.hop, planned.hop.plan.target
        done = [step.done for step in planned.steps]
        with _naming(table):
            for step in planned.steps:
                step.execute(servers)
            if planned.creates and hop.number in published:
                # what markers said of a table before is no longer said of any
                published[hop.number] = replace(published[hop.number], table=None)
            if done:
                existing = target_columns(servers.endpoint(table), table)
                changed[hop.number] = replace(hop, existing=existing, renames=())
                # the next run of the command would alter it again
                caller.plan = None
        _tell(context, caller, [*planned.notes, *done])
        prepare(context, plan, changed.get(hop.number, hop), servers, caller)
    hops = tuple(changed.get(hop.number, hop) for hop in plan.hops)
    plan = replace(plan, hops=hops, published=published)
    # a range whose target has all columns now may be moved otherwise
    decided = {
        number: with_actions(plan, hop, servers, plan.decided[number])
        for number, hop in changed.items()
    }
    return replace(plan, decided={**plan.decided, **decided})


def _require_current(
    plan: TransferPlan, changes: TargetChanges, stale: Mapping[tuple[int, str], str]
) -> None:
    """Refuse to alter a target into which nothing will be moved.

    Raises:
        SchemaDrift: what all of its ranges read is not current.
    """
    number = changes.hop.number
    decided = plan.decided.get(number, {}).items()
    wanted = [name for name, decision in decided if not decision.reason.needs_no_move]
    whys = [stale.get((number, name), "") for name in wanted]
    if whys and all(whys) and changes.steps:
        raise SchemaDrift(f"{changes.hop.plan.target}: {whys[0]}")


def prepare(
    context: dg.AssetExecutionContext,
    plan: TransferPlan,
    hop: Hop,
    servers: Servers,
    caller: Caller,
) -> None:
    """Create or verify a hop's target, and what is kept beside it, whose columns stay as they are.

    Arguments as in `prepare_targets`.
    """
    table, target = hop.written_plan.target, servers.target(hop.plan.target)
    columns = [*(hop.existing or {}).values()]
    with _naming(table):
        notes = target.prepare(hop.plan, hop.options, columns or None)
    if target.created:
        Writer(context, hop.asset, plan.transfer).created(target.created)
    _tell(context, caller, notes)
    caller.ready[table] = target


@contextmanager
def _naming(table: TableRef) -> Iterator[None]:
    """Name the table of a statement that fails."""
    try:
        yield
    except StatementFailed as error:
        raise TableferryError(f"{table}: {error}") from error


def _tell(context: dg.AssetExecutionContext, caller: Caller, notes: Sequence[str]) -> None:
    for note in notes:
        context.log.warning(note)
    caller.notes += notes
