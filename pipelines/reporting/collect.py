"""Collects a transfer's report from the event log and the servers."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import yaml

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.sections import HopSpec
from tableferry.assets.judging import TableJudgement, departures, judge_table, unchecked
from tableferry.assets.log import history, ledger, ranges, written_columns
from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.states import State
from tableferry.assets.planning.changes.drift import schema_changes
from tableferry.assets.planning.resolve import Hop, checks_of
from tableferry.assets.planning.transfer_plan import plan_transfer
from tableferry.assets.transfer import check_description
from tableferry.assets.verifying.whole_tables import DESCRIPTIONS
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.reporting.evidence import check_entry
from tableferry.pipelines.reporting.report import (
    ColumnEntry,
    HopEntry,
    RangeEntry,
    Report,
    ReportProblem,
    RunEntry,
    anchor,
    moment,
)
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.keys.range import ROW, KeyRange
from tableferry.resources.words import iso_time

PACKAGES = (
    *("tableferry", "dagster", "pyarrow", "adbc-driver-postgresql", "psycopg"),
    *("mssql-python", "clickhouse-connect", "duckdb", "polars"),
)
"""Whose versions a report has, as far as they are installed."""


@dataclass(frozen=True)
class _ServerState:
    """The state of servers and tables when the report is made."""

    servers: Mapping[str, str]
    ranges: Mapping[str, KeyRange] = field(default_factory=dict)
    drift: Mapping[int, str] = field(default_factory=dict)
    """Changes of the columns since the commit, by hop."""
    not_seen: str = ""
    refused: str = ""


def report(session: Session, name: str, *, dagster_url: str | None = None) -> Report:
    """Collect the latest record and the current verdicts of every range and table of a transfer.

    The evidence comes from the event log. The servers are queried for their versions, and for
    changes of the proven columns; the report says if they could not be.

    Args:
        session: the session of the command.
        name: the transfer.
        dagster_url: Dagster's web UI, for links to runs.

    Raises:
        InputError: the transfer does not exist, or the URL is invalid.
    """
    transfer = session.transfer(name)
    url = checked_url(dagster_url) if dagster_url else None
    state = _server_state(session, transfer)
    statuses = ranges.read_status(session.instance, [transfer], evidence=True)
    judged = [judge_table(transfer, hop.to, statuses) for hop in transfer.hops]
    hops = tuple(
        _hop(session.instance, transfer, number, statuses[hop.to], judged[number - 1], state)
        for number, hop in enumerate(transfer.hops, start=1)
    )
    entries = [entry for hop in hops for entry in hop.ranges]
    run_ids = [run_id for entry in entries for run_id in (entry.moved_by, entry.confirmed_by)]
    past = history.past_runs(session.instance, transfer, filter(None, run_ids))
    failed = {run.run_id for run in history.unanswered(past)}
    runs = tuple(_run(run, run.run_id in failed) for run in past)
    return Report(
        transfer=name,
        description=transfer.description or "",
        created_at=iso_time(dt.datetime.now(dt.UTC).timestamp()) or "",
        hops=hops,
        problems=tuple(problems_of(state.refused, runs, hops, judged)),
        runs=runs,
        not_seen=state.not_seen,
        refused=state.refused,
        settings=dict(_settings(transfer)),
        servers=state.servers,
        packages=installed_packages(),
        meanings={
            **{check: check_description(transfer, check) or "" for check in checks_of(transfer)},
            **{check: DESCRIPTIONS[check] for check in WHOLE_TABLE_CHECKS},
        },
        dagster_url=url,
    )


def installed_packages() -> dict[str, str]:
    """Return the versions of `PACKAGES`, as far as they are installed."""
    versions = {}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def checked_url(text: str) -> str:
    """Return the address of Dagster's web UI without a slash at its end.

    Raises:
        InputError: it is no such address, or has a password in it.
    """
    with suppress(ValueError):
        parts = urlsplit(text)
        if parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc:
            return text.rstrip("/")
    raise InputError(
        "the address of Dagster's web UI should look like https://dagster.example.com, "
        "without a password"
    )


def _server_state(session: Session, transfer: Transfer) -> _ServerState:
    servers = session.servers_of(transfer)
    tables = transfer.tables
    identities: dict[str, str] = {}
    for name, table in {table.connection: table for table in tables}.items():
        try:
            identities[name] = servers.identity(table)
        except TableferryError as error:
            return _ServerState(identities, not_seen=str(error))
    try:
        plan = plan_transfer(transfer, servers, session.instance, purpose="compare")
        drift = {hop.number: _drift(session, hop) for hop in plan.hops}
    except TableferryError as error:
        return _ServerState(identities, refused=str(error))
    return _ServerState(identities, plan.ranges, drift)


def _drift(session: Session, hop: Hop) -> str:
    """Describe how the columns of a hop differ from those committed last; empty if they do not."""
    committed = written_columns.committed_schema(session.instance, hop.asset)
    if committed is None:
        return ""
    changes = schema_changes(hop.plan, committed)
    if hop.existing is None:
        return "the table is gone"
    before = {column.name for column in committed}
    lost = [repr(name) for name in hop.lacking if name in before]
    parts = [changes, f"the table has lost {', '.join(lost)}" if lost else ""]
    return "; ".join(filter(None, parts))


def problems_of(
    refused: str,
    runs: Sequence[RunEntry],
    hops: Sequence[HopEntry],
    judged: Sequence[TableJudgement],
) -> Iterator[ReportProblem]:
    """Say why the report is not a pass: what servers and runs tell, and what is not proven."""
    if refused:
        why = refused.removesuffix(".")
        yield ReportProblem(f"The transfer cannot run as its tables are now: {why}.")
    for run in runs:
        if run.unanswered:
            reason = f": {run.error.splitlines()[0].removesuffix('.')}" if run.error else ""
            yield ReportProblem(
                f"Run {run.run_id[:8]} of {moment(run.started_at)} {run.outcome}{reason}. None has "
                "succeeded since.",
                "runs",
            )
    for number, (hop, table) in enumerate(zip(hops, judged, strict=True), start=1):
        if hop.drift:
            yield ReportProblem(
                f"{hop.target}: {hop.drift} since its rows were committed.", anchor(number)
            )
        yield from (ReportProblem(text, anchor(number)) for text in table.problems)
        places = {entry.name: place for place, entry in enumerate(hop.ranges, start=1)}
        for name, each in table.unproven.items():
            where = anchor(number, places[name])
            yield from (
                ReportProblem(f"{hop.target} {name}: {text}", where) for text in each.problems
            )


def _hop(
    instance: dg.DagsterInstance,
    transfer: Transfer,
    number: int,
    status: ranges.TargetStatus,
    judged: TableJudgement,
    state: _ServerState,
) -> HopEntry:
    hop, source = transfer.hops[number - 1], transfer.tables[number - 1]
    asset = asset_key(hop.to)
    records = {name: each.record for name, each in status.ranges.items()}
    moves = {name: record for name, record in records.items() if record.state.tells_origin}
    moves |= ledger.moves(instance, asset, records.keys() - moves.keys())
    schema = written_columns.committed_schema(instance, asset)
    return HopEntry(
        source=str(source),
        target=str(hop.to),
        ranges=tuple(
            replace(
                _range(transfer, each, moves.get(name) or RangeRecord(name, State.MISSING)),
                keys=_keys(transfer, hop, state.ranges.get(name)),
                checks=tuple(check_entry(check, transfer, number) for check in each.checks),
                proof=judged.ranges[name].state,
            )
            for name, each in status.ranges.items()
        ),
        checks=tuple(check_entry(check, transfer, number) for check in status.checks),
        unchecked=unchecked(WHOLE_TABLE_CHECKS, status),
        columns=tuple(
            ColumnEntry(
                column.name,
                column.type,
                column.nullable,
                (column.description or "").removeprefix("from "),
            )
            for column in schema or ()
        ),
        drift=state.drift.get(number, ""),
        departures=departures(transfer, hop.to, status),
    )


def _range(transfer: Transfer, status: ranges.RangeStatus, move: RangeRecord) -> RangeEntry:
    """Say what is recorded of a range, and of the run that moved its rows."""
    record, committed = status.record, status.record.state.in_target
    counted_rows = next(
        (check.metadata for check in status.checks if "rows_target" in check.metadata), {}
    )
    confirmed = committed and move.run_id not in (None, record.run_id)
    return RangeEntry(
        name=record.range,
        state=str(record.state),
        rows_source=counted_rows.get("rows_source", record.rows),
        rows=counted_rows.get("rows_target", record.rows if committed else None),
        rows_moved=None if move.state is State.ADOPTED else move.rows_of_move,
        written=move.written,
        changed=dict(move.counts),
        not_filled=move.not_filled,
        bytes=move.bytes,
        wire=move.wire,
        seconds=dict(move.seconds),
        fingerprint=move.fingerprint or move.data_version,
        moved_at=iso_time(move.timestamp),
        moved_by=move.run_id,
        adopted=move.state is State.ADOPTED,
        confirmed_at=iso_time(record.timestamp) if confirmed else None,
        confirmed_by=record.run_id if confirmed else None,
        source_server=move.source_server,
        target_server=move.target_server,
        source_snapshot=record.source_snapshot if committed else None,
        error=record.error,
        unchecked=unchecked(checks_of(transfer), status) if committed else (),
    )


def _keys(transfer: Transfer, hop: HopSpec, key_range: KeyRange | None) -> str:
    """Format a range's bounds as a condition on the key."""
    if key_range is None:
        return ""
    key = transfer.target_name(transfer.key, transfer.hop_of(hop.to))
    if key_range.null:
        return f"{key} is NULL"
    if key_range.kind == "file":
        first, end = key_range.rows or (None, None)
        rows = f", {first} ≤ {ROW}" if first else ""
        return f"{key} = {key_range.lower}{rows}{f' < {end}' if end else ''}"
    lower = "" if key_range.lower is None else f"{key_range.lower} ≤ "
    upper = "" if key_range.upper is None else f" < {key_range.upper}"
    return f"{lower}{key}{upper}" if lower or upper else f"all {key}"


def _run(run: history.PastRun, failed: bool) -> RunEntry:
    return RunEntry(
        run_id=run.run_id,
        kind=run.kind,
        outcome=run.outcome,
        launched_by=run.launched_by,
        ranges=run.ranges,
        started_at=iso_time(run.started_at),
        ended_at=iso_time(run.ended_at),
        error=run.error,
        unanswered=failed,
    )


_PARTS = ("ranges", "checks", "columns", "only", "exclude", "parallel")
_IF_GIVEN = (
    *("where", "row_security", "on_reject", "max_rejected", "incremental", "deletes", "delta"),
    *("dropped_columns", "publish_audit", "mover", "final", "on_missing", "expectations"),
    *("figures", "on_shrink", "max_shrink"),
)
"""Settings that a report has where they are not the defaults."""


def _settings(transfer: Transfer) -> Iterator[tuple[str, str]]:
    """Return the settings that decide what moves, how, and what is checked, as YAML."""
    declared = transfer.model_dump(mode="json")
    given = transfer.model_dump(mode="json", exclude_defaults=True)
    names = ("key", "write", "reconcile", "fingerprint", "on_schema_drift", "schedule")
    yield from ((name, str(declared[name])) for name in names if declared[name])
    for name in (*_PARTS, *_IF_GIVEN):
        value = given.get(name) if name in _IF_GIVEN else declared[name]
        if any(value.values()) if isinstance(value, dict) else value:
            yield name, _yaml(value)
    for hop in transfer.hops:
        yield str(hop.to), _yaml(hop.model_dump(mode="json", exclude={"to"}))


def _yaml(value: Any) -> str:
    text = yaml.safe_dump(
        _without_none(value), default_flow_style=True, width=10**6, allow_unicode=True
    )
    return str(text).strip()


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(item) for name, item in value.items() if item is not None}
    return value
