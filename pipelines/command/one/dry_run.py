"""`ferry run --dry-run`: shows what a run would do to its targets, without doing it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tableferry.assets.log.queries import Log
from tableferry.assets.planning.changes.change_plan import TargetChanges, plan_changes
from tableferry.assets.planning.hazards import require_harmless
from tableferry.assets.planning.planner import make_plan
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.deltas import from_watermark
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.shrinking import require_not_shrunk
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.pipelines.command.one import finding
from tableferry.pipelines.command.session import Session
from tableferry.resources.contract.loader import format_of
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target import RUN


@dataclass(frozen=True)
class RangeStatements:
    """The statements that would move one range into one target."""

    range: str
    reason: str
    export: str
    """The query to the source."""
    publication: list[str]
    """Those that stage the rows and publish them; lines that begin with `--` are words."""


@dataclass(frozen=True)
class HopStatements:
    """The statements of one hop."""

    hop: int
    source: str
    target: str
    wire: str
    creation: list[str]
    """Statements to the target before the first range of any hop."""
    ranges: list[RangeStatements]
    more: int
    """The number of ranges that would also run, but are not shown."""


@dataclass(frozen=True)
class DryRun:
    """The statements of a transfer's run."""

    transfer: str
    hops: list[HopStatements]
    prepared: list[HopStatements]
    """The same, in the order in which their targets are created or altered, before any range."""

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        return {"transfer": self.transfer, "ok": True, "hops": [asdict(hop) for hop in self.hops]}

    def lines(self) -> Iterator[str]:
        """Return the statements as SQL with comments."""
        preparing = [(hop, map(_terminated, hop.creation)) for hop in self.prepared if hop.creation]
        told: HopStatements | None = None
        for hop, lines in [*preparing, *((hop, _range_lines(hop)) for hop in self.hops)]:
            if hop is not told:
                yield f"-- {self.transfer}, hop {hop.hop}: {hop.source} -> {hop.target}"
            told = hop
            yield from lines


def _range_lines(hop: HopStatements) -> Iterator[str]:
    if not hop.ranges:
        yield "-- nothing would run"
    for range_ in hop.ranges:
        origin = f"out of {hop.source} as {hop.wire}"
        yield f"-- range {range_.range} ({range_.reason}), {origin}"
        yield _terminated(range_.export)
        yield f"-- and into {hop.target}"
        yield from map(_terminated, range_.publication)
    if hop.more:
        yield f"-- {hop.more} more ranges would run; --range K shows one of them"


def dry_run(
    session: Session, name: str, selection: finding.Selection = finding.AS_NEEDED
) -> DryRun:
    """Plan a run and write down its statements; nothing is changed or recorded.

    Unless ranges are given, only the first range that would run is shown.

    Raises:
        InputError: the transfer, hop or a range does not exist, or a run would be refused.
    """
    transfer = session.moving_transfer(name)
    servers, ranges = session.servers_of(transfer), selection.ranges

    def asked(plan: TransferPlan) -> Collection[str]:
        return finding.match_ranges(name, ranges, plan.ranges) or plan.ranges

    def read(log: Log) -> DryRun:
        plan = make_plan(transfer, servers, log, selection.intent, asked=asked)
        hops = finding.select_hops(name, plan.hops, selection.hop)
        running = {each.number: _running(plan, each, selection.failed, log) for each in hops}
        moving = [number for number, names in running.items() if names]
        changes: dict[int, TargetChanges] = {}
        if moving:
            require_not_shrunk(plan, servers, log)
            require_harmless(each for each in hops if each.number in moving)
            planned = plan_changes(
                plan.transfer, plan.hops, servers, log, among=running, moving=moving
            )
            planned.require_allowed()
            changes = {target.hop.number: target for target in planned.targets}
        shown = {
            number: _hop(
                servers,
                plan,
                plan.hops[number - 1],
                names,
                changes.get(number),
                show_all=bool(ranges),
            )
            for number, names in running.items()
        }
        return DryRun(name, [*shown.values()], [shown[number] for number in changes])

    return session.ask_log(read)


def _running(plan: TransferPlan, hop: Hop, failed: bool, log: Log) -> list[str]:
    """Return the ranges of a hop that a run would take up."""
    decided = plan.decided[hop.number]
    retried = finding.unsettled(log, plan.transfer, [hop]) if failed else decided
    return [name for name in decided if decided[name].runs and name in retried]


def _hop(
    servers: Servers,
    plan: TransferPlan,
    hop: Hop,
    runs: Sequence[str],
    changes: TargetChanges | None,
    *,
    show_all: bool,
) -> HopStatements:
    table, decided, creation = hop.plan.target, plan.decided[hop.number], list[str]()
    target = servers.target(table)
    if changes is not None:
        # the targets of all hops are prepared if one of them runs
        creation = [step.shown for step in changes.steps if step.shown]
        if changes.creates:
            creation += target.creation(hop.plan, hop.options)
        if (loaded := hop.written_plan.target) != table:
            creation.append(f"-- {loaded} is made, and takes the place of {table} in the end")
    format_ = format_of(hop.wire, hop.plan.source, hop.plan.target)
    shown = []
    for name in runs if show_all else runs[:1]:
        range_, since = plan.ranges[name], decided[name].since
        copy = from_watermark(hop.plan, plan.transfer, since) if since else hop.plan
        published = Publication(hop.plan, range_, "", RUN, format=format_)
        publication = target.publication(published, hop.options)
        export = copy.select(range_, hop.wire)
        shown.append(RangeStatements(name, str(decided[name]), export, publication))
    return HopStatements(
        hop.number,
        str(hop.plan.source),
        str(hop.plan.target),
        hop.wire,
        creation,
        shown,
        len(runs) - len(shown),
    )


def _terminated(statement: str) -> str:
    return statement if statement.startswith("--") else f"{statement};"
