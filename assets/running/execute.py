"""One run of a transfer: decide what each range needs, prepare the targets, move, check."""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import dagster as dg

from tableferry.assets.asset_keys import asset_key, rejected_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.profiles import profile
from tableferry.assets.log.ledger import committed_records, latest_record, records
from tableferry.assets.log.runs import PARTITION, PROFILE, RANGE_END, RANGE_START
from tableferry.assets.log.states import State
from tableferry.assets.log.writer import Writer
from tableferry.assets.planning.changes.drift import Unplanned
from tableferry.assets.planning.intent import Intent, intent_of
from tableferry.assets.planning.planner import ranges_moving_with
from tableferry.assets.planning.ranges.known import known_ranges
from tableferry.assets.planning.resolve import Hop, levels_of
from tableferry.assets.planning.rows.decision import Action
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.shrinking import require_not_shrunk
from tableferry.assets.planning.snapshots import MOST_READINGS
from tableferry.assets.planning.source_state import SourceState
from tableferry.assets.planning.transfer_plan import TransferPlan, extend_ranges
from tableferry.assets.planning.wires import with_wires
from tableferry.assets.running import processes, runs, swap
from tableferry.assets.running.caller import Caller, plan_of_run
from tableferry.assets.running.fitting import changes_of_run, moves, prepare_targets
from tableferry.assets.running.work import Earlier, RangeOutcome, Work
from tableferry.assets.running.workers import run_ranges
from tableferry.assets.verifying.whole_tables import check_whole_tables
from tableferry.resources import errors
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.target import Target
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.words import counted, listed

logger = logging.getLogger(__name__)


def execute(
    context: dg.AssetExecutionContext, transfer: Transfer, servers: Servers, caller: Caller
) -> list[RangeOutcome]:
    """Take the ranges of a run through its selected hops.

    Raises:
        TableferryError: the run cannot start: a server is down, a table is missing, or has drifted.
    """
    instance = context.instance
    process = processes.run_process(instance, context.job_def.executor_def.name)
    # a run that repeats another one has the tags of that
    if process or context.run.parent_run_id:
        instance.add_run_tags(context.run.run_id, {processes.PROCESS: process})
    intent = intent_of(context.run)
    if intent != Intent.parse(context.run.tags):
        context.log.info("this run repeats another one: what is done is not forced once more")
    settings = intent.carried_out(transfer)
    if note := runs.share_pool(instance, settings):
        context.log.warning(note)
    names = _ranges_of_run(context, transfer, servers, intent)
    known = partial(instance.get_dynamic_partitions, transfer.partitions_name)
    planned = known() if transfer.by_place else names
    numbers = frozenset(
        number
        for number, hop in enumerate(transfer.hops, start=1)
        if asset_key(hop.to) in context.selected_asset_keys
    )
    intent = replace(intent, hops=numbers)
    with plan_of_run(transfer, servers, instance, intent, planned, caller) as complete:
        plan = _with_moved_along(context, complete, servers, set(names))
        for note in _notes_on_source(plan, servers, instance):
            context.log.warning(note)
            caller.notes.append(note)
        plan = _loadable(plan, servers)
        most, stale = _most_ranges(plan, servers), _stale_sources(plan)
        changes = changes_of_run(plan, servers, instance, caller)
        changes.require_allowed()
        plan = prepare_targets(context, plan, servers, changes, stale, caller)
        work = build_work(context, plan, servers, changes.gone, caller, most)
        if plan.transfer.write.whole_table:
            outcomes = _swap(work, known())
        else:
            outcomes = run_ranges(work, plan.selected)
        good = all(outcome.good for outcome in outcomes)
        done = good and caller.last and runs.ends_last(instance, settings, context.run)
        if plan.transfer.on_reject == "quarantine":
            _settle_rejected(work, known(), done=done)
        if done:
            check_tables(context, complete, servers, caller, work.source)
        return outcomes


def _ranges_of_run(
    context: dg.AssetExecutionContext, transfer: Transfer, servers: Servers, intent: Intent
) -> list[str]:
    """Return the partition keys of the run; of a run without any, all keys, after growth.

    Dagster's Launchpad starts such runs, and so does Materialize while there are no ranges. A range
    that was divided again while the run was queued stands for those that have its keys now.
    """
    if names := ranges_asked_for(context, transfer):
        return names
    plan = extend_ranges(transfer, servers, context.instance, intent)
    known = known_ranges(transfer, plan.hops, context.instance)
    names = [range_.name for range_ in known]
    if not known or not (context.has_partition_key or context.has_partition_key_range):
        return names
    tags = context.run.tags
    bounds = [tags.get(tag) or tags.get(PARTITION, "") for tag in (RANGE_START, RANGE_END)]
    first, last = (KeyRange.parse(name, known[0].kind) for name in bounds)
    span = (first, last) if first.null or last.null else (replace(first, upper=last.upper),)
    taken = [range_.name for range_ in known if any(map(range_.overlaps, span))]
    gone = ", ".join(sorted({*bounds} - {*names}))
    context.log.warning(
        f"{gone}: divided again while the run waited, which therefore moves "
        f"{listed(taken) or 'nothing'}"
    )
    return taken


def ranges_asked_for(context: dg.AssetExecutionContext, transfer: Transfer) -> list[str]:
    """Return the partition keys of a run; none if it has none, or if one of them is gone."""
    if not (context.has_partition_key or context.has_partition_key_range):
        return []
    try:
        names = list(context.partition_keys)
    except dg.DagsterInvalidInvocationError:
        return []
    known = {*context.instance.get_dynamic_partitions(transfer.partitions_name)}
    return names if known.issuperset(names) else []


def _notes_on_source(
    plan: TransferPlan, servers: Servers, instance: dg.DagsterInstance
) -> Iterator[str]:
    """Say what is odd about the state of the source.

    Raises:
        InputError: it has lost so many rows that none is moved.
    """
    unknown: list[str] = []
    look = partial(_source_regressed, instance, plan)
    yield from filter(
        None, [errors.informing("whether the source went back", look, unknown), *unknown]
    )
    if any(hop.first and moves(plan, hop) for hop in plan.selected):
        yield from filter(None, [require_not_shrunk(plan, servers, instance)])


def _source_regressed(instance: dg.DagsterInstance, plan: TransferPlan) -> str | None:
    """Return a note if the source is at an earlier position than when it was last recorded."""
    last, snapshot = latest_record(instance, plan.hops[0].asset), plan.snapshot
    position = last.source_position if last else None
    note = snapshot.gone_back(position) if snapshot is not None and position else None
    if note and plan.shared is not None and plan.shared.state is not None:
        note += "; or another run has read a later state than that of the set"
    return f"{plan.transfer.source}: {note}" if note else None


def _with_moved_along(
    context: dg.AssetExecutionContext,
    plan: TransferPlan,
    servers: Servers,
    names: set[str],
) -> TransferPlan:
    """Restrict a plan of all ranges to these ranges and those that have to move along."""
    along = ranges_moving_with(plan, servers, context.instance, names)
    if along:
        context.log.warning(
            f"{', '.join(sorted(along))} changed, too, and move along: rows may have moved "
            "between blocks"
        )
    return plan.only(names | along)


def _loadable(plan: TransferPlan, servers: Servers) -> TransferPlan:
    """Give the selected hops with ranges to move a wire format that their targets accept.

    The others are about the tables that readers see: a shadow is made only to gather ranges.
    """
    moving = [hop for hop in plan.selected if moves(plan, hop)]
    tried = {hop.number: hop for hop in with_wires(plan.transfer, moving, servers, moving=True)}
    return replace(plan, hops=tuple(tried.get(hop.number, hop.in_place) for hop in plan.hops))


def build_work(
    context: dg.AssetExecutionContext,
    plan: TransferPlan,
    servers: Servers,
    gone: Mapping[int, Unplanned],
    caller: Caller,
    most: int = sys.maxsize,
) -> Work:
    """Assemble what the attempts share.

    Args:
        context: the context of the run.
        plan: the plan.
        servers: the servers of its tables.
        gone: the columns of the targets that the hops lack, by number of the hop.
        caller: has the loaders of the targets.
        most: how many ranges may move at a time.
    """
    instance, run = context.instance, context.run
    transfer, alive = plan.transfer, processes.run_is_alive(instance)
    shadows: dict[int, str | None] = {}
    loaders: dict[int, Target] = {}
    for hop in plan.selected:
        table = hop.written_plan.target
        target = loaders[hop.number] = caller.ready[table]
        for name in target.clean(hop.plan.target, alive, rejected=False):
            context.log.info(f"{hop.plan.target}: dropped {name}, which a dead run left")
        context.log.info(_summary(plan, hop))
        if table != hop.plan.target:
            shadows[hop.number] = target.identity(table)
    knobs, parallel = profile(run.tags.get(PROFILE, transfer.profile)), transfer.parallel
    pools = dict.fromkeys(filter(None, map(servers.pool_line, transfer.tables)))
    caller.notes += [line for line in pools if line not in caller.notes]
    tables = {
        table.connection: table
        for hop in plan.selected
        for table in (hop.plan.source, hop.plan.target)
    }
    return Work(
        plan=plan,
        servers=servers,
        run_id=run.run_id,
        owner=processes.owner_name(
            instance, run.run_id, processes.run_process(instance, context.job_def.executor_def.name)
        ),
        log=instance,
        home=processes.home_name(instance),
        alive=alive,
        source=SourceState(plan, servers),
        levels=levels_of(transfer),
        batch_rows=knobs.batch_rows,
        workers=min(max(parallel.export or knobs.export, parallel.load or knobs.load), most),
        identities={name: servers.identity(table) for name, table in tables.items()},
        shadows=shadows,
        refused=_stale_sources(plan) if plan.declared.write.moves else {},
        writers={hop.number: Writer(context, hop.asset, plan.declared) for hop in plan.hops},
        on_progress=caller.on_progress,
        exports=threading.BoundedSemaphore(parallel.export or knobs.export),
        loads=threading.BoundedSemaphore(parallel.load or knobs.load),
        loaders=loaders,
        earlier={
            hop.number: _earlier(instance, plan, hop, gone[hop.number]) for hop in plan.selected
        },
    )


def _most_ranges(plan: TransferPlan, servers: Servers) -> int:
    """Return how many ranges at a time the pools before all targets have connections for."""
    moving = [hop.plan for hop in plan.selected if moves(plan, hop)]
    return min((_fitting(servers, copied) for copied in moving), default=sys.maxsize)


def _fitting(servers: Servers, plan: CopyPlan) -> int:
    """Return how many ranges at a time a small pool before a target has connections for.

    Raises:
        InputError: for none.
    """
    source, target = servers.endpoint(plan.source), servers.endpoint(plan.target)
    budget = target.budget(plan.target.connection)
    if budget is None or budget.lent is None:
        return sys.maxsize
    per_range, beside, who = 2, 0, "a target takes"
    if source.settings().facts is target.settings().facts:
        per_range, beside, who = 3, 1, "source and target together take"
    if budget.lent < per_range + beside:
        raise errors.InputError(
            f"{plan.target}: a pooler between lends {counted(budget.lent, 'connection')}, and "
            f"{who} {per_range + beside} at a time, as one holds a range while another one loads "
            "or reads it; give the pool more (PgBouncer: default_pool_size)"
        )
    return (budget.lent - beside) // per_range


def _earlier(
    instance: dg.DagsterInstance, plan: TransferPlan, hop: Hop, gone: Unplanned
) -> Earlier:
    """Return what earlier runs recorded of values that are not the source's."""
    # files have the planned columns alone
    by_path = hop.plan.target.system.by_path
    kept = () if by_path else tuple(gone.kept(plan.transfer.dropped_columns))
    altered = any(column.change or column.lossy for column in hop.plan.columns)
    if not (kept or altered or hop.plan.fitting):
        return Earlier()
    known = committed_records(instance, hop.asset, plan.ranges)
    decided = plan.decided[hop.number]
    if gathered := [name for name, each in decided.items() if each.action is Action.RECORD]:
        known |= records(instance, hop.asset, gathered)
    return Earlier(known, kept)


def _settle_rejected(work: Work, names: Sequence[str], *, done: bool) -> None:
    """Record how many rows are kept beside each target, for those who go by that table; once the
    last run is `done`, remove those that are in the target now, or are kept of other ranges."""
    for hop in work.plan.selected:
        known = committed_records(work.log, hop.asset, names)
        kept = {name: record.quarantined for name, record in known.items() if record.quarantined}
        work.writers[hop.number].rejected(rejected_key(hop.spec.to), sum(kept.values()))
        if done and known.keys() >= {*names}:
            # where all fits now, ranges that were not moved since are still without
            current = names if hop.plan.fitting else [*kept]
            work.loaders[hop.number].keep_quarantined(hop.plan, current)


def check_tables(
    context: dg.AssetExecutionContext,
    plan: TransferPlan,
    servers: Servers,
    caller: Caller,
    source: SourceState | None = None,
) -> None:
    """Run the selected checks of whole tables, after a move with its state of the source."""
    results = check_whole_tables(
        context, plan, servers, selected=context.selected_asset_check_keys, source=source
    )
    caller.checked += results
    for checked in results:
        if not checked.verdict.passed:
            context.log.error(f"{checked.hop.plan.target}: {checked.verdict.summary()}")


def _swap(work: Work, all_names: Sequence[str]) -> list[RangeOutcome]:
    """Swap hop by hop: a later hop reads the table that the previous one has put in place."""
    done: list[RangeOutcome] = []
    for hop in work.plan.selected:
        for reading in range(MOST_READINGS):
            outcomes = run_ranges(work, (hop,))
            if not all(outcome.good for outcome in outcomes) or not any(
                outcome.record.state is State.SHADOWED for outcome in outcomes
            ):
                break
            try:
                outcomes = swap.promote(work, hop, all_names, outcomes)
            except errors.SourceMoved as error:
                if reading == MOST_READINGS - 1:
                    raise
                logger.warning("%s; all are gathered again", error)
            else:
                break
        done += outcomes
        if not all(outcome.good for outcome in outcomes):
            break
    return done


def _summary(plan: TransferPlan, hop: Hop) -> str:
    """Return one line with the number of ranges by reason."""
    decided, asset = plan.decided.get(hop.number, {}), hop.asset
    counts = Counter(decision.reason for decision in decided.values())
    parts = ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items()))
    return f"{asset.to_user_string()}: {counted(len(decided), 'range')}: {parts or 'none'}"


def _stale_sources(plan: TransferPlan) -> dict[tuple[int, str], str]:
    """Return why a hop cannot take ranges whose previous hop is neither in the run nor current."""
    numbers = {hop.number for hop in plan.selected}
    return {
        (hop.number, name): f"hop {hop.number} needs {hop.plan.source} to be current "
        f"({decision.reason} there); run hop {hop.number - 1} first, or both together"
        for hop in plan.selected
        if not hop.first and hop.number - 1 not in numbers
        for name, decision in plan.decided.get(hop.number - 1, {}).items()
        if not decision.reason.current
    }
