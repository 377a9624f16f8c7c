"""Finds what `ferry run` has to move, without importing Dagster; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.judging import ProofState, judge_ranges
from tableferry.assets.log.ledger import committed, newest_ids, partitions
from tableferry.assets.log.queries import Log
from tableferry.assets.log.ranges import read_status
from tableferry.assets.log.runs import is_unanswered
from tableferry.assets.planning.intent import Intent
from tableferry.assets.planning.planner import make_plan, ranges_moving_with
from tableferry.assets.planning.ranges.cutting import find_ranges, like_range
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan, plan_transfer
from tableferry.pipelines.command.session import Session
from tableferry.resources.contract.snapshots import HeldSnapshot, SharedSnapshot
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange


@dataclass(frozen=True)
class Selection:
    """What the user asks of a transfer; see `running.run`."""

    hop: int | None = None
    ranges: Sequence[str] = ()
    failed: bool = False
    force: bool = False
    recreate: bool = False
    repair: bool = False
    profile: str | None = None
    log_level: str | None = None
    offers_adopting: bool = True
    """Whether to say that rows which no run of this instance has moved can be adopted."""
    held: Mapping[str, HeldSnapshot] = field(default_factory=dict)
    """The snapshots in which the tables are read, by connection, if they are to be consistent.
    Unchanged ranges are then recorded as well, as they are proven as of it."""

    @property
    def intent(self) -> Intent:
        """What a run is asked to do."""
        hops = None if self.hop is None else frozenset({self.hop})
        return Intent(self.force, self.recreate, self.repair, hops=hops)

    @property
    def asks_for_more(self) -> bool:
        """Whether more is asked for than that the transfer be moved."""
        return bool(self.hop or self.ranges or self.failed or self.recreate or self.repair)

    @property
    def looks_at_all(self) -> bool:
        """Whether also what is unchanged has something to do."""
        return bool(self.force or self.recreate or self.held)


AS_NEEDED = Selection()
"""Move what needs it."""


@dataclass(frozen=True)
class FoundWork:
    """The work that a command has found."""

    plan: TransferPlan
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
        growth = self.plan.growth
        return not (self.ranges or growth.added or growth.retire or growth.remove)


def find_work(
    transfer: Transfer,
    servers: Servers,
    shared: SharedSnapshot | None,
    selection: Selection,
    log: Log,
) -> FoundWork:
    """Find the work of a run; nothing is changed.

    The ranges that may be unchanged are fingerprinted and decided about. The others have to move
    in any case, and the run itself does that with them.
    """
    name = transfer.transfer
    hop, intent, numbers = selection.hop, selection.intent, range(1, len(transfer.hops) + 1)

    def undecided(plan: TransferPlan) -> set[str]:
        selected = select_hops(name, plan.hops, hop)
        # what the user asks for is looked at before the source is read
        match_ranges(name, selection.ranges, plan.ranges)
        names = set() if intent.force else set(plan.ranges)
        if plan.transfer.write.whole_table:
            return names
        return names.intersection(*(committed(log, each.spec.to, ()) for each in selected))

    newest = {number: newest_ids(log, transfer.hops[number - 1].to) for number in numbers}
    plan = make_plan(transfer, servers, log, intent, shared=shared, asked=undecided)
    plan = replace(plan, newest=newest)
    hops = select_hops(name, plan.hops, hop)
    requested = set(match_ranges(name, selection.ranges, plan.ranges)) or set(plan.ranges)
    stale = _stale(plan, hops)
    if selection.failed:
        requested &= unsettled(log, transfer, hops)
    if requested & stale:
        requested |= ranges_moving_with(plan, servers, log, requested)
    todo = requested & stale
    if todo != requested:
        # an unchanged range whose latest attempt failed still has to be verified
        todo |= requested & unsettled(log, transfer, hops)
    if hops[0].first:
        todo |= requested & plan.versions_to_record
    if not todo and is_unanswered(log, transfer, [hop.spec.to for hop in hops]):
        # a run that died or was stopped has left staging tables, and no run has succeeded since
        todo = requested or set(plan.ranges)
    growth = plan.growth
    gone = {range_.name for range_ in (*growth.retire, *growth.remove)}
    order = [key for key in partitions(log, transfer.partitions_name) if key not in gone]
    order += [range_.name for range_ in growth.add if range_.name not in order]
    return FoundWork(plan, hops, requested, todo, stale, order)


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
) -> tuple[Servers, TransferPlan, KeyRange]:
    """Return the servers and the plan of a transfer, and the range that a user names.

    Raises:
        InputError: the transfer or range does not exist, or the name matches several ranges.
    """
    transfer = session.transfer(name)
    servers = session.servers_of(transfer)
    plan = plan_transfer(transfer, servers, session.instance, purpose="compare")
    matches = match_ranges(name, [range_name], plan.ranges)
    if len(matches) > 1:
        raise InputError(f"{range_name} is cut into ranges; name one of {', '.join(matches)}")
    return servers, plan, plan.ranges[matches[0]]


def _stale(plan: TransferPlan, hops: Sequence[Hop]) -> set[str]:
    """Return the ranges that at least one of the hops has to move."""
    decided = [plan.decided.get(hop.number, {}) for hop in hops]
    return {
        name
        for name in plan.ranges
        if any(name not in by_range or by_range[name].runs for by_range in decided)
    }


def unsettled(log: Log, transfer: Transfer, hops: Sequence[Hop]) -> set[str]:
    """Return the ranges whose latest attempt or check in one of the hops was not good."""
    statuses = read_status(log, [transfer])
    return {
        name
        for hop in hops
        for name, judged in judge_ranges(transfer, hop.spec.to, statuses).items()
        if not judged.good and judged.state is not ProofState.NOT_MOVED
    }
