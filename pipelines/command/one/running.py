"""`ferry run`: has the ranges moved that need it; imports Dagster only if there are any."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import ONLY_SHOWN, Transfer
from tableferry.assets.judging import why_lacking
from tableferry.assets.log.ledger import committed_records, newest_attempts, partitions
from tableferry.assets.log.queries import Log
from tableferry.assets.log.ranges import read_status
from tableferry.assets.log.states import State
from tableferry.assets.planning import hazards, shrinking, transfer_plan, wires
from tableferry.assets.planning.ranges.known import MOST_RUNS, segments, split_by_rows
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.snapshots import shared_snapshot
from tableferry.assets.running.caller import Caller
from tableferry.assets.running.progress import OnProgress, Progress, ignore_progress
from tableferry.pipelines.command.one.finding import FoundWork, Selection, find_work
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.show.range_views import (
    RangeView,
    TransferView,
    range_notes,
    range_views,
)
from tableferry.resources.contract.snapshots import HeldSnapshot
from tableferry.resources.digest.measure import ROWS
from tableferry.resources.errors import InputError, SchemaDrift, informing
from tableferry.resources.words import counted

if TYPE_CHECKING:
    from tableferry.pipelines.command.one.launching import RunOutcome

TOLD_SECONDS = 30.0
"""Between two notes that another run is waited for."""


def ignore_note(note: str) -> None:
    """Ignore the note, which the view has as well."""


def run(
    session: Session,
    name: str,
    *,
    hop: int | None = None,
    ranges: Sequence[str] = (),
    failed: bool = False,
    force: bool = False,
    recreate: bool = False,
    repair: bool = False,
    profile: str | None = None,
    on_progress: OnProgress = ignore_progress,
    on_note: Callable[[str], None] = ignore_note,
    log_level: str | None = None,
) -> TransferView:
    """Move the ranges that need it, through the same job as Dagster's UI uses.

    If nothing needs moving and the event log is in local SQLite files, Dagster is not imported.

    Args:
        session: the session of the command.
        name: the transfer.
        hop: run only this hop (1-based).
        ranges: move only these ranges, by partition key.
        failed: move only ranges whose latest attempt or check failed.
        force: also move unchanged ranges.
        recreate: make the targets anew, as they are declared, and replace them when proven.
        repair: put right the rows of committed ranges that differ, and nothing else.
        profile: the profile to use instead of the transfer's own.
        on_progress: called with the progress of ranges, from any thread.
        on_note: called with a note that the user should see before rows are moved.
        log_level: log Dagster's events from this level on to standard error.

    Raises:
        InputError: the transfer, hop or a range does not exist.
    """
    selection = Selection(hop, ranges, failed, force, recreate, repair, profile, log_level)
    return run_selected(session, name, selection, on_progress, on_note)


def run_selected(
    session: Session,
    name: str,
    selection: Selection,
    on_progress: OnProgress = ignore_progress,
    on_note: Callable[[str], None] = ignore_note,
) -> TransferView:
    """Move ranges as `run` does."""
    transfer = session.transfer(name) if selection.repair else session.moving_transfer(name)
    with _refusals_recorded(session, name, selection) as begun:
        return _run(session, transfer, selection, begun, on_progress, on_note)


@contextmanager
def _refusals_recorded(session: Session, name: str, selection: Selection) -> Iterator[list[str]]:
    """Record a run that fails before it begins: nobody else tells of it later.

    What is wrong with the command itself is no failure of the transfer.

    Args:
        session: the session of the command.
        name: the transfer.
        selection: what the command asks of it.

    Yields:
        A list that has something in it once a run has begun.
    """
    begun: list[str] = []
    try:
        yield begun
    except Exception as error:
        if not begun and not (isinstance(error, InputError) and selection.asks_for_more):
            record_refusal(session, name, selection.hop, error)
        raise


def record_refusal(session: Session, name: str, hop: int | None, error: Exception) -> None:
    """Record a run that failed before it began."""
    from tableferry.pipelines.command.one.launching import record_refused

    look = partial(record_refused, session, name, hop, str(error))
    informing("that the run failed", look, [])


def _run(
    session: Session,
    transfer: Transfer,
    selection: Selection,
    begun: list[str],
    on_progress: OnProgress,
    on_note: Callable[[str], None],
) -> TransferView:
    """Move ranges as `run` does; `begun` is told when a run begins."""
    name, servers, repair = transfer.transfer, session.servers_of(transfer), selection.repair
    joined, intent = selection.held.get(transfer.source.connection), selection.intent
    pool = _take_turns(session, intent.carried_out(transfer), on_note)
    notes: list[str] = []
    # a plan made now is outdated once the run that blocks this one has ended
    blocked = bool(blocking_runs(session, name))
    with nullcontext() if blocked else shared_snapshot(transfer, servers, joined) as shared:
        work = session.ask_log(partial(find_work, transfer, servers, shared, selection))
        if joined is not None:
            work = replace(work, ranges=work.requested)
        if repair:
            from tableferry.assets.running.repairs import require_repairable

            require_repairable(work.plan, work.hops, servers)
        if selection.offers_adopting and work.ranges and not repair:
            look = partial(session.ask_log, partial(_adoptable, work, servers))
            notes += filter(None, [informing("whether rows can be adopted", look, notes)])
        if work.ranges & work.stale and not repair:
            shrunk = partial(shrinking.require_not_shrunk, work.plan, servers)
            notes += filter(None, [session.ask_log(shrunk)])
        for note in notes:
            on_note(note)
        total = len(work.ranges) * len(work.hops)
        on_progress(Progress(name, "", "", "planned", total=total))
        outcome = None
        caller = Caller(on_progress, None if blocked else work.plan, joined, intent)
        if not work.nothing:
            hazards.require_harmless(work.hops)
            if work.ranges & work.stale:
                wires.with_wires(work.plan.transfer, work.hops, servers, moving=True)
            snapshot = joined or (HeldSnapshot(str(shared.name())) if shared else None)
            begun.append(name)
            outcome = _move(session, work, caller, snapshot, selection)
    return _view(session, transfer, work, outcome, [*filter(None, [pool]), *notes])


def rejected_ranges(session: Session, name: str) -> list[str]:
    """Return the ranges of a transfer with rows that were rejected in a hop, by partition key.

    Raises:
        InputError: there is no such transfer.
    """
    transfer = session.moving_transfer(name)

    def find(log: Log) -> list[str]:
        names = partitions(log, transfer.partitions_name)
        by_hop = [committed_records(log, asset_key(hop.to), names) for hop in transfer.hops]
        every = [record for of_hop in by_hop for record in of_hop.values()]
        rejecting = {record.range for record in every if record.quarantined}
        return [key for key in names if key in rejecting]

    return session.ask_log(find)


def view_if_unchanged(session: Session, name: str, selection: Selection) -> TransferView | None:
    """Return what `run` returns if it has nothing to do, and None if it has; nothing is changed.

    Raises:
        InputError: the transfer, hop or a range does not exist.
    """
    transfer = session.moving_transfer(name)
    if blocking_runs(session, name, moves=True):
        return None
    servers = session.servers_of(transfer)
    with shared_snapshot(transfer, servers) as shared:
        work = session.ask_log(partial(find_work, transfer, servers, shared, selection))
    return _view(session, transfer, work) if work.nothing else None


def _view(
    session: Session,
    transfer: Transfer,
    work: FoundWork,
    outcome: RunOutcome | None = None,
    before: Sequence[str] = (),
) -> TransferView:
    """Return the state of the requested ranges after a run, and what went wrong."""
    views = session.ask_log(lambda log: _results(log, transfer, work))
    errors = outcome.errors if outcome else []
    if outcome and errors:
        # what a refused run has not come to is of an earlier run
        came_to_any = any(view.run_id in outcome.run_ids for view in views)
        views = [
            view
            for view in views
            if view.run_id in outcome.run_ids
            or view.state is State.MISSING
            or (came_to_any and view.range not in work.ranges)
        ]
    else:
        errors = [problem for view in views if (problem := view.problem)]
    notes = [*before, *plan_notes(work.plan)]
    notes += [*(outcome.notes if outcome else ()), *range_notes(views)]
    run_ids = outcome.run_ids if outcome else []
    said = [*dict.fromkeys(notes)]
    return TransferView(transfer.transfer, views, not errors, errors, run_ids, said)


def _take_turns(session: Session, transfer: Transfer, on_note: Callable[[str], None]) -> str | None:
    """Let the runs of this command share the table, and wait until no other command's run does.

    It says now and then for which run.

    Returns:
        A note for the user.
    """
    if transfer.parallel.runs == 1:
        return None
    from tableferry.assets.running.runs import share_pool
    from tableferry.sensors.reaper import reap

    note = share_pool(session.instance, transfer)
    told = -TOLD_SECONDS
    while others := blocking_runs(session, transfer.transfer, moves=True):
        if time.monotonic() - told >= TOLD_SECONDS:
            told = time.monotonic()
            names = ", ".join(run[:8] for run in others)
            on_note(f"{transfer.transfer}: waiting for run {names} of it to end")
        time.sleep(1)
        reap(session.instance)
    return note


def _move(
    session: Session,
    work: FoundWork,
    caller: Caller,
    snapshot: HeldSnapshot | None,
    selection: Selection,
) -> RunOutcome:
    """Bring the list of ranges up to date, and move the ranges by Dagster runs."""
    plan, order = work.plan, work.order
    transfer = plan.transfer
    servers = session.servers_of(plan.declared)
    # servers that code has passed in exist in this process only
    processes = transfer.parallel.runs if session.resources is None else 1
    if servers.budget_line(transfer.source):
        # the slot of this process's snapshot would be missing for those of its children
        processes = 1
    parts = split_by_rows([key for key in order if key in work.ranges], processes, plan.rows())
    # a run may span unrequested ranges only if they are unchanged, so that it skips them
    most_runs = max(1, MOST_RUNS // max(1, len(parts)))
    if plan.intent.force or not work.stale <= work.ranges:
        most_runs = len(order)
    if transfer.by_place:
        # ranges of physical places have to be read under the snapshot of one run
        most_runs = 1
    from tableferry.assets.log.runs import PROFILE
    from tableferry.pipelines.command.one import launching

    try:
        transfer_plan.apply_growth(plan, servers, session.instance)
    except SchemaDrift as error:
        alone = work.hops[0].number if len(work.hops) == 1 else None
        record_refusal(session, transfer.transfer, alone, error)
        return launching.RunOutcome(errors=[str(error)])
    tags = {**plan.intent.tags(), **({PROFILE: selection.profile} if selection.profile else {})}
    assets = tuple(hop.asset for hop in work.hops)
    shares = [
        launching.Share(
            transfer.transfer,
            assets,
            segments(order, part, most_runs),
            tags,
            selection.log_level,
            snapshot,
        )
        for part in parts
    ]
    if len(shares) > 1:
        return launching.execute_parallel(session, shares, caller.on_progress)
    return launching.execute(session, shares[0], caller) if shares else launching.RunOutcome()


def _adoptable(work: FoundWork, servers: Servers, log: Log) -> str | None:
    """Return a note if a target has rows, and the event log nothing about it."""
    plan = work.plan
    if plan.transfer.by_place:
        return None
    for hop in work.hops:
        if hop.existing is None or work.plan.newest.get(hop.number):
            continue
        if newest_attempts(log, hop.spec.to):
            continue
        if rows := servers.side(hop.plan, "target").total()[ROWS]:
            name = plan.transfer.transfer
            return (
                f"{hop.plan.target} has {counted(rows, 'row')} that no run of this instance has "
                f"moved; `ferry adopt {name}` would record what is equal without moving it"
            )
    return None


def plan_notes(plan: transfer_plan.TransferPlan) -> list[str]:
    """Name the source of the cuts, rows left out by row security, and files that have gone."""
    growth, source = plan.growth, plan.transfer.source
    notes = [f"the keys are cut {growth.cut_by}"] if growth.cut_by else []
    notes += [f"{range_.name}: {why_lacking(plan.transfer)}" for range_ in growth.again]
    if plan.transfer.row_security == "apply":
        notes.append(f"row_security: apply: {ONLY_SHOWN}")
    refused = {
        fingerprint.no_versions
        for fingerprint in plan.fingerprints.values()
        if fingerprint.no_versions
    }
    notes += [
        f"{source}: fingerprint auto reads the content of all ranges to see what has changed, as "
        f"this login may not read row versions: {why}"
        for why in sorted(refused)
    ]
    for ranges, fate in ((growth.gone, "stay (on_missing: keep)"), (growth.remove, "go")):
        names = dict.fromkeys(replace(range_, rows=None).name for range_ in ranges)
        notes += [f"{source}: {name} no longer exists; its rows {fate}" for name in names]
    return notes


def blocking_runs(session: Session, name: str, *, moves: bool = False) -> list[str]:
    """Return the ids of active runs that a new run of a transfer has to wait for.

    These are the runs that hold all slots of its pool. If several runs may share the table, a run
    that moves rows waits for every active one, because its commits would outdate the new plan.
    """
    if session.quiet:
        return []
    info = session.instance.event_log_storage.get_concurrency_info(name)
    full = 0 < info.slot_count <= info.active_slot_count
    shares_table = moves and session.transfer(name).parallel.runs > 1
    return sorted(info.active_run_ids) if full or shares_table else []


def _found_by(work: FoundWork, hop: Hop, name: str) -> str | None:
    """Return what the first hop's range was found unchanged by; None of a later hop."""
    fingerprint = work.plan.fingerprints.get(name) if hop.first else None
    return fingerprint.found_by if fingerprint else None


def _results(log: Log, transfer: Transfer, work: FoundWork) -> list[RangeView]:
    names = [name for name in work.plan.ranges if name in work.requested]
    statuses = read_status(log, [transfer], only=work.requested)
    return [
        replace(
            view,
            state=State.SKIPPED_UNCHANGED,
            seconds={},
            moving_seconds=None,
            waited={},
            unchanged_by=_found_by(work, hop, view.range),
        )
        if view.range not in work.ranges and view.good
        else view
        for hop in work.hops
        for view in range_views(transfer, statuses, hop.number, names)
    ]
