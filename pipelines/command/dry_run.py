"""`ferry run --dry-run`: the statements that a run would send, and none of them sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tableferry.assets.log.records import Reason
from tableferry.assets.planning.decisions import decisions
from tableferry.assets.planning.drift import new_columns
from tableferry.assets.planning.hazards import require_harmless
from tableferry.assets.planning.increments import from_watermark
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.transfer_plan import TransferPlan, plan_transfer
from tableferry.pipelines.command.running import match_ranges, select_hops, unsettled
from tableferry.pipelines.command.session import Session
from tableferry.resources.contract.dialects import qualified, quote
from tableferry.resources.contract.formats import format_of


@dataclass(frozen=True)
class RangeStatements:
    """How one range would get into one target."""

    range: str
    reason: str
    export: str
    """Sent to the source."""
    publication: list[str]
    """Sent to the target; lines that begin with `--` say what happens between."""


@dataclass(frozen=True)
class HopStatements:
    """What one hop would send."""

    hop: int
    source: str
    target: str
    wire: str
    creation: list[str]
    """Once, to the target."""
    ranges: list[RangeStatements]
    more: int
    """Ranges that would run likewise, and are not shown."""


@dataclass(frozen=True)
class DryRun:
    """What a run of a transfer would send."""

    transfer: str
    hops: list[HopStatements]

    def json(self) -> dict[str, Any]:
        """The `--json` form."""
        return {"transfer": self.transfer, "ok": True, "hops": [asdict(hop) for hop in self.hops]}

    def lines(self) -> Iterator[str]:
        """For people, as SQL with comments."""
        for hop in self.hops:
            yield f"-- {self.transfer}, hop {hop.hop}: {hop.source} -> {hop.target}"
            if not hop.ranges:
                yield "-- nothing would run"
                continue
            for statement in hop.creation:
                yield _ended(statement)
            for one in hop.ranges:
                yield f"-- range {one.range} ({one.reason}), out of {hop.source} as {hop.wire}"
                yield _ended(one.export)
                yield f"-- and into {hop.target}"
                yield from map(_ended, one.publication)
            if hop.more:
                yield f"-- {hop.more} more ranges likewise; --range K shows those of one"


def dry_run(
    session: Session,
    name: str,
    *,
    hop: int | None = None,
    ranges: Sequence[str] = (),
    failed: bool = False,
    force: bool = False,
) -> DryRun:
    """Plan a run, and write down its statements. Nothing is changed, nor recorded.

    Of several ranges that would run, the first one is shown, or those that are named.

    Args:
        session: where everything is.
        name: the transfer.
        hop: of this hop only (1-based).
        ranges: of these ranges only.
        failed: of the ranges only whose latest attempt failed.
        force: as if everything had changed.

    Raises:
        InputError: the transfer, hop or a range does not exist; or a run would be refused.
    """
    transfer = session.transfer(name)
    servers = session.servers_of(transfer)
    planned = session.read(lambda log: plan_transfer(transfer, servers, log))
    wanted = match_ranges(name, ranges, planned.ranges) or list(planned.ranges)
    planned = planned.fingerprinted(servers, wanted).only(wanted)
    found = []
    for one in select_hops(name, planned.hops, hop):
        found.append(_hop(session, planned, one, failed=failed, force=force, every=bool(ranges)))
    return DryRun(name, found)


def _hop(
    session: Session, planned: TransferPlan, hop: Hop, *, failed: bool, force: bool, every: bool
) -> HopStatements:
    servers = session.servers_of(planned.transfer)
    decided = session.read(lambda log: decisions(planned, hop, servers, log, force=force))
    only = set(decided)
    if failed:
        only = session.read(lambda log: unsettled(log, planned.transfer, [hop]))
    running = [
        name for name, one in decided.items() if one.reason is not Reason.UNCHANGED and name in only
    ]
    if running:
        require_harmless([hop])
    target = servers.target(hop.plan.target)
    format = format_of(hop.wire, hop.plan.source, hop.plan.target)
    options = replace(hop.options, format=format)
    creates = hop.existing is None
    shown = []
    for name in running if every else running[:1]:
        key_range = planned.ranges[name]
        since = decided[name].since
        plan = from_watermark(hop.plan, planned.transfer, since) if since else hop.plan
        shown.append(
            RangeStatements(
                name,
                str(decided[name]),
                plan.select(key_range, hop.wire),
                target.publication(hop.plan, key_range, options, creates=creates),
            )
        )
    creation = target.creation(hop.plan, hop.options, creates=creates) if running else []
    if running and planned.transfer.on_schema_drift == "add_columns" and not creates:
        creation = [*_added(hop), *creation]
    return HopStatements(
        hop.number,
        str(hop.plan.source),
        str(hop.plan.target),
        hop.wire,
        creation,
        shown,
        len(running) - len(shown),
    )


def _added(hop: Hop) -> list[str]:
    of, table = hop.plan.target.system, qualified(hop.plan.target)
    found = [
        of.dialect.add_column(table, quote(of, column.name), column)
        for column in new_columns(hop.plan, hop.existing)
    ]
    return [one for one in found if one]


def _ended(statement: str) -> str:
    return statement if statement.startswith("--") else f"{statement};"
