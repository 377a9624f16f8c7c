"""What the commands do, as functions that return plain data; `cli.py` only prints it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import dagster as dg

from assets.declaring.manifest import Transfer
from assets.log import ledger
from assets.log.records import Reason, State
from assets.planning.decisions import decisions
from assets.planning.drift import refusal
from assets.planning.key_order import order_notes
from assets.planning.ranges import find_ranges, like_range
from assets.planning.resolve import Hop, Servers, require_servers, resolve_hops
from assets.planning.stretches import stretches
from assets.planning.transfer_plan import (
    TransferPlan,
    apply_growth,
    known_ranges,
    plan_transfer,
)
from assets.running.caller import Caller, Prepared, moved_along
from assets.running.launches import share_pool
from assets.running.progress import OnProgress, Progress, unwatched
from assets.running.runs import (
    FORCE,
    MOST_RUNS,
    PROCESS,
    PROFILE,
    check_job_name,
    compare_op_name,
    run_is_alive,
    segments,
    this_process,
)
from assets.running.source_state import shared_snapshot
from assets.verifying.on_demand import not_committed
from checks.drilldown import drill_down
from checks.verdict import Differences, Level
from pipelines.command.differences import difference_file
from pipelines.command.launching import (
    Carried,
    Share,
    built,
    carry_out,
    carry_out_together,
    failures,
    logging_config,
)
from pipelines.command.range_views import RangeView, TransferView
from pipelines.command.session import Session
from pipelines.command.views import CheckView, PlannedRange, PlanView, range_views
from resources.errors import InputError, TableferryError
from resources.keys.range import KeyRange
from resources.postgres.snapshots import SharedSnapshot
from sensors.reaper import reap


def plan(session: Session, name: str, *, force: bool = False) -> PlanView:
    """Say for every range of every hop whether it would run, and why. Nothing is changed."""
    servers, instance = session.servers, session.instance
    planned = plan_transfer(session.transfer(name), servers, instance)
    planned = planned.fingerprinted(servers, planned.ranges)
    rows = planned.rows()
    return PlanView(
        name,
        [
            PlannedRange(hop.number, str(hop.plan.target), range_name, decision, rows[range_name])
            for hop in planned.hops
            for range_name, decision in decisions(
                planned, hop, servers, instance, force=force
            ).items()
        ],
        [
            *_notes(planned),
            *_elsewhere(planned.transfer, servers),
            *order_notes(planned.hops, servers),
            *_refusals(planned, instance),
        ],
    )


def _refusals(planned: TransferPlan, instance: dg.DagsterInstance) -> Iterator[str]:
    """Why a run would move nothing, whatever is planned."""
    for hop in planned.hops:
        before = ledger.committed_schema(instance, hop.asset)
        if why := refusal(hop.plan, hop.existing, before, planned.transfer.on_schema_drift):
            yield f"a run will be refused: {why}"


def run(
    session: Session,
    name: str,
    *,
    hop: int | None = None,
    ranges: Sequence[str] = (),
    failed: bool = False,
    force: bool = False,
    profile: str | None = None,
    on_progress: OnProgress = unwatched,
    log_level: str | None = None,
) -> TransferView:
    """Move what needs moving, through the same job as Dagster's UI uses.

    Args:
        session: where everything is.
        name: the transfer.
        hop: run this hop only (1-based).
        ranges: these ranges only, by partition key.
        failed: only the ranges whose latest attempt failed.
        force: move also what is unchanged.
        profile: knobs to use instead of the transfer's own.
        on_progress: is told how far the ranges are, from any thread.
        log_level: log Dagster's events from this level on to standard error.

    Raises:
        InputError: the transfer, hop or a range does not exist.
    """
    transfer = session.transfer(name)
    servers, instance = session.servers, session.instance
    note = share_pool(instance, transfer)
    while transfer.parallel.runs > 1 and waits_for(session, name, moves=True):
        time.sleep(1)
        reap(instance)
    # what is planned now is out of date when a run that is waited for has ended
    waits = bool(waits_for(session, name))
    with nullcontext() if waits else shared_snapshot(transfer, servers) as shared:
        planned = plan_transfer(transfer, servers, instance)
        hops = chosen_hops(name, planned.hops, hop)
        wanted = set(meant_ranges(name, ranges, planned.ranges)) or set(planned.ranges)
        prepared = _prepared(session, planned, hops, shared, force=force)
        caller = Caller(on_progress, None if waits else prepared)
        stale = _stale(prepared, hops)
        apply_growth(planned, servers, instance)
        if failed:
            wanted &= unsettled(session, transfer, hops)
        if transfer.placed and wanted & stale:
            looked_at = prepared.only(servers, [*prepared.plan.fingerprints])
            wanted |= moved_along(looked_at, servers, instance, hops, wanted)
        # an unchanged range whose latest attempt failed is settled by looking at it
        todo = wanted & stale
        if todo != wanted:
            todo |= wanted & unsettled(session, transfer, hops)
        on_progress(Progress(name, "", "", "planned", total=len(todo) * len(hops)))
        order = instance.get_dynamic_partitions(transfer.partitions_name)
        # code that declares its servers itself has them in this process alone
        runs = transfer.parallel.runs if session.resources is None else 1
        parts = stretches([one for one in order if one in todo], runs, prepared.plan.rows())
        # a run that spans what it was not asked for may only find it unchanged
        most = max(1, MOST_RUNS // max(1, len(parts)))
        most = most if stale <= todo and not force else len(order)
        # what is read by places is read under the snapshot of one run
        most = 1 if transfer.placed else most
        tags = {FORCE: "true"} if force else {}
        tags |= {PROFILE: profile} if profile else {}
        shares = [
            Share(
                name,
                tuple(one.asset for one in hops),
                segments(order, part, most),
                tags,
                log_level,
                str(shared.name()) if shared else None,
            )
            for part in parts
        ]
        if len(shares) > 1:
            carried = carry_out_together(session, shares, on_progress)
        elif shares:
            first, last = shares[0].segments[0]
            read = order if transfer.placed else order[order.index(first) : order.index(last) + 1]
            caller.prepared = caller.prepared and caller.prepared.asking(servers, read)
            carried = carry_out(session, shares[0], caller)
        else:
            carried = Carried()
    errors = carried.errors
    views = _results(session, planned, hops, wanted, todo)
    if not errors:
        errors = [problem for view in views if (problem := view.problem)]
    notes = [*([note] if note else []), *_notes(planned)]
    return TransferView(name, views, not errors, errors, carried.run_ids, notes)


def _notes(planned: TransferPlan) -> list[str]:
    """Which files are there no more, and what became of their rows."""
    growth, source = planned.growth, planned.transfer.source
    found = []
    for ranges, what in ((growth.gone, "stay (on_missing: keep)"), (growth.remove, "go")):
        names = dict.fromkeys(replace(one, rows=None).name for one in ranges)
        found += [f"{source}: {name} is there no more; its rows {what}" for name in names]
    return found


def _elsewhere(transfer: Transfer, servers: Servers) -> Iterator[str]:
    """Which tables another process may look for somewhere else."""
    for table in (transfer.source, *(hop.to for hop in transfer.hops)):
        if found := servers.endpoint(table).elsewhere(table):
            yield found


def _prepared(
    session: Session,
    planned: TransferPlan,
    hops: Sequence[Hop],
    shared: SharedSnapshot | None,
    *,
    force: bool,
) -> Prepared:
    """The plan with why each range would run, as far as that takes a look at the source.

    The source rows of ranges that are sure to move are not read for it: the run does that.
    """
    servers, instance = session.servers, session.instance
    newest = {hop.number: ledger.newest_ids(instance, hop.asset) for hop in planned.hops}
    snapshot = shared.name() if shared else None
    names = set() if force else set(planned.ranges)
    if planned.transfer.write != "swap":
        names = names.intersection(*(ledger.committed(instance, one.asset, ()) for one in hops))
    planned = planned.fingerprinted(servers, names, snapshot=snapshot)
    asked = planned.only(names)
    decided = {
        hop.number: decisions(asked, hop, servers, instance) for hop in planned.hops if names
    }
    return Prepared(planned, shared, snapshot, decided, newest)


def waits_for(session: Session, name: str, *, moves: bool = False) -> list[str]:
    """The runs that a run of a transfer has to wait for now: those that hold all of its pool.

    One that moves rows waits for any of them where several share the table: it would plan what
    these are about to commit.
    """
    info = session.instance.event_log_storage.get_concurrency_info(name)
    full = 0 < info.slot_count <= info.active_slot_count
    any_one = moves and session.transfer(name).parallel.runs > 1
    return sorted(info.active_run_ids) if full or any_one else []


def status(session: Session, name: str) -> TransferView:
    """What the event log says of every known range; the servers are not asked."""
    transfer = session.transfer(name)
    names = session.instance.get_dynamic_partitions(transfer.partitions_name)
    views = [
        view
        for number in range(1, len(transfer.hops) + 1)
        for view in range_views(session.instance, transfer, number, names)
    ]
    return TransferView(name, views, all(view.good for view in views))


def check(
    session: Session,
    name: str,
    *,
    level: Level | None = None,
    ranges: Sequence[str] = (),
    log_level: str | None = None,
) -> CheckView:
    """Reconcile committed ranges without moving data, and record the verdicts.

    Raises:
        InputError: the transfer or a range does not exist.
    """
    transfer = session.transfer(name)
    caller = Caller()
    if set(ranges) - set(session.instance.get_dynamic_partitions(transfer.partitions_name)):
        caller.hops = resolve_hops(transfer, session.servers)
        known = {one.name: one for one in known_ranges(transfer, caller.hops, session.instance)}
        ranges = meant_ranges(name, ranges, known)
    config = {"level": level, "ranges": list(ranges)}
    job = built(session, name, caller).resolve_job_def(check_job_name(name))
    result = job.execute_in_process(
        instance=session.instance,
        tags={PROCESS: this_process()},
        raise_on_error=False,
        run_config={
            **logging_config(log_level),
            "ops": {compare_op_name(name): {"config": config}},
        },
    )
    if caller.error is not None:
        raise caller.error
    view = CheckView(name, caller.checked, not_committed(transfer, session.instance, ranges))
    if not result.success and (view.good or not caller.checked):
        raise TableferryError("; ".join(failures(result)))
    return view


def differences(
    session: Session,
    name: str,
    range_name: str,
    *,
    hop: int | None = None,
    limit: int = 20,
    parquet: Path | None = None,
    published: bool = False,
) -> dict[str, Differences]:
    """The rows of one range that differ, per target.

    Where an attempt on the range failed its audit, these are the rows of that attempt.

    Args:
        session: where everything is.
        name: the transfer.
        range_name: partition key of the range.
        hop: this hop only (1-based).
        limit: most examples per target; the counts are of all rows.
        parquet: file to write all differences to, one row per differing value.
        published: compare what readers see, also where an attempt failed its audit.

    Raises:
        InputError: the transfer, hop or range does not exist.
    """
    transfer = session.transfer(name)
    hops = resolve_hops(transfer, session.servers)
    known = {one.name: one for one in known_ranges(transfer, hops, session.instance)}
    meant = meant_ranges(name, [range_name], known)
    if len(meant) > 1:
        raise InputError(f"{range_name} is cut into ranges; name one of {', '.join(meant)}")
    (range_name,) = meant
    found: dict[str, Differences] = {}
    with difference_file(parquet) as write:
        for one in chosen_hops(name, hops, hop):
            plan, table = one.plan, str(one.plan.target)
            target = session.servers.target(plan.target)
            rejected = target.rejected_table(plan, known[range_name])
            if rejected and not published:
                plan, table = replace(plan, target=rejected), f"{table} (rows that were rejected)"
            rows = drill_down(
                plan,
                session.servers.endpoint(plan.source),
                session.servers.endpoint(plan.target),
                known[range_name],
                limit=limit,
                sink=write(table),
            )
            found[table] = replace(rows, range=range_name)
    return found


def clean(session: Session, names: Sequence[str] = ()) -> list[str]:
    """Drop what dead runs left in the targets of these transfers (all when empty)."""
    alive = run_is_alive(session.instance)
    chosen = [session.transfer(name) for name in names] or list(session.transfers.values())
    for transfer in chosen:
        require_servers(transfer, session.servers)
    return [
        dropped
        for transfer in chosen
        for hop in transfer.hops
        for dropped in session.servers.target(hop.to).clean(hop.to, alive)
    ]


def chosen_hops(name: str, hops: tuple[Hop, ...], number: int | None) -> tuple[Hop, ...]:
    """The hop of that number (1-based), or all.

    Raises:
        InputError: there is none.
    """
    if number is None:
        return hops
    if not 1 <= number <= len(hops):
        raise InputError(f"{name} has hops 1 to {len(hops)}, not {number}")
    return (hops[number - 1],)


def meant_ranges(name: str, wanted: Sequence[str], known: Mapping[str, KeyRange]) -> list[str]:
    """The names of the ranges that a user asks for.

    Raises:
        InputError: there is no such range.
    """
    found = [find_ranges(text, known) for text in wanted]
    if [] in found:
        text = wanted[found.index([])]
        like = like_range(text, known)
        shown = [*like[:2], "...", like[-1]] if len(like) > 4 else like
        hint = f"did you mean {', '.join(shown)}? " if like else ""
        raise InputError(
            f"{name} has no range {text!r}; {hint}"
            f"`ferry plan {name}` lists all of them ({len(known)})"
        )
    return [one for names in found for one in names]


def _stale(prepared: Prepared, hops: Sequence[Hop]) -> set[str]:
    """Ranges that one of the hops has to move."""
    names = set(prepared.plan.ranges)
    decided = [prepared.decided.get(hop.number, {}) for hop in hops]
    settled = (
        {name for name, one in found.items() if one.reason is Reason.UNCHANGED} for found in decided
    )
    return names - names.intersection(*settled)


def unsettled(session: Session, transfer: Transfer, hops: Sequence[Hop]) -> set[str]:
    """Ranges whose latest attempt in one of the hops, or latest check, was not good."""
    names = session.instance.get_dynamic_partitions(transfer.partitions_name)
    return {
        view.range
        for hop in hops
        for view in range_views(session.instance, transfer, hop.number, names)
        if view.state is not State.MISSING and not view.good
    }


def _results(
    session: Session, planned: TransferPlan, hops: Sequence[Hop], wanted: set[str], todo: set[str]
) -> list[RangeView]:
    names = [name for name in planned.ranges if name in wanted]
    return [
        replace(view, state=State.SKIPPED_UNCHANGED, seconds={}, moving_seconds=None)
        if view.range not in todo and view.good
        else view
        for hop in hops
        for view in range_views(session.instance, planned.transfer, hop.number, names)
    ]
