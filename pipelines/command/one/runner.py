"""The operations of the commands, as functions that return plain data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.queries import Log
from tableferry.assets.planning.changes.change_plan import ChangePlan, plan_changes
from tableferry.assets.planning.changes.drift import Unplanned, unfilled_before
from tableferry.assets.planning.hazards import hazard_notes
from tableferry.assets.planning.intent import Intent
from tableferry.assets.planning.planner import make_plan
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.room import outlook, rows_to_move
from tableferry.assets.planning.servers import Servers, require_servers
from tableferry.assets.planning.shrinking import IF_RIGHT, shrunk
from tableferry.assets.planning.transfer_plan import TransferPlan, plan_transfer
from tableferry.assets.planning.wires import wire_notes
from tableferry.assets.running.caller import Caller
from tableferry.assets.running.processes import run_is_alive
from tableferry.assets.verifying.checked import CheckRequest, not_committed
from tableferry.checks.levels import Level
from tableferry.checks.recheck import ONCE, Recheck
from tableferry.checks.verdict import Difference, Differences
from tableferry.pipelines.command.one.finding import match_ranges, resolve_range, select_hops
from tableferry.pipelines.command.one.launching import execute_checks, failures
from tableferry.pipelines.command.one.running import blocking_runs, plan_notes, run
from tableferry.pipelines.command.one.status import status
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.show.views import CheckView, PlannedRange, PlanView
from tableferry.resources.columns.key_kind import is_text_key
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.target_columns import unfilled, unfilled_notes
from tableferry.resources.errors import TableferryError, informing
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

__all__ = ["blocking_runs", "check", "clean", "differences", "plan", "run", "status"]


def plan(session: Session, name: str, *, force: bool = False, count_rows: bool = False) -> PlanView:
    """Plan every range of every hop: whether it would run, and why. Nothing is changed.

    Args:
        session: the session of the command.
        name: the transfer.
        force: plan as for a run of all ranges.
        count_rows: find how many rows would move of ranges of which not all would. That reads both
            sides of these, as the run does.
    """
    transfer = session.moving_transfer(name)
    servers = session.servers_of(transfer)

    def read(log: Log) -> PlanView:
        plan = make_plan(transfer, servers, log, Intent(force=force))
        rows = plan.rows()
        ranges: list[PlannedRange] = []
        changes = plan_changes(transfer, plan.hops, servers, log)
        # one target that is refused stops the run
        refused = changes.refusals
        lost = shrunk(plan, servers, log)
        if lost and transfer.on_shrink == "fail":
            refused.append(f"{lost}; {IF_RIGHT}")
        current = set(plan.ranges)
        for hop in plan.hops:
            decided = plan.decided[hop.number]
            for range_name, decision in decided.items():
                unreadable = plan.fingerprints[range_name].refused if hop.first else None
                planned = PlannedRange(
                    hop.number,
                    str(hop.plan.target),
                    range_name,
                    decision,
                    rows[range_name],
                    refused="; ".join(filter(None, [*refused, unreadable])),
                )
                # what a later hop would read is not there yet, if the hop before has to run
                if count_rows and range_name in current and planned.state == "run":
                    to_move = rows_to_move(plan, hop, servers, range_name, decision)
                    planned = replace(planned, to_move=to_move)
                ranges.append(planned)
            current &= {name for name, decision in decided.items() if decision.reason.current}
        unknown: list[str] = []
        kept = informing("how tables are kept", lambda: [*_kept_notes(plan, servers)], unknown)
        notes = [
            *plan_notes(plan),
            *(kept or unknown),
            *(f"a run will be refused: {why}" for why in refused),
            *([lost] if lost and transfer.on_shrink == "warn" else []),
            *_drift_notes(transfer, servers, changes),
            *_unfilled_notes(
                plan, changes.gone, {each.hop for each in ranges if each.state == "run"}
            ),
            *hazard_notes(plan.hops),
            *wire_notes(plan.hops),
        ]
        hazards = [
            (str(hop.plan.target), item) for hop in plan.hops for item in hop.options.hazards
        ]
        ahead = informing("what a run takes", lambda: outlook(plan, servers, log), notes)
        return PlanView(name, ranges, notes, hazards, ahead)

    return session.ask_log(read)


def _kept_notes(plan: TransferPlan, servers: Servers) -> Iterator[str]:
    """Say what reading costs, where tables are kept, and which order no index serves."""
    transfer, source = plan.transfer, plan.transfer.source
    yield from filter(None, [servers.budget_line(source)])
    yield from _location_notes(transfer, servers)
    yield from source_of(source.system).remarks(servers.endpoint(source), source)
    yield from _cluster_notes(transfer, servers)
    yield from order_notes(plan.hops, servers)


def _drift_notes(transfer: Transfer, servers: Servers, changes: ChangePlan) -> Iterator[str]:
    """Say what a run would alter, and which columns it would not fill."""
    for planned in changes.targets:
        hop, table = planned.hop, planned.hop.plan.target
        for step in planned.steps if not changes.refusals else ():
            yield step.foreseen
        if not planned.creates:
            yield from servers.target(table).unapplied(hop.plan, hop.in_place.options)
            yield from planned.notes
            yield from unfilled_before(transfer, hop, changes.gone[hop.number])


def _unfilled_notes(
    plan: TransferPlan, gone: Mapping[int, Unplanned], moving: Collection[int]
) -> Iterator[str]:
    """Say what becomes of columns of others, in targets into which rows are about to move."""
    for hop in plan.hops:
        # a folder has no columns of its own
        if hop.number in moving and not hop.plan.target.system.by_path:
            told = {column.name for column in [*gone[hop.number].lost, *gone[hop.number].left_out]}
            columns = unfilled(hop.plan, (hop.existing or {}).values(), hop.options.mark)
            others = [column for column in columns if column.name not in told]
            yield from unfilled_notes(hop.plan, hop.options, others)


def _location_notes(transfer: Transfer, servers: Servers) -> Iterator[str]:
    """Name the tables that other processes may look for in another place."""
    for table in transfer.tables:
        if note := servers.endpoint(table).location_warning(table):
            yield note


def _cluster_notes(transfer: Transfer, servers: Servers) -> Iterator[str]:
    """Say of each target which servers keep it, if they are several."""
    for hop in transfer.hops:
        if kept_by := servers.endpoint(hop.to).kept_by():
            yield f"{hop.to}: {kept_by}"


def order_notes(hops: Sequence[Hop], servers: Servers) -> Iterator[str]:
    """Yield a note per table of which each range is read, replaced and checked by a full scan."""
    first = hops[0].plan
    if not is_text_key(first.key.source, first.source.system):
        return
    yield from _order_unserved(first.source, first.key.source, servers)
    for hop in hops:
        key = hop.plan.key.target
        if hop.existing is not None:
            yield from _order_unserved(hop.plan.target, hop.existing.get(key.name, key), servers)
        elif not loader_of(hop.plan.target.system).orders_key(hop.plan):
            yield _order_note(hop.plan.target, key)


def _order_unserved(table: TableRef, key: Column, servers: Servers) -> Iterator[str]:
    source = source_of(table.system)
    if is_text_key(key, table.system) and not source.serves_order(
        servers.endpoint(table), table, key
    ):
        yield _order_note(table, key)


def _order_note(table: TableRef, key: Column) -> str:
    index = source_of(table.system).index_of_order(table, key)
    return (
        f"{table}: no index serves the order of the key {key.name!r}, so that each range reads the "
        f"whole table{f'; it would take {index}' if index else ''}"
    )


def check(
    session: Session,
    name: str,
    *,
    level: Level | None = None,
    ranges: Sequence[str] = (),
    as_of_last_run: bool = False,
    up_to_date: bool = False,
    recheck: str | None = None,
    log_level: str | None = None,
) -> CheckView:
    """Reconcile committed ranges without moving data, and record the verdicts.

    Args:
        session: the session of the command.
        name: the transfer.
        level: how strict; by default as the transfer declares.
        ranges: check only these ranges, by partition key.
        as_of_last_run: compare the targets with what was committed; the source is not read.
        up_to_date: also fail if the source is newer than the last move.
        recheck: `NxS`, compare rows that differ N more times, S seconds apart; by default once.
        log_level: log Dagster's events from this level on to standard error.

    Raises:
        InputError: the transfer or a range does not exist, or `recheck` has another form.
    """
    transfer = session.transfer(name)
    caller = Caller()
    if set(ranges) - set(session.instance.get_dynamic_partitions(transfer.partitions_name)):
        servers = session.servers_of(transfer)
        caller.plan = plan_transfer(transfer, servers, session.instance, purpose="compare")
        ranges = match_ranges(name, ranges, caller.plan.ranges)
    request = CheckRequest(
        level,
        tuple(ranges),
        as_of_last_run,
        up_to_date,
        complete=True,
        recheck=Recheck.parse(recheck) if recheck else ONCE,
    )
    result = execute_checks(session, transfer, request, caller, log_level)
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
    """Compare one range row by row, and return the differences per target.

    If the last attempt on the range failed its audit, its rejected rows are compared.

    Args:
        session: the session of the command.
        name: the transfer.
        range_name: the range, by partition key.
        hop: compare only this hop (1-based).
        limit: maximum examples per target; the counts are of all rows.
        parquet: a file for all differences, one row per differing value.
        published: compare the published rows even if there are rejected ones.

    Raises:
        InputError: the transfer, hop or range does not exist.
    """
    servers, resolved, key_range = resolve_range(session, name, range_name)
    by_target: dict[str, Differences] = {}
    with difference_file(parquet) as writer_for:
        for selected in select_hops(name, resolved.hops, hop):
            plan, table = selected.plan, str(selected.plan.target)
            target = servers.target(plan.target)
            rejected = target.rejected_table(plan, key_range)
            if rejected and not published:
                plan, table = replace(plan, target=rejected), f"{table} (rows that were rejected)"
            compared = replace(servers.comparison(plan, [key_range]), limit=limit)
            rows = compared.search(writer_for(table))
            by_target[table] = replace(rows, range=key_range.name)
    return by_target


_Write = Callable[[Sequence[Difference]], None]

DIFFERENCE_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("table", "key", "kind", "column", "source", "target")]
    # the primary key's values by column; tables have different keys
    + [("row", pa.map_(pa.string(), pa.string()))]
)


@contextmanager
def difference_file(path: Path | None) -> Iterator[Callable[[str], _Write | None]]:
    """Open a file for differences; yields a function that returns the writer for a target table.

    Without a path the writer is None.
    """
    if path is None:
        yield lambda table: None
        return
    with path.open("wb") as file, pq.ParquetWriter(file, DIFFERENCE_SCHEMA) as writer:

        def writer_for(table: str) -> _Write:
            def write(differences: Sequence[Difference]) -> None:
                rows = [
                    {"table": table, **vars(item), "row": list(item.row.items())}
                    for item in differences
                ]
                writer.write_table(pa.Table.from_pylist(rows, schema=DIFFERENCE_SCHEMA))

            return write

        yield writer_for


def clean(
    session: Session, names: Sequence[str] = (), *, spares_strangers: bool = False
) -> list[str]:
    """Drop what dead runs have left in the transfers' targets (by default all transfers).

    Args:
        session: the session of the command.
        names: the transfers.
        spares_strangers: leave what runs of other homes on other machines have left.
    """
    alive = run_is_alive(session.instance, elsewhere=spares_strangers)
    return [
        dropped
        for table in _targets(session, names)
        for dropped in session.servers.target(table).clean(table, alive)
    ]


def forget_markers(session: Session, names: Sequence[str] = ()) -> list[TableRef]:
    """Delete the markers in the transfers' targets (by default all transfers); return the targets
    that had some."""
    targets = _targets(session, names)
    return [table for table in targets if session.servers.target(table).forget_markers(table)]


def _targets(session: Session, names: Sequence[str]) -> list[TableRef]:
    transfers = [session.transfer(name) for name in names] or list(session.transfers.values())
    moving = [transfer for transfer in transfers if transfer.write.moves]
    for transfer in moving:
        require_servers(transfer, session.servers)
    return [hop.to for transfer in moving for hop in transfer.hops]
