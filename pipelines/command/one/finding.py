"""Finds what `ferry run` has to move, without importing Dagster; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.judging import ProofState, judge_range
from tableferry.assets.log.ledger import committed, newest_ids, partitions
from tableferry.assets.log.queries import Log
from tableferry.assets.log.ranges import read_status
from tableferry.assets.log.runs import is_unanswered
from tableferry.assets.log.states import Reason
from tableferry.assets.planning.ranges.cutting import find_ranges, like_range
from tableferry.assets.planning.resolve import Hop, checks_of, resolve_hops
from tableferry.assets.planning.rows.decisions import decisions_by_hop
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.source_state import (
    read_under,
)
from tableferry.assets.planning.transfer_plan import (
    TransferPlan,
    known_ranges,
    plan_transfer,
)
from tableferry.assets.running.caller import Prepared, ranges_moving_with
from tableferry.pipelines.command.session import Session
from tableferry.resources.contract.snapshots import SharedSnapshot, Snapshot
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange


@dataclass(frozen=True)
class FoundWork:
    """The work that a command has found."""

    prepared: Prepared
    hops: tuple[Hop, ...]
    requested: set[str]
    """The ranges that the user asks for."""
    ranges: set[str]
    """The requested ranges that have to be moved or checked again."""
    stale: set[str]
    """All ranges that a hop has to move, requested or not."""
    order: Sequence[str]
    """All ranges in Dagster's order, after the range list is brought up to date."""

    @property
    def nothing(self) -> bool:
        """Whether no run is needed, and the list of ranges stays as it is."""
        growth = self.prepared.plan.growth
        return not (self.ranges or growth.add or growth.retire or growth.remove)


def read_work(
    session: Session,
    transfer: Transfer,
    shared: SharedSnapshot | None,
    *,
    hop: int | None,
    ranges: Sequence[str],
    failed: bool,
    force: bool,
) -> FoundWork:
    """Find the work of a run under a snapshot that stands; nothing is changed."""
    servers = session.servers_of(transfer)

    def find(log: Log) -> FoundWork:
        find_under = partial(
            find_work, log, transfer, servers, shared, hop=hop, ranges=ranges, failed=failed
        )
        return read_under(shared, partial(find_under, force=force))

    return session.ask_log(find)


def find_work(
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
) -> FoundWork:
    """Find the work of a run; nothing is changed."""
    name = transfer.transfer
    plan = plan_transfer(transfer, servers, log)
    hops = select_hops(name, plan.hops, hop)
    requested = set(match_ranges(name, ranges, plan.ranges)) or set(plan.ranges)
    prepared = _prepare(log, servers, plan, hops, shared, snapshot, force=force)
    stale = _stale(prepared, hops)
    if failed:
        requested &= unsettled(log, transfer, hops)
    if transfer.by_place and requested & stale:
        fingerprinted = prepared.only(servers, [*prepared.plan.fingerprints])
        requested |= ranges_moving_with(fingerprinted, servers, log, hops, requested)
    todo = requested & stale
    if todo != requested:
        # an unchanged range whose latest attempt failed still has to be verified
        todo |= requested & unsettled(log, transfer, hops)
    if hops[0].first:
        todo |= requested & prepared.plan.versions_to_record
    if not todo and is_unanswered(log, transfer, [hop.spec.to for hop in hops]):
        # a run that died or was stopped has left staging tables, and no run has succeeded since
        todo = requested or set(plan.ranges)
    growth = plan.growth
    gone = {range_.name for range_ in (*growth.retire, *growth.remove)}
    order = [key for key in partitions(log, transfer.partitions_name) if key not in gone]
    order += [range_.name for range_ in growth.add if range_.name not in order]
    return FoundWork(prepared, hops, requested, todo, stale, order)


def _prepare(
    log: Log,
    servers: Servers,
    plan: TransferPlan,
    hops: Sequence[Hop],
    shared: SharedSnapshot | None,
    snapshot: Snapshot | None,
    *,
    force: bool,
) -> Prepared:
    """Fingerprint the ranges that may be unchanged, and decide which of them have to move.

    The others have to move in any case, and the run itself fingerprints them.
    """
    newest = {hop.number: newest_ids(log, hop.spec.to) for hop in plan.hops}
    names = set() if force else set(plan.ranges)
    if not plan.transfer.write.whole_table:
        names = names.intersection(*(committed(log, hop.spec.to, ()) for hop in hops))
    plan = plan.fingerprinted(servers, names, snapshot=snapshot)
    undecided = plan.only(names)
    decided = decisions_by_hop(undecided, servers, log) if names else {}
    return Prepared(plan, shared, snapshot, decided, newest)


def select_hops(name: str, hops: tuple[Hop, ...], number: int | None) -> tuple[Hop, ...]:
    """Select a hop by its number (1-based), or all hops.

    Raises:
        InputError: there is no such hop.
    """
    if number is None:
        return hops
    if not 1 <= number <= len(hops):
        raise InputError(f"{name} has hops 1 to {len(hops)}, not {number}")
    return (hops[number - 1],)


def match_ranges(name: str, patterns: Sequence[str], known: Mapping[str, KeyRange]) -> list[str]:
    """Return the names of the ranges that a user asks for.

    Raises:
        InputError: nothing matches a pattern.
    """
    names: list[str] = []
    for pattern in patterns:
        matches = find_ranges(pattern, known)
        if not matches:
            similar = like_range(pattern, known)
            shown = [*similar[:2], "...", similar[-1]] if len(similar) > 4 else similar
            hint = f"did you mean {', '.join(shown)}? " if similar else ""
            raise InputError(
                f"{name} has no range {pattern!r}; {hint}"
                f"`ferry plan {name}` lists all of them ({len(known)})"
            )
        names += matches
    return names


def resolve_range(
    session: Session, name: str, range_name: str
) -> tuple[Servers, tuple[Hop, ...], KeyRange]:
    """Return the servers and hops of a transfer, and the range that a user names.

    Raises:
        InputError: the transfer or range does not exist, or the name matches several ranges.
    """
    transfer = session.transfer(name)
    servers = session.servers_of(transfer)
    hops = resolve_hops(transfer, servers)
    known = {range_.name: range_ for range_ in known_ranges(transfer, hops, session.instance)}
    matches = match_ranges(name, [range_name], known)
    if len(matches) > 1:
        raise InputError(f"{range_name} is cut into ranges; name one of {', '.join(matches)}")
    return servers, hops, known[matches[0]]


def _stale(prepared: Prepared, hops: Sequence[Hop]) -> set[str]:
    """Return the ranges that at least one of the hops has to move."""
    decided = [prepared.decided.get(hop.number, {}) for hop in hops]
    return {
        name
        for name in prepared.plan.ranges
        if not all(
            name in by_range and by_range[name].reason is Reason.UNCHANGED for by_range in decided
        )
    }


def unsettled(log: Log, transfer: Transfer, hops: Sequence[Hop]) -> set[str]:
    """Return the ranges whose latest attempt or check in one of the hops was not good."""
    statuses, declared = read_status(log, [transfer]), checks_of(transfer)
    return {
        name
        for hop in hops
        for name, status in statuses[hop.spec.to].ranges.items()
        if not (judged := judge_range(status, declared)).good
        and judged.state is not ProofState.NOT_MOVED
    }
