"""One run of a transfer: decide what each range needs, prepare the targets, move, check."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import dagster as dg

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.profiles import profile
from tableferry.assets.log.ledger import committed_schema, latest_record, records
from tableferry.assets.log.records import Reason, State
from tableferry.assets.log.run_tags import (
    FORCE,
    PROFILE,
)
from tableferry.assets.log.writer import Writer
from tableferry.assets.planning.decisions import Decision
from tableferry.assets.planning.drift import (
    add_columns,
    dropped_columns,
    new_columns,
    require_no_dropped,
    require_no_new,
)
from tableferry.assets.planning.hazards import require_harmless
from tableferry.assets.planning.resolve import Hop, Servers, levels_of, with_wires
from tableferry.assets.planning.source_state import (
    MOST_READINGS,
    SourceState,
)
from tableferry.assets.planning.transfer_plan import TransferPlan, apply_growth, plan_growth
from tableferry.assets.running.caller import Caller, Prepared, moved_along, prepared
from tableferry.assets.running.launches import ends_last, share_pool
from tableferry.assets.running.processes import (
    PROCESS,
    home_name,
    owner_name,
    run_is_alive,
    run_process,
)
from tableferry.assets.running.swap import promote
from tableferry.assets.running.work import Earlier, Outcome, Work
from tableferry.assets.running.workers import run_ranges
from tableferry.assets.verifying.whole_tables import check_whole_tables
from tableferry.resources.contract.snapshots import Snapshot
from tableferry.resources.contract.target import Target
from tableferry.resources.errors import SourceMoved, StatementFailed, TableferryError
from tableferry.resources.words import counted

logger = logging.getLogger(__name__)


def execute(
    context: dg.AssetExecutionContext, transfer: Transfer, servers: Servers, caller: Caller
) -> list[Outcome]:
    """Run the context's ranges through its selected hops.

    Raises:
        TableferryError: the run as a whole cannot start (a server down, a missing table, drift).
    """
    instance = context.instance
    if process := run_process(instance, context.job_def.executor_def.name):
        instance.add_run_tags(context.run.run_id, {PROCESS: process})
    if note := share_pool(instance, transfer):
        context.log.warning(note)
    names, known = _ranges_of_run(context, transfer, servers), transfer.partitions_name
    read = list(instance.get_dynamic_partitions(known)) if transfer.placed else names
    with prepared(transfer, servers, instance, read, caller) as found:
        hops = found.plan.hops
        selected = tuple(hop for hop in hops if hop.asset in context.selected_asset_keys)
        ready = found
        if transfer.placed:
            ready = _together(context, found, servers, selected, set(names))
        plan = ready.plan
        if note := _gone_back(instance, plan, ready.snapshot):
            context.log.warning(note)
            caller.notes.append(note)
        decided = _decided(context, ready, servers, selected)
        reasons = {
            number: {name: one.reason for name, one in of_hop.items()}
            for number, of_hop in decided.items()
        }
        ready, selected = _loadable(ready, servers, selected, reasons)
        work = _work(context, ready, servers, selected, decided, reasons, caller)
        if transfer.write.whole_table:
            outcomes = _swap(work, selected, reasons, instance.get_dynamic_partitions(known))
        else:
            outcomes = run_ranges(work, selected, reasons)
        good = caller.last and all(outcome.good for outcome in outcomes)
        if good and ends_last(instance, transfer, context.run):
            check_tables(context, transfer, plan.hops, servers, caller, work.source)
        return outcomes


def _ranges_of_run(
    context: dg.AssetExecutionContext, transfer: Transfer, servers: Servers
) -> list[str]:
    """The partition keys of the run; of a run that names none, all, once new keys have ranges.

    The Launchpad starts such runs, and so does Materialize as long as there are no ranges.
    """
    if context.has_partition_key or context.has_partition_key_range:
        return list(context.partition_keys)
    apply_growth(plan_growth(transfer, servers, context.instance), servers, context.instance)
    return list(context.instance.get_dynamic_partitions(transfer.partitions_name))


def _gone_back(
    instance: dg.DagsterInstance, plan: TransferPlan, snapshot: Snapshot | None
) -> str | None:
    """What to say of a source that is not where it was when rows of it were last recorded, or
    further."""
    last = latest_record(instance, plan.hops[0].asset)
    before = last.source_position if last else None
    found = snapshot.gone_back(before) if snapshot is not None and before else None
    return f"{plan.transfer.source}: {found}" if found else None


def _together(
    context: dg.AssetExecutionContext,
    found: Prepared,
    servers: Servers,
    selected: Sequence[Hop],
    names: set[str],
) -> Prepared:
    """The part of a plan of all ranges that has these ranges, and what has to move with them."""
    along = moved_along(found, servers, context.instance, selected, names)
    if along:
        context.log.warning(
            f"{', '.join(sorted(along))} changed, too, and move along: rows may have moved "
            "between blocks"
        )
    return found.only(servers, [name for name in found.plan.ranges if name in names | along])


def _decided(
    context: dg.AssetExecutionContext, ready: Prepared, servers: Servers, selected: Sequence[Hop]
) -> dict[int, dict[str, Decision]]:
    """Why each range of each hop is run, or that it is unchanged, by number of the hop."""
    force = context.run.tags.get(FORCE) == "true"
    return {
        hop.number: ready.decisions(hop, servers, context.instance, force=force and hop in selected)
        for hop in ready.plan.hops
    }


def _loadable(
    ready: Prepared,
    servers: Servers,
    selected: Sequence[Hop],
    reasons: Mapping[int, Mapping[str, Reason]],
) -> tuple[Prepared, tuple[Hop, ...]]:
    """The plan and the selected hops, of which those with ranges to move have the wire format that
    their targets were seen to take."""
    moving = [hop for hop in selected if _moves(reasons[hop.number])]
    require_harmless(moving)
    plan = ready.plan
    tried = {hop.number: hop for hop in with_wires(plan.transfer, moving, servers, moving=True)}
    plan = replace(plan, hops=tuple(tried.get(hop.number, hop) for hop in plan.hops))
    numbers = {hop.number for hop in selected}
    return replace(ready, plan=plan), tuple(hop for hop in plan.hops if hop.number in numbers)


def _moves(reasons: Mapping[str, Reason]) -> bool:
    return any(not reason.needs_no_move for reason in reasons.values())


def _work(
    context: dg.AssetExecutionContext,
    ready: Prepared,
    servers: Servers,
    selected: Sequence[Hop],
    decided: Mapping[int, Mapping[str, Decision]],
    reasons: Mapping[int, Mapping[str, Reason]],
    caller: Caller,
) -> Work:
    """Prepare the targets, and put together what the attempts share."""
    instance, run, plan = context.instance, context.run, ready.plan
    transfer, alive = plan.transfer, run_is_alive(instance)
    shadows: dict[int, str | None] = {}
    loaders: dict[int, Target] = {}
    for hop in selected:
        # a shadow, a copy of the whole target, only if ranges are to be gathered in it
        written = hop if _moves(reasons[hop.number]) else hop.in_place
        table = written.written_plan.target
        target = caller.ready.get(table)
        if target is None:
            target = servers.target(table)
            try:
                notes = _prepare(transfer, written, servers, target, instance)
            except StatementFailed as error:
                raise TableferryError(f"{table}: {error}") from error
            for note in notes:
                context.log.warning(note)
            caller.notes += notes
            caller.ready[table] = target
        loaders[hop.number] = target
        for name in target.clean(hop.plan.target, alive, rejected=False):
            context.log.info(f"{hop.plan.target}: dropped {name}, which a dead run left")
        context.log.info(summary(hop.asset, reasons[hop.number]))
        if transfer.write.whole_table:
            shadows[hop.number] = target.identity(table)
    knobs, parallel = profile(run.tags.get(PROFILE, transfer.profile)), transfer.parallel
    tables = {
        table.connection: table for hop in selected for table in (hop.plan.source, hop.plan.target)
    }
    return Work(
        plan=plan,
        servers=servers,
        run_id=run.run_id,
        owner=owner_name(
            instance, run.run_id, run_process(instance, context.job_def.executor_def.name)
        ),
        home=home_name(instance),
        alive=alive,
        source=SourceState(plan, servers, ready.shared, ready.snapshot),
        levels=levels_of(transfer),
        batch_rows=knobs.batch_rows,
        workers=max(parallel.export or knobs.export, parallel.load or knobs.load),
        identities={name: servers.identity(table) for name, table in tables.items()},
        shadows=shadows,
        decided=decided,
        refused=_stale_sources(selected, reasons),
        writers={hop.number: Writer(context, hop.asset, transfer) for hop in selected},
        on_progress=caller.on_progress,
        exports=threading.BoundedSemaphore(parallel.export or knobs.export),
        loads=threading.BoundedSemaphore(parallel.load or knobs.load),
        loaders=loaders,
        earlier={hop.number: _earlier(instance, hop, [*plan.ranges]) for hop in selected},
    )


def _earlier(instance: dg.DagsterInstance, hop: Hop, names: Sequence[str]) -> Earlier:
    """What earlier runs have recorded of values that are not the source's; asked if there may be
    some."""
    planned = {column.name for column in hop.plan.target_columns}
    others = [name for name in hop.existing or () if name not in planned]
    if not others and not any(column.on_overflow != "refuse" for column in hop.plan.columns):
        return Earlier()
    found = records(instance, hop.asset, names)
    dropped = {*dropped_columns(hop.plan, hop.existing, committed_schema(instance, hop.asset))}
    dropped |= {name for one in found.values() for name in one.not_filled}
    return Earlier(found, tuple(name for name in others if name in dropped))


def check_tables(
    context: dg.AssetExecutionContext,
    transfer: Transfer,
    hops: Sequence[Hop],
    servers: Servers,
    caller: Caller,
    source: SourceState | None = None,
) -> None:
    """Do the context's selected checks of whole tables, and say which failed.

    Args:
        source: what a run that has moved ranges read of it.
    """
    found = check_whole_tables(
        context,
        transfer,
        hops,
        servers,
        selected=context.selected_asset_check_keys,
        source=source,
    )
    caller.checked += found
    for checked in found:
        if not checked.verdict.passed:
            context.log.error(f"{checked.hop.plan.target}: {checked.verdict.summary()}")


def _prepare(
    transfer: Transfer, hop: Hop, servers: Servers, target: Target, instance: dg.DagsterInstance
) -> list[str]:
    """Create or verify a hop's target, by the transfer's drift policy; returns notes for the user.

    Raises:
        SchemaDrift: source and target no longer go together, and the policy does not mend it.
    """
    endpoint = servers.endpoint(hop.plan.target)
    actual, policy = hop.existing, transfer.on_schema_drift
    before = committed_schema(instance, hop.asset)
    notes = require_no_dropped(hop.plan, actual, before, policy)
    added = new_columns(hop.plan, actual) if policy == "add_columns" else []
    if policy == "add_columns":
        notes += add_columns(endpoint, hop.plan.target, added)
    else:
        require_no_new(hop.plan, actual, before, policy)
    found = [*actual.values()] if actual and not added else None
    return notes + target.prepare(hop.plan, hop.options, found)


def _swap(
    work: Work,
    hops: Sequence[Hop],
    reasons: Mapping[int, Mapping[str, Reason]],
    known: Sequence[str],
) -> list[Outcome]:
    """Hop by hop: a later hop reads the table that the one before has put in its place."""
    done: list[Outcome] = []
    for hop in hops:
        for reading in range(MOST_READINGS):
            outcomes = run_ranges(work, (hop,), reasons)
            if not all(outcome.good for outcome in outcomes) or not any(
                outcome.record.state is State.SHADOWED for outcome in outcomes
            ):
                break
            try:
                outcomes = promote(work, hop, known, outcomes)
            except SourceMoved as error:
                if reading == MOST_READINGS - 1:
                    raise
                logger.warning("%s; all are gathered again", error)
            else:
                break
        done += outcomes
        if not all(outcome.good for outcome in outcomes):
            break
    return done


def summary(asset: dg.AssetKey, reasons: Mapping[str, Reason]) -> str:
    """One line: how many ranges run, and why, and how many are skipped."""
    counts: dict[Reason, int] = {}
    for reason in reasons.values():
        counts[reason] = counts.get(reason, 0) + 1
    parts = ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items()))
    return f"{asset.to_user_string()}: {counted(len(reasons), 'range')}: {parts or 'none'}"


def _stale_sources(
    selected: Sequence[Hop], reasons: Mapping[int, Mapping[str, Reason]]
) -> dict[tuple[int, str], str]:
    """Ranges that a hop cannot take, and why: the hop before is not part of the run nor current."""
    numbers = {hop.number for hop in selected}
    return {
        (hop.number, name): f"hop {hop.number} needs {hop.plan.source} to be current ({reason} "
        f"there); run hop {hop.number - 1} first, or both together"
        for hop in selected
        if not hop.first and hop.number - 1 not in numbers
        for name, reason in reasons[hop.number - 1].items()
        if not reason.current
    }
