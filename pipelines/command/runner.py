"""What the commands do, as functions that return plain data; `cli.py` only prints it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import check_job_name, compare_op_name
from tableferry.assets.log.asking import Log
from tableferry.assets.log.command_runs import carry_out
from tableferry.assets.log.ledger import committed_schema
from tableferry.assets.planning.decisions import decisions
from tableferry.assets.planning.drift import misfits, notes_of_dropped, refusal
from tableferry.assets.planning.hazards import hazard_notes
from tableferry.assets.planning.key_order import order_notes
from tableferry.assets.planning.resolve import Servers, require_servers, resolve_hops
from tableferry.assets.planning.transfer_plan import TransferPlan, known_ranges, plan_transfer
from tableferry.assets.running.caller import Caller
from tableferry.assets.running.processes import PROCESS, run_is_alive, this_process
from tableferry.assets.verifying.on_demand import not_committed
from tableferry.checks.drilldown import drill_down
from tableferry.checks.verdict import Differences, Level
from tableferry.pipelines.command.differences import difference_file
from tableferry.pipelines.command.launching import built, failures, logging_config
from tableferry.pipelines.command.running import (
    blocking_runs,
    match_ranges,
    plan_notes,
    resolve_range,
    run,
    select_hops,
)
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.status import status
from tableferry.pipelines.command.views import CheckView, PlannedRange, PlanView
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import TableferryError
from tableferry.resources.tables import TableRef

__all__ = ["blocking_runs", "check", "clean", "differences", "plan", "run", "status"]


def plan(session: Session, name: str, *, force: bool = False) -> PlanView:
    """Say for every range of every hop whether it would run, and why. Nothing is changed."""
    return session.read(lambda log: _plan(session, name, log, force=force))


def _plan(session: Session, name: str, log: Log, *, force: bool) -> PlanView:
    transfer = session.transfer(name)
    servers = session.servers_of(transfer)
    planned = plan_transfer(transfer, servers, log)
    planned = planned.fingerprinted(servers, planned.ranges)
    rows = planned.rows()
    return PlanView(
        name,
        [
            PlannedRange(hop.number, str(hop.plan.target), range_name, decision, rows[range_name])
            for hop in planned.hops
            for range_name, decision in decisions(planned, hop, servers, log, force=force).items()
        ],
        [
            *plan_notes(planned),
            *_location_warnings(planned.transfer, servers),
            *_remarks(planned.transfer.source, servers),
            *order_notes(planned.hops, servers),
            *_refusals(planned, log),
            *hazard_notes(planned.hops),
        ],
        [(str(hop.plan.target), one) for hop in planned.hops for one in hop.options.hazards],
    )


def _refusals(planned: TransferPlan, log: Log) -> Iterator[str]:
    """Why a run would move nothing, whatever is planned; else what it leaves without a value."""
    policy = planned.transfer.on_schema_drift
    for hop in planned.hops:
        before = committed_schema(log, hop.spec.to)
        if why := refusal(hop.plan, hop.existing, before, policy):
            yield f"a run will be refused: {why}"
        for why in misfits(hop.plan, hop.existing):
            yield (
                f"a run will be refused: {why}; change it there, or drop the table, which the next "
                "run makes anew"
            )
        yield from notes_of_dropped(hop.plan, hop.existing, before, policy)


def _remarks(source: TableRef, servers: Servers) -> Iterator[str]:
    yield from source_of(source.system).remarks(servers.endpoint(source), source)


def _location_warnings(transfer: Transfer, servers: Servers) -> Iterator[str]:
    """Warn of tables that another process might look for in another place."""
    for table in (transfer.source, *(hop.to for hop in transfer.hops)):
        if warning := servers.endpoint(table).location_warning(table):
            yield warning


def check(
    session: Session,
    name: str,
    *,
    level: Level | None = None,
    ranges: Sequence[str] = (),
    as_of_last_run: bool = False,
    up_to_date: bool = False,
    log_level: str | None = None,
) -> CheckView:
    """Reconcile committed ranges without moving data, and record the verdicts.

    Args:
        session: where everything is.
        name: the transfer.
        level: how strict; the transfer's own levels if not given.
        ranges: these ranges only, by partition key.
        as_of_last_run: compare the targets with what was committed; the source is not read.
        up_to_date: a source that is newer than the last move is a failure, too.
        log_level: log Dagster's events from this level on to standard error.

    Raises:
        InputError: the transfer or a range does not exist.
    """
    transfer = session.transfer(name)
    caller = Caller()
    if set(ranges) - set(session.instance.get_dynamic_partitions(transfer.partitions_name)):
        caller.hops = resolve_hops(transfer, session.servers_of(transfer))
        known = {one.name: one for one in known_ranges(transfer, caller.hops, session.instance)}
        ranges = match_ranges(name, ranges, known)
    config = {
        "level": level,
        "ranges": list(ranges),
        "as_of_last_run": as_of_last_run,
        "up_to_date": up_to_date,
    }
    job = built(session, name, caller).resolve_job_def(check_job_name(name))
    result = carry_out(
        session.instance,
        job,
        tags={PROCESS: this_process(session.instance)},
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
    servers, hops, key_range = resolve_range(session, name, range_name)
    found: dict[str, Differences] = {}
    with difference_file(parquet) as write:
        for one in select_hops(name, hops, hop):
            plan, table = one.plan, str(one.plan.target)
            target = servers.target(plan.target)
            rejected = target.rejected_table(plan, key_range)
            if rejected and not published:
                plan, table = replace(plan, target=rejected), f"{table} (rows that were rejected)"
            rows = drill_down(
                plan,
                servers.endpoint(plan.source),
                servers.endpoint(plan.target),
                key_range,
                limit=limit,
                sink=write(table),
            )
            found[table] = replace(rows, range=key_range.name)
    return found


def clean(session: Session, names: Sequence[str] = ()) -> list[str]:
    """Drop what dead runs left in the targets of these transfers (all when empty)."""
    alive = run_is_alive(session.instance)
    return [
        dropped
        for table in _targets(session, names)
        for dropped in session.servers.target(table).clean(table, alive)
    ]


def forget_markers(session: Session, names: Sequence[str] = ()) -> None:
    """Have the targets of these transfers (all when empty) forget who published what."""
    for table in _targets(session, names):
        session.servers.target(table).forget_markers(table)


def _targets(session: Session, names: Sequence[str]) -> list[TableRef]:
    chosen = [session.transfer(name) for name in names] or list(session.transfers.values())
    for transfer in chosen:
        require_servers(transfer, session.servers)
    return [hop.to for transfer in chosen for hop in transfer.hops]
