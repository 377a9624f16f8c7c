"""One run of a transfer: decide what each range needs, prepare the targets, move, check."""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import dagster as dg

from tableferry.assets.asset_keys import rejected_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.profiles import profile
from tableferry.assets.log.ledger import committed, committed_records, latest_record, records
from tableferry.assets.log.run_tags import (
    FORCE,
    PROFILE,
)
from tableferry.assets.log.states import State
from tableferry.assets.log.writer import Writer
from tableferry.assets.planning.changes.drift import Unplanned
from tableferry.assets.planning.changes.unplanned import unplanned_columns
from tableferry.assets.planning.hazards import require_harmless
from tableferry.assets.planning.resolve import Hop, levels_of
from tableferry.assets.planning.rows.decisions import Decision
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.source_state import (
    MOST_READINGS,
    SourceState,
)
from tableferry.assets.planning.transfer_plan import TransferPlan, apply_growth, plan_growth
from tableferry.assets.planning.wires import with_wires
from tableferry.assets.running.caller import Caller, Prepared, prepared, ranges_moving_with
from tableferry.assets.running.fitting import prepare, with_fitting_targets
from tableferry.assets.running.launches import ends_last, share_pool
from tableferry.assets.running.processes import (
    PROCESS,
    home_name,
    owner_name,
    run_is_alive,
    run_process,
)
from tableferry.assets.running.swap import promote
from tableferry.assets.running.work import Earlier, RangeOutcome, Work
from tableferry.assets.running.workers import run_ranges
from tableferry.assets.verifying.whole_tables import check_whole_tables
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.target import Target
from tableferry.resources.errors import (
    InputError,
    SourceMoved,
    StatementFailed,
    TableferryError,
)
from tableferry.resources.words import counted

logger = logging.getLogger(__name__)


def execute(
    context: dg.AssetExecutionContext, transfer: Transfer, servers: Servers, caller: Caller
) -> list[RangeOutcome]:
    """Take the ranges of a run through its selected hops.

    Raises:
        TableferryError: the run cannot start: a server is down, a table is missing, or has drifted.
    """
    instance = context.instance
    if process := run_process(instance, context.job_def.executor_def.name):
        instance.add_run_tags(context.run.run_id, {PROCESS: process})
    if note := share_pool(instance, transfer):
        context.log.warning(note)
    names, partitions = _ranges_of_run(context, transfer, servers), transfer.partitions_name
    planned = list(instance.get_dynamic_partitions(partitions)) if transfer.by_place else names
    with prepared(transfer, servers, instance, planned, caller) as plan_of_all:
        ready, hops = plan_of_all, plan_of_all.plan.hops
        selected = tuple(hop for hop in hops if hop.asset in context.selected_asset_keys)
        if transfer.by_place:
            ready = _with_moved_along(context, ready, servers, selected, set(names))
        if note := _source_regressed(instance, ready):
            context.log.warning(note)
            caller.notes.append(note)
        force = context.run.tags.get(FORCE) == "true"
        decided: dict[int, Mapping[str, Decision]] = {}
        only_read = ready.unrepaired() if transfer.repairs and not transfer.watches else ready
        for hop in hops:
            decided[hop.number] = (ready if hop in selected else only_read).decisions(
                hop,
                servers,
                instance,
                force=force and hop in selected,
                before=decided.get(hop.number - 1),
            )
        ready, selected = _loadable(ready, servers, selected, decided)
        moving = [hop for hop in selected if _moves(decided[hop.number])]
        ready, selected = with_fitting_targets(context, ready, servers, selected, moving, caller)
        work = build_work(context, ready, servers, selected, decided, caller)
        if transfer.write.whole_table:
            outcomes = _swap(work, selected, instance.get_dynamic_partitions(partitions))
        else:
            outcomes = run_ranges(work, selected)
        _record_rejected(work, selected, instance.get_dynamic_partitions(partitions))
        good = caller.last and all(outcome.good for outcome in outcomes)
        if good and ends_last(instance, transfer, context.run):
            _forget_rejected(context, ready, selected, servers)
            check_tables(context, transfer, hops, servers, caller, work.source)
        return outcomes


def _ranges_of_run(
    context: dg.AssetExecutionContext, transfer: Transfer, servers: Servers
) -> list[str]:
    """Return the partition keys of the run; of a run without any, all keys, after growth.

    Dagster's Launchpad starts such runs, and so does Materialize while there are no ranges.
    """
    if context.has_partition_key or context.has_partition_key_range:
        return list(context.partition_keys)
    apply_growth(plan_growth(transfer, servers, context.instance), servers, context.instance)
    return list(context.instance.get_dynamic_partitions(transfer.partitions_name))


def _source_regressed(instance: dg.DagsterInstance, ready: Prepared) -> str | None:
    """Return a note if the source is at an earlier position than when it was last recorded."""
    last, snapshot = latest_record(instance, ready.plan.hops[0].asset), ready.snapshot
    position = last.source_position if last else None
    note = snapshot.gone_back(position) if snapshot is not None and position else None
    if note and ready.shared is not None and ready.shared.state is not None:
        note += "; or another run has read a later state than that of the set"
    return f"{ready.plan.transfer.source}: {note}" if note else None


def _with_moved_along(
    context: dg.AssetExecutionContext,
    ready: Prepared,
    servers: Servers,
    selected: Sequence[Hop],
    names: set[str],
) -> Prepared:
    """Restrict a plan of all ranges to these ranges and those that have to move along."""
    along = ranges_moving_with(ready, servers, context.instance, selected, names)
    if along:
        context.log.warning(
            f"{', '.join(sorted(along))} changed, too, and move along: rows may have moved "
            "between blocks"
        )
    return ready.only(servers, [name for name in ready.plan.ranges if name in names | along])


def _loadable(
    ready: Prepared,
    servers: Servers,
    selected: Sequence[Hop],
    decided: Mapping[int, Mapping[str, Decision]],
) -> tuple[Prepared, tuple[Hop, ...]]:
    """Give the selected hops with ranges to move a wire format that their targets accept."""
    moving = [hop for hop in selected if _moves(decided[hop.number])]
    require_harmless(moving)
    plan = ready.plan
    tried = {hop.number: hop for hop in with_wires(plan.transfer, moving, servers, moving=True)}
    plan = replace(plan, hops=tuple(tried.get(hop.number, hop) for hop in plan.hops))
    numbers = {hop.number for hop in selected}
    return replace(ready, plan=plan), tuple(hop for hop in plan.hops if hop.number in numbers)


def _moves(decided: Mapping[str, Decision]) -> bool:
    return any(not decision.reason.needs_no_move for decision in decided.values())


def build_work(
    context: dg.AssetExecutionContext,
    ready: Prepared,
    servers: Servers,
    selected: Sequence[Hop],
    decided: Mapping[int, Mapping[str, Decision]],
    caller: Caller,
) -> Work:
    """Prepare the targets, and assemble what the attempts share."""
    instance, run, plan = context.instance, context.run, ready.plan
    transfer, alive = plan.transfer, run_is_alive(instance)
    gone = unplanned_columns(plan.hops, instance)
    shadows: dict[int, str | None] = {}
    loaders: dict[int, Target] = {}
    for hop in selected:
        # a shadow copies the whole target: only if ranges will be gathered in it
        written = hop if _moves(decided[hop.number]) else hop.in_place
        table = written.written_plan.target
        target = caller.ready.get(table)
        if target is None:
            target = servers.target(table)
            try:
                notes = prepare(transfer, written, servers, target, instance, gone[hop.number])
            except StatementFailed as error:
                raise TableferryError(f"{table}: {error}") from error
            if target.created:
                Writer(context, hop.asset, transfer).created(target.created)
            for note in notes:
                context.log.warning(note)
            caller.notes += notes
            caller.ready[table] = target
        loaders[hop.number] = target
        for name in target.clean(hop.plan.target, alive, rejected=False):
            context.log.info(f"{hop.plan.target}: dropped {name}, which a dead run left")
        context.log.info(_summary(hop.asset, decided[hop.number]))
        if transfer.write.whole_table:
            shadows[hop.number] = target.identity(table)
    knobs, parallel = profile(run.tags.get(PROFILE, transfer.profile)), transfer.parallel
    pools = dict.fromkeys(filter(None, map(servers.pool_line, transfer.tables)))
    caller.notes += [line for line in pools if line not in caller.notes]
    moving = [hop.plan for hop in selected if _moves(decided[hop.number])]
    fitting = min((_fitting(servers, copied) for copied in moving), default=sys.maxsize)
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
        log=instance,
        home=home_name(instance),
        alive=alive,
        source=SourceState(plan, servers, ready.shared, ready.snapshot),
        levels=levels_of(transfer),
        batch_rows=knobs.batch_rows,
        workers=min(max(parallel.export or knobs.export, parallel.load or knobs.load), fitting),
        identities={name: servers.identity(table) for name, table in tables.items()},
        shadows=shadows,
        decided=decided,
        refused={} if transfer.watches else _stale_sources(selected, decided),
        writers={hop.number: Writer(context, hop.asset, transfer) for hop in plan.hops},
        on_progress=caller.on_progress,
        exports=threading.BoundedSemaphore(parallel.export or knobs.export),
        loads=threading.BoundedSemaphore(parallel.load or knobs.load),
        loaders=loaders,
        earlier={hop.number: _earlier(instance, plan, hop, gone[hop.number]) for hop in selected},
    )


def _fitting(servers: Servers, plan: CopyPlan) -> int:
    """Return how many ranges at a time a small pool before a target has connections for.

    Raises:
        InputError: for none.
    """
    source, target = servers.endpoint(plan.source), servers.endpoint(plan.target)
    budget = target.budget(plan.target.connection)
    if budget is None or not budget.of_pooler:
        return sys.maxsize
    per_range, beside, who = 2, 0, "a target takes"
    if source.settings().facts is target.settings().facts:
        per_range, beside, who = 3, 1, "source and target together take"
    if budget.slots < per_range + beside:
        raise InputError(
            f"{plan.target}: a pooler between lends {budget}, and {who} {per_range + beside} at a "
            "time, as one holds a range while another one loads or reads it; give the pool more "
            "(PgBouncer: default_pool_size)"
        )
    return (budget.slots - beside) // per_range


def _earlier(
    instance: dg.DagsterInstance, plan: TransferPlan, hop: Hop, gone: Unplanned
) -> Earlier:
    """Return what earlier runs recorded of values that are not the source's."""
    # a table that is made anew has the planned columns alone, and so have files
    anew = plan.transfer.recreates or hop.plan.target.system.by_path
    kept = () if anew else tuple(gone.kept(plan.transfer.dropped_columns))
    relaxed = any(column.on_overflow != "refuse" or column.lossy for column in hop.plan.columns)
    if not (kept or relaxed or hop.plan.fitting):
        return Earlier()
    return Earlier(records(instance, hop.asset, [*plan.ranges]), kept)


def _record_rejected(work: Work, hops: Sequence[Hop], names: Sequence[str]) -> None:
    """Record how many rows are kept beside each target, for those who go by that table."""
    if work.plan.transfer.on_reject == "quarantine":
        for hop in hops:
            known = committed_records(work.log, hop.asset, names).values()
            rows = sum(record.quarantined or 0 for record in known)
            work.writers[hop.number].rejected(rejected_key(hop.spec.to), rows)


def _forget_rejected(
    context: dg.AssetExecutionContext, ready: Prepared, selected: Sequence[Hop], servers: Servers
) -> None:
    """Remove what is kept of rows that are in the target now, or beside it with other ranges."""
    transfer, instance = ready.plan.transfer, context.instance
    if transfer.on_reject != "quarantine":
        return
    names = instance.get_dynamic_partitions(transfer.partitions_name)
    for hop in selected:
        if {*names} <= {*committed(instance, hop.asset, ())}:
            kept = names if hop.plan.fitting else ()
            servers.target(hop.plan.target).keep_quarantined(hop.plan, kept)


def check_tables(
    context: dg.AssetExecutionContext,
    transfer: Transfer,
    hops: Sequence[Hop],
    servers: Servers,
    caller: Caller,
    source: SourceState | None = None,
) -> None:
    """Run the selected checks of whole tables, after a move with its state of the source."""
    results = check_whole_tables(
        context,
        transfer,
        hops,
        servers,
        selected=context.selected_asset_check_keys,
        source=source,
    )
    caller.checked += results
    for checked in results:
        if not checked.verdict.passed:
            context.log.error(f"{checked.hop.plan.target}: {checked.verdict.summary()}")


def _swap(work: Work, hops: Sequence[Hop], all_names: Sequence[str]) -> list[RangeOutcome]:
    """Swap hop by hop: a later hop reads the table that the previous one has put in place."""
    done: list[RangeOutcome] = []
    for hop in hops:
        for reading in range(MOST_READINGS):
            outcomes = run_ranges(work, (hop,))
            if not all(outcome.good for outcome in outcomes) or not any(
                outcome.record.state is State.SHADOWED for outcome in outcomes
            ):
                break
            try:
                outcomes = promote(work, hop, all_names, outcomes)
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


def _summary(asset: dg.AssetKey, decided: Mapping[str, Decision]) -> str:
    """Return one line with the number of ranges by reason."""
    counts = Counter(decision.reason for decision in decided.values())
    parts = ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items()))
    return f"{asset.to_user_string()}: {counted(len(decided), 'range')}: {parts or 'none'}"


def _stale_sources(
    selected: Sequence[Hop], decided: Mapping[int, Mapping[str, Decision]]
) -> dict[tuple[int, str], str]:
    """Return why a hop cannot take ranges whose previous hop is neither in the run nor current."""
    numbers = {hop.number for hop in selected}
    return {
        (hop.number, name): f"hop {hop.number} needs {hop.plan.source} to be current "
        f"({decision.reason} there); run hop {hop.number - 1} first, or both together"
        for hop in selected
        if not hop.first and hop.number - 1 not in numbers
        for name, decision in decided[hop.number - 1].items()
        if not decision.reason.current
    }
