"""`ferry run`: looks what there is to do, which takes no Dagster, and has it done."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tableferry.assets.declaring.manifest import ONLY_SHOWN, Transfer
from tableferry.assets.log.answers import is_unanswered
from tableferry.assets.log.asking import Log
from tableferry.assets.log.ledger import committed, newest_ids, partitions
from tableferry.assets.log.records import Reason, State
from tableferry.assets.planning.decisions import decisions
from tableferry.assets.planning.hazards import require_harmless
from tableferry.assets.planning.ranges import find_ranges, like_range
from tableferry.assets.planning.resolve import Hop, Servers, resolve_hops
from tableferry.assets.planning.stretches import MOST_RUNS, segments, stretches
from tableferry.assets.planning.transfer_plan import (
    TransferPlan,
    apply_growth,
    known_ranges,
    plan_transfer,
)
from tableferry.assets.running.caller import Caller, Prepared, moved_along
from tableferry.assets.running.progress import OnProgress, Progress, unwatched
from tableferry.assets.running.source_state import read_under, shared_snapshot
from tableferry.pipelines.command.range_views import (
    RangeView,
    TransferView,
    notes_of_ranges,
    range_views,
)
from tableferry.pipelines.command.session import Session
from tableferry.resources.contract.snapshots import SharedSnapshot, Snapshot
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange

if TYPE_CHECKING:
    from tableferry.pipelines.command.launching import Carried


@dataclass(frozen=True)
class ToDo:
    """What a command found that has to be done."""

    prepared: Prepared
    hops: tuple[Hop, ...]
    wanted: set[str]
    """The ranges that are asked for."""
    ranges: set[str]
    """Those of them that have to be moved, or looked at again."""
    stale: set[str]
    """All that one of the hops has to move, asked for or not."""
    order: Sequence[str]
    """All ranges in Dagster's order, once those that are gone are out and the new ones in."""

    @property
    def nothing(self) -> bool:
        """No run is needed, and no range is new or gone."""
        growth = self.prepared.plan.growth
        return not (self.ranges or growth.add or growth.retire or growth.remove)


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

    Dagster is not even imported where nothing is to do, and its event log is in the file where it
    keeps it by itself.

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
    servers = session.servers_of(transfer)
    note = _take_turns(session, transfer)
    # what is planned now is out of date when a run that is waited for has ended
    waits = bool(waits_for(session, name))
    with nullcontext() if waits else shared_snapshot(transfer, servers) as shared:

        def look(log: Log) -> ToDo:
            look_under = partial(
                _look, log, transfer, servers, shared, hop=hop, ranges=ranges, failed=failed
            )
            return read_under(shared, partial(look_under, force=force))

        todo = session.read(look)
        total = len(todo.ranges) * len(todo.hops)
        on_progress(Progress(name, "", "", "planned", total=total))
        carried, caller = None, Caller(on_progress, None if waits else todo.prepared)
        if not todo.nothing:
            require_harmless(todo.hops)
            snapshot = str(shared.name()) if shared else None
            carried = _carried_out(
                session,
                todo,
                caller,
                snapshot,
                force=force,
                profile=profile,
                log_level=log_level,
            )
    views = session.read(lambda log: _results(log, transfer, todo))
    errors = carried.errors if carried else []
    if not errors:
        errors = [problem for view in views if (problem := view.problem)]
    notes = [*([note] if note else []), *notes_of(todo.prepared.plan)]
    notes += [*(carried.notes if carried else ()), *notes_of_ranges(views)]
    run_ids = carried.run_ids if carried else []
    return TransferView(name, views, not errors, errors, run_ids, notes)


def _take_turns(session: Session, transfer: Transfer) -> str | None:
    """Where several runs share a table: let them, and wait for those of others.

    Returns:
        A note for the user.
    """
    if transfer.parallel.runs == 1:
        return None
    from tableferry.assets.running.launches import share_pool
    from tableferry.sensors.reaper import reap

    note = share_pool(session.instance, transfer)
    while waits_for(session, transfer.transfer, moves=True):
        time.sleep(1)
        reap(session.instance)
    return note


def _look(
    log: Log,
    transfer: Transfer,
    servers: Servers,
    shared: SharedSnapshot | None,
    snapshot: Snapshot | None,
    *,
    hop: int | None,
    ranges: Sequence[str],
    failed: bool,
    force: bool,
) -> ToDo:
    """What a run has to do; nothing is changed."""
    name = transfer.transfer
    planned = plan_transfer(transfer, servers, log)
    hops = chosen_hops(name, planned.hops, hop)
    wanted = set(meant_ranges(name, ranges, planned.ranges)) or set(planned.ranges)
    prepared = _prepared(log, servers, planned, hops, shared, snapshot, force=force)
    stale = _stale(prepared, hops)
    if failed:
        wanted &= unsettled(log, transfer, hops)
    if transfer.placed and wanted & stale:
        looked_at = prepared.only(servers, [*prepared.plan.fingerprints])
        wanted |= moved_along(looked_at, servers, log, hops, wanted)
    # an unchanged range whose latest attempt failed is settled by looking at it
    todo = wanted & stale
    if todo != wanted:
        todo |= wanted & unsettled(log, transfer, hops)
    if not todo and is_unanswered(log, transfer, [one.spec.to for one in hops]):
        # a run that died or was stopped has left staging tables, and no success since
        todo = wanted or set(planned.ranges)
    growth = planned.growth
    gone = {one.name for one in (*growth.retire, *growth.remove)}
    order = [one for one in partitions(log, transfer.partitions_name) if one not in gone]
    order += [one.name for one in growth.add if one.name not in order]
    return ToDo(prepared, hops, wanted, todo, stale, order)


def _carried_out(
    session: Session,
    todo: ToDo,
    caller: Caller,
    snapshot: str | None,
    *,
    force: bool,
    profile: str | None,
    log_level: str | None,
) -> Carried:
    """Cut the ranges anew if need be, and have them moved by Dagster's runs."""
    plan, order = todo.prepared.plan, todo.order
    transfer = plan.transfer
    servers = session.servers_of(transfer)
    # code that declares its servers itself has them in this process alone
    runs = transfer.parallel.runs if session.resources is None else 1
    parts = stretches([one for one in order if one in todo.ranges], runs, plan.rows())
    # a run that spans what it was not asked for may only find it unchanged
    most = max(1, MOST_RUNS // max(1, len(parts)))
    most = most if todo.stale <= todo.ranges and not force else len(order)
    # what is read by places is read under the snapshot of one run
    most = 1 if transfer.placed else most
    spans = [segments(order, part, most) for part in parts]
    from tableferry.assets.running.runs import FORCE, PROFILE
    from tableferry.pipelines.command.launching import Carried, Share, carry_out, carry_out_together

    apply_growth(plan, servers, session.instance)
    tags = {FORCE: "true"} if force else {}
    tags |= {PROFILE: profile} if profile else {}
    name, chosen = transfer.transfer, len(todo.hops) < len(transfer.hops)
    hops = tuple(one.asset for one in todo.hops) if chosen else None
    shares = [Share(name, hops, of_one, tags, log_level, snapshot) for of_one in spans]
    if len(shares) > 1:
        return carry_out_together(session, shares, caller.on_progress)
    return carry_out(session, shares[0], caller) if shares else Carried()


def notes_of(planned: TransferPlan) -> list[str]:
    """Which rows a transfer leaves out by its declaration, which files are there no more, and whose
    cuts are taken over."""
    growth, source = planned.growth, planned.transfer.source
    found = [f"the keys are cut {growth.cut_by}"] if growth.cut_by else []
    if planned.transfer.row_security == "apply":
        found.append(f"row_security: apply: {ONLY_SHOWN}")
    for ranges, what in ((growth.gone, "stay (on_missing: keep)"), (growth.remove, "go")):
        names = dict.fromkeys(replace(one, rows=None).name for one in ranges)
        found += [f"{source}: {name} is there no more; its rows {what}" for name in names]
    return found


def _prepared(
    log: Log,
    servers: Servers,
    planned: TransferPlan,
    hops: Sequence[Hop],
    shared: SharedSnapshot | None,
    snapshot: Snapshot | None,
    *,
    force: bool,
) -> Prepared:
    """The plan with why each range would run, as far as that takes a look at the source.

    The source rows of ranges that are sure to move are not read for it: the run does that.
    """
    newest = {hop.number: newest_ids(log, hop.spec.to) for hop in planned.hops}
    names = set() if force else set(planned.ranges)
    if not planned.transfer.write.whole_table:
        names = names.intersection(*(committed(log, one.spec.to, ()) for one in hops))
    planned = planned.fingerprinted(servers, names, snapshot=snapshot)
    asked = planned.only(names)
    decided = {hop.number: decisions(asked, hop, servers, log) for hop in planned.hops if names}
    return Prepared(planned, shared, snapshot, decided, newest)


def waits_for(session: Session, name: str, *, moves: bool = False) -> list[str]:
    """The runs that a run of a transfer has to wait for now: those that hold all of its pool.

    One that moves rows waits for any of them where several share the table: it would plan what
    these are about to commit.
    """
    if session.quiet:
        return []
    info = session.instance.event_log_storage.get_concurrency_info(name)
    full = 0 < info.slot_count <= info.active_slot_count
    any_one = moves and session.transfer(name).parallel.runs > 1
    return sorted(info.active_run_ids) if full or any_one else []


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


def hops_and_range(
    session: Session, name: str, range_name: str
) -> tuple[Servers, tuple[Hop, ...], KeyRange]:
    """The servers and hops of a transfer, and the one range of it that a user asks for.

    Raises:
        InputError: there is no such transfer or range, or there are several of that name.
    """
    transfer = session.transfer(name)
    servers = session.servers_of(transfer)
    hops = resolve_hops(transfer, servers)
    known = {
        key_range.name: key_range for key_range in known_ranges(transfer, hops, session.instance)
    }
    meant = meant_ranges(name, [range_name], known)
    if len(meant) > 1:
        raise InputError(f"{range_name} is cut into ranges; name one of {', '.join(meant)}")
    return servers, hops, known[meant[0]]


def _stale(prepared: Prepared, hops: Sequence[Hop]) -> set[str]:
    """Ranges that one of the hops has to move."""
    names = set(prepared.plan.ranges)
    decided = [prepared.decided.get(hop.number, {}) for hop in hops]
    settled = (
        {name for name, one in found.items() if one.reason is Reason.UNCHANGED} for found in decided
    )
    return names - names.intersection(*settled)


def unsettled(log: Log, transfer: Transfer, hops: Sequence[Hop]) -> set[str]:
    """Ranges whose latest attempt in one of the hops, or latest check, was not good."""
    names = partitions(log, transfer.partitions_name)
    return {
        view.range
        for hop in hops
        for view in range_views(log, transfer, hop.number, names)
        if view.state is not State.MISSING and not view.good
    }


def _results(log: Log, transfer: Transfer, todo: ToDo) -> list[RangeView]:
    names = [name for name in todo.prepared.plan.ranges if name in todo.wanted]
    return [
        replace(view, state=State.SKIPPED_UNCHANGED, seconds={}, moving_seconds=None)
        if view.range not in todo.ranges and view.good
        else view
        for hop in todo.hops
        for view in range_views(log, transfer, hop.number, names)
    ]
