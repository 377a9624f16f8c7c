"""`ferry run --dry-run`: shows the statements that a run would send, without sending them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, cast

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.queries import Log
from tableferry.assets.planning.changes.drift import ADDING, Unplanned, add_columns, removals
from tableferry.assets.planning.changes.evolving import evolve, made_anew
from tableferry.assets.planning.changes.unplanned import unplanned_columns
from tableferry.assets.planning.columns.hop_columns import new_columns
from tableferry.assets.planning.columns.renaming import renamed, statements
from tableferry.assets.planning.hazards import require_harmless
from tableferry.assets.planning.intent import Intent
from tableferry.assets.planning.planner import make_plan
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.increments import from_watermark
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.pipelines.command.one.finding import match_ranges, select_hops, unsettled
from tableferry.pipelines.command.session import Session
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.formats import format_of
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.quarantine import Quarantine
from tableferry.resources.contract.recording import RUN, Recording, RecordingServer
from tableferry.resources.types.column import Column


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
    servers, intent = session.servers_of(transfer), Intent(force=force, recreate=recreate)

    def read(log: Log) -> TransferPlan:
        asked = partial(_asked, name, ranges)
        return make_plan(transfer, servers, log, intent, asked=asked)

    plan = session.ask_log(read)
    hops = [
        _hop(session, plan, selected, failed=failed, show_all=bool(ranges))
        for selected in select_hops(name, plan.hops, hop)
    ]
    return DryRun(name, hops)


def _asked(name: str, ranges: Sequence[str], plan: TransferPlan) -> Collection[str]:
    return match_ranges(name, ranges, plan.ranges) or plan.ranges


def _hop(
    session: Session, plan: TransferPlan, hop: Hop, *, failed: bool, show_all: bool
) -> HopStatements:
    servers, decided = session.servers_of(plan.declared), plan.decided[hop.number]
    runs = [name for name in decided if decided[name].runs]
    if failed:
        retried = session.ask_log(lambda log: unsettled(log, plan.transfer, [hop]))
        runs = [name for name in runs if name in retried]
    if runs:
        require_harmless([hop])
    if not runs:
        return HopStatements(
            hop.number, str(hop.plan.source), str(hop.plan.target), hop.wire, [], [], 0
        )
    gone = session.ask_log(lambda log: unplanned_columns(plan.hops, log))[hop.number]
    anew = session.ask_log(lambda log: made_anew(hop, servers, log))
    fitting, columns = _fitting(plan.transfer, hop, servers, gone, anew=anew is not None)
    target, loader = servers.target(hop.plan.target), loader_of(hop.plan.target.system)
    preview = loader.preview(target, hop.plan, hop.options, columns)
    format_ = format_of(hop.wire, hop.plan.source, hop.plan.target)
    quarantine = Quarantine(0, (), RUN) if hop.plan.fitting else None
    options = replace(hop.options, format=format_, quarantine=quarantine)
    rows = plan.rows() if hop.first else dict[str, int]()
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
                preview.publish(range_, options, rows.get(name)),
            )
        )
    return HopStatements(
        hop.number,
        str(hop.plan.source),
        str(hop.plan.target),
        hop.wire,
        [*fitting, *preview.preparation],
        shown,
        len(runs) - len(shown),
    )


def _fitting(
    transfer: Transfer, hop: Hop, servers: Servers, gone: Unplanned, *, anew: bool
) -> tuple[list[str], list[Column] | None]:
    """Have an existing target fit the hop, as a run does before it prepares it.

    Returns:
        The statements, which are recorded, and the columns that the target has then.
    """
    table, policy = hop.plan.target, transfer.on_schema_drift
    if hop.existing is None or hop.options.recreate:
        return [], [*hop.existing.values()] if hop.existing else None
    if anew:
        return [f"-- {table} is empty and does not fit: it is dropped, and made anew"], [
            *hop.plan.target_columns
        ]
    recording, planned = Recording(), {column.name: column for column in hop.plan.target_columns}
    server = cast(Endpoint, RecordingServer(servers.endpoint(table), recording))
    for statement in statements(table, hop.renames):
        server.execute(statement)
    columns = renamed(hop.existing, hop.renames)
    recording.columns[table] = [planned.get(name, columns[name]) for name in columns]
    if policy == "evolve" and evolve(server, hop.plan, hop.existing, servers.target(table)):
        columns = {name: planned.get(name, columns[name]) for name in columns}
    for statement in removals(hop.plan, gone, transfer.dropped_columns):
        server.execute(statement)
    dropped = gone.removed("drop") if transfer.dropped_columns == "drop" else []
    columns = {name: columns[name] for name in columns if name not in dropped}
    if policy in ADDING:
        added = new_columns(hop.plan, hop.existing)
        add_columns(server, table, added)
        columns |= {column.name: column for column in added}
    return recording.taken(), [*columns.values()]


def _terminated(statement: str) -> str:
    return statement if statement.startswith("--") else f"{statement};"
