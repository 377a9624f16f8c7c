"""Makes the targets of a run fit what is about to be moved, as `on_schema_drift` allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import dagster as dg

from tableferry.assets.log.writer import Writer
from tableferry.assets.log.written_columns import committed_schema
from tableferry.assets.planning.changes.drift import Unplanned, require_no_dropped
from tableferry.assets.planning.changes.evolving import alter, made_anew, made_first
from tableferry.assets.planning.changes.refusals import require_allowed
from tableferry.assets.planning.columns.hop_columns import target_columns
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.actions import with_actions
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.assets.running.caller import Caller
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.recording import Recording, RecordingServer
from tableferry.resources.errors import SchemaDrift, StatementFailed, TableferryError, concerning
from tableferry.resources.tables import TableRef


def moves(plan: TransferPlan, hop: Hop) -> bool:
    """Whether a run of the plan moves rows into a hop's target."""
    decided = plan.decided.get(hop.number, {}).values()
    return any(not decision.reason.needs_no_move for decision in decided)


def written(plan: TransferPlan, hop: Hop) -> Hop:
    """Return the hop as a run writes it: into a shadow, which copies the whole target, only if
    ranges will be gathered there."""
    return hop if moves(plan, hop) else hop.in_place


def prepare_targets(
    context: dg.AssetExecutionContext,
    plan: TransferPlan,
    servers: Servers,
    selected: Sequence[Hop],
    gone: Mapping[int, Unplanned],
    stale: Mapping[tuple[int, str], str],
    caller: Caller,
) -> tuple[TransferPlan, tuple[Hop, ...]]:
    """Create the targets of a run, and alter those that there are as the transfer allows.

    Whatever may refuse is asked of all hops before the first statement that writes.

    Args:
        context: the context of the run.
        plan: the plan.
        servers: the servers of its tables.
        selected: the hops of the run.
        gone: the columns of the targets that the hops lack, by number of the hop.
        stale: why ranges of hops will be refused, as what they read is not current.
        caller: gets the loaders, and the notes for the user.

    Returns:
        The plan and the selected hops, with the columns that their targets have now.

    Raises:
        SchemaDrift: the columns of source and target differ, and the policy does not allow it, or a
            server refuses to alter one.
    """
    transfer, log = plan.transfer, context.instance
    new = [hop for hop in selected if written(plan, hop).written_plan.target not in caller.ready]
    moving = {hop.number for hop in new if moves(plan, hop)}
    require_allowed(transfer, new, servers, log, gone, moving)
    _require_current(plan, new, servers, gone, stale)
    anew = {hop.number: made_anew(hop, servers, log) for hop in new}
    changed: dict[int, Hop] = {}
    published = {**plan.published}
    for hop in made_first(new, anew):
        table, identity = hop.plan.target, anew[hop.number]
        notes = _kept(plan, hop, context, gone[hop.number])
        with _naming(table):
            if identity is not None:
                done = [_dropped(hop, servers, identity)]
                if hop.number in published:
                    # what its markers said is no longer said of any table
                    published[hop.number] = replace(published[hop.number], table=None)
            elif hop.existing is None or hop.options.recreate is not None:
                done = []
            else:
                target = servers.target(table)
                done = alter(servers.endpoint(table), transfer, hop, target, gone[hop.number])
            if done:
                existing = target_columns(servers.endpoint(table), table)
                changed[hop.number] = replace(hop, existing=existing, renames=())
                # the next run of the command would alter it again
                caller.plan = None
        _tell(context, caller, [*notes, *done])
        prepare(context, plan, changed.get(hop.number, hop), servers, caller)
    hops = tuple(changed.get(hop.number, hop) for hop in plan.hops)
    plan = replace(plan, hops=hops, published=published)
    # a range whose target has all columns now may be moved otherwise
    decided = {
        number: with_actions(plan, hop, servers, plan.decided[number])
        for number, hop in changed.items()
    }
    plan = replace(plan, decided={**plan.decided, **decided})
    return plan, tuple(changed.get(hop.number, hop) for hop in selected)


def _require_current(
    plan: TransferPlan,
    hops: Sequence[Hop],
    servers: Servers,
    gone: Mapping[int, Unplanned],
    stale: Mapping[tuple[int, str], str],
) -> None:
    """Refuse to alter a target into which nothing will be moved.

    Raises:
        SchemaDrift: what all of its ranges read is not current.
    """
    for hop in hops:
        decided = plan.decided.get(hop.number, {}).items()
        wanted = [name for name, decision in decided if not decision.reason.needs_no_move]
        whys = [stale.get((hop.number, name), "") for name in wanted]
        if whys and all(whys) and hop.existing is not None and hop.options.recreate is None:
            table = hop.plan.target
            recorder = cast(Endpoint, RecordingServer(servers.endpoint(table), Recording()))
            if alter(recorder, plan.transfer, hop, servers.target(table), gone[hop.number]):
                raise SchemaDrift(f"{table}: {whys[0]}")


def _kept(
    plan: TransferPlan, hop: Hop, context: dg.AssetExecutionContext, gone: Unplanned
) -> list[str]:
    """Say which columns of a target get no values any more."""
    if hop.options.recreate is not None:
        return []
    transfer, before = plan.transfer, committed_schema(context.instance, hop.asset)
    policy, handled = transfer.on_schema_drift, transfer.dropped_columns
    return require_no_dropped(hop.plan, hop.existing, before, gone, policy, handled)


def _dropped(hop: Hop, servers: Servers, identity: str) -> str:
    """Drop an empty table of ours that does not fit; return a note for the user."""
    table = hop.plan.target
    with concerning(f"{table}: is not made anew"):
        if not servers.target(table).drop_empty(table, identity):
            raise SchemaDrift("somebody has written to it since it was planned; run it again")
    return f"{table}: was empty and did not fit, and is made anew"


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
    hop_written = written(plan, hop)
    table, target = hop_written.written_plan.target, servers.target(hop.plan.target)
    columns, notes = [*(hop.existing or {}).values()], list[str]()
    if columns and hop.options.recreate is None:
        notes += target.unapplied(hop.plan, hop.options)
    with _naming(table):
        notes += target.prepare(hop.plan, hop_written.options, columns or None)
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
