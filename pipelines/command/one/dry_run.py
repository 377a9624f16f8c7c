"""`ferry run --dry-run`: shows the statements that a run would send, without sending them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tableferry.assets.log.states import Reason
from tableferry.assets.planning.changes.drift import ADDING, removals
from tableferry.assets.planning.changes.evolving import alterations
from tableferry.assets.planning.changes.unplanned import unplanned_columns
from tableferry.assets.planning.columns.hop_columns import new_columns
from tableferry.assets.planning.columns.renaming import statements
from tableferry.assets.planning.hazards import require_harmless
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.decisions import decisions_by_hop
from tableferry.assets.planning.rows.increments import from_watermark
from tableferry.assets.planning.transfer_plan import TransferPlan, plan_transfer
from tableferry.pipelines.command.one.finding import match_ranges, select_hops, unsettled
from tableferry.pipelines.command.session import Session
from tableferry.resources.contract.formats import format_of
from tableferry.resources.contract.table_sql import qualified


@dataclass(frozen=True)
class RangeStatements:
    """The statements that would move one range into one target."""

    range: str
    reason: str
    export: str
    """The query to the source."""
    publication: list[str]
    """The statements to the target; lines that begin with `--` describe steps between them."""


@dataclass(frozen=True)
class HopStatements:
    """The statements of one hop."""

    hop: int
    source: str
    target: str
    wire: str
    creation: list[str]
    """Statements to the target before the first range."""
    ranges: list[RangeStatements]
    more: int
    """The number of ranges that would also run, but are not shown."""


@dataclass(frozen=True)
class DryRun:
    """The statements of a transfer's run."""

    transfer: str
    hops: list[HopStatements]

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        return {"transfer": self.transfer, "ok": True, "hops": [asdict(hop) for hop in self.hops]}

    def lines(self) -> Iterator[str]:
        """Return the statements as SQL with comments."""
        for hop in self.hops:
            yield f"-- {self.transfer}, hop {hop.hop}: {hop.source} -> {hop.target}"
            if not hop.ranges:
                yield "-- nothing would run"
                continue
            for statement in hop.creation:
                yield _terminated(statement)
            for range_ in hop.ranges:
                origin = f"out of {hop.source} as {hop.wire}"
                yield f"-- range {range_.range} ({range_.reason}), {origin}"
                yield _terminated(range_.export)
                yield f"-- and into {hop.target}"
                yield from map(_terminated, range_.publication)
            if hop.more:
                yield f"-- {hop.more} more ranges would run; --range K shows one of them"


def dry_run(
    session: Session,
    name: str,
    *,
    hop: int | None = None,
    ranges: Sequence[str] = (),
    failed: bool = False,
    force: bool = False,
    recreate: bool = False,
) -> DryRun:
    """Plan a run and write down its statements; nothing is changed or recorded.

    The arguments are those of `running.run`. Unless ranges are given, only the first range that
    would run is shown.

    Raises:
        InputError: the transfer, hop or a range does not exist, or a run would be refused.
    """
    transfer = session.moving_transfer(name)
    if recreate:
        transfer = transfer.recreated()
    servers = session.servers_of(transfer)
    plan = session.ask_log(lambda log: plan_transfer(transfer, servers, log))
    names = match_ranges(name, ranges, plan.ranges) or list(plan.ranges)
    plan = plan.fingerprinted(servers, names).only(names)
    hops = [
        _hop(session, plan, selected, failed=failed, force=force, show_all=bool(ranges))
        for selected in select_hops(name, plan.hops, hop)
    ]
    return DryRun(name, hops)


def _hop(
    session: Session, plan: TransferPlan, hop: Hop, *, failed: bool, force: bool, show_all: bool
) -> HopStatements:
    servers = session.servers_of(plan.transfer)
    by_hop = session.ask_log(lambda log: decisions_by_hop(plan, servers, log, force=force))
    decided = by_hop[hop.number]
    runs = [name for name in decided if decided[name].reason is not Reason.UNCHANGED]
    if failed:
        retried = session.ask_log(lambda log: unsettled(log, plan.transfer, [hop]))
        runs = [name for name in runs if name in retried]
    if runs:
        require_harmless([hop])
    target = servers.target(hop.plan.target)
    format_ = format_of(hop.wire, hop.plan.source, hop.plan.target)
    options = replace(hop.options, format=format_)
    creates = hop.existing is None
    shown = []
    for name in runs if show_all else runs[:1]:
        range_ = plan.ranges[name]
        since = decided[name].since
        copy = from_watermark(hop.plan, plan.transfer, since) if since else hop.plan
        shown.append(
            RangeStatements(
                name,
                str(decided[name]),
                copy.select(range_, hop.wire),
                target.publication(hop.plan, range_, options, creates=creates),
            )
        )
    creation = target.creation(hop.plan, hop.options, creates=creates) if runs else []
    if runs and plan.transfer.on_schema_drift in ADDING and not creates:
        creation = [*_column_additions(hop), *creation]
    if runs:
        gone = session.ask_log(lambda log: unplanned_columns(plan.hops, log))[hop.number]
        removed = removals(hop.plan, gone, plan.transfer.dropped_columns)
        creation = [*statements(hop.plan.target, hop.renames), *removed, *creation]
    if runs and plan.transfer.on_schema_drift == "evolve":
        altered = alterations(hop.plan, hop.existing, target)
        creation = [*(each.statements[0] for each in altered), *creation]
    return HopStatements(
        hop.number,
        str(hop.plan.source),
        str(hop.plan.target),
        hop.wire,
        creation,
        shown,
        len(runs) - len(shown),
    )


def _column_additions(hop: Hop) -> list[str]:
    system, table = hop.plan.target.system, qualified(hop.plan.target)
    columns = new_columns(hop.plan, hop.existing)
    statements = (
        system.dialect.add_column(table, system.quote(column.name), column) for column in columns
    )
    return [statement for statement in statements if statement]


def _terminated(statement: str) -> str:
    return statement if statement.startswith("--") else f"{statement};"
