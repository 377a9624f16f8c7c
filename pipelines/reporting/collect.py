"""Collects what the event log knows of a transfer into a report that a reviewer can be sent."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import yaml

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.sections import HopSpec
from tableferry.assets.log import ledger
from tableferry.assets.log.check_records import CheckRecord, check_record, moment_of
from tableferry.assets.log.history import PastRun, past_runs, unanswered
from tableferry.assets.log.records import RangeRecord, State
from tableferry.assets.planning.drift import new_columns, schema_changes
from tableferry.assets.planning.resolve import (
    Hop,
    checks_of,
    resolve_hops,
)
from tableferry.assets.planning.transfer_plan import known_ranges
from tableferry.assets.transfer import check_description
from tableferry.assets.verifying.whole_tables import DESCRIPTIONS
from tableferry.checks.expectations import ALL_CHECKS
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.reporting.report import (
    COMMITTED,
    ColumnEntry,
    HopEntry,
    RangeEntry,
    Report,
    RunEntry,
)
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.keys.range import ROW, KeyRange

PACKAGES = (
    "tableferry",
    "dagster",
    "pyarrow",
    "adbc-driver-postgresql",
    "psycopg",
    "mssql-python",
    "clickhouse-connect",
)


@dataclass(frozen=True)
class _Seen:
    """What the servers say when the report is made."""

    servers: Mapping[str, str]
    hops: Sequence[Hop] = ()
    ranges: Mapping[str, KeyRange] | None = None
    drift: Mapping[int, str] | None = None
    not_seen: str = ""
    refused: str = ""


def report(session: Session, name: str, *, dagster_url: str | None = None) -> Report:
    """The latest record and the verdicts that count of every range and table of a transfer.

    The evidence is the event log's. The servers are asked for their versions, and whether their
    columns still are those that were proven; a report is made without them, too, and says so.

    Args:
        session: where everything is.
        name: the transfer.
        dagster_url: where Dagster's web UI is, to which runs are linked.

    Raises:
        InputError: there is no such transfer, or the URL is none.
    """
    transfer = session.transfer(name)
    url = _checked_url(dagster_url) if dagster_url else None
    seen = _look(session, transfer)
    tables = [transfer.source, *(hop.to for hop in transfer.hops)]
    hops = tuple(
        _hop(session.instance, transfer, seen, number, str(before), hop)
        for number, (before, hop) in enumerate(zip(tables, transfer.hops, strict=False), start=1)
    )
    entries = [entry for hop in hops for entry in hop.ranges]
    named = [one for entry in entries for one in (entry.moved_by, entry.confirmed_by)]
    runs = past_runs(session.instance, transfer, filter(None, named))
    failed = {run.run_id for run in unanswered(runs)}
    return Report(
        transfer=name,
        description=transfer.description or "",
        created_at=moment_of(dt.datetime.now(dt.UTC).timestamp()) or "",
        hops=hops,
        runs=tuple(_run(run, run.run_id in failed) for run in runs),
        not_seen=seen.not_seen,
        refused=seen.refused,
        settings=dict(_settings(transfer)),
        servers=seen.servers,
        packages={package: importlib.metadata.version(package) for package in PACKAGES},
        meanings={
            **{check: check_description(transfer, check) or "" for check in checks_of(transfer)},
            **{check: DESCRIPTIONS[check] for check in WHOLE_TABLE_CHECKS},
        },
        dagster_url=url,
    )


def _checked_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InputError(
            "the address of Dagster's web UI should look like https://dagster.example.com, "
            "without a password"
        )
    return text.rstrip("/")


def _look(session: Session, transfer: Transfer) -> _Seen:
    servers = session.servers_of(transfer)
    tables = (transfer.source, *(hop.to for hop in transfer.hops))
    identities: dict[str, str] = {}
    for name, table in {one.connection: one for one in tables}.items():
        try:
            identities[name] = servers.identity(table)
        except TableferryError as error:
            return _Seen(identities, not_seen=str(error))
    try:
        hops = resolve_hops(transfer, servers)
        ranges = known_ranges(transfer, hops, session.instance)
        drift = {hop.number: _drift(session, hop) for hop in hops}
    except TableferryError as error:
        return _Seen(identities, refused=str(error))
    return _Seen(identities, hops, {one.name: one for one in ranges}, drift)


def _drift(session: Session, hop: Hop) -> str:
    """How the columns of a hop are no longer those that were committed last; empty if they are."""
    committed = ledger.committed_schema(session.instance, hop.asset)
    if committed is None:
        return ""
    changes = schema_changes(hop.plan, committed)
    if hop.existing is None:
        return "the table is gone"
    before = {column.name for column in committed}
    lost = [repr(one.name) for one in new_columns(hop.plan, hop.existing) if one.name in before]
    parts = [changes, f"the table has lost {', '.join(lost)}" if lost else ""]
    return "; ".join(filter(None, parts))


def _hop(
    instance: dg.DagsterInstance,
    transfer: Transfer,
    seen: _Seen,
    number: int,
    source: str,
    hop: HopSpec,
) -> HopEntry:
    asset = asset_key(hop.to)
    names = instance.get_dynamic_partitions(transfer.partitions_name)
    records = ledger.records(instance, asset, names)
    moved = {name: one for name, one in records.items() if one.state is State.COMMITTED}
    moved |= ledger.moves(instance, asset, [name for name in records if name not in moved])
    evaluations = ledger.evaluations(instance, asset, (*ALL_CHECKS, *WHOLE_TABLE_CHECKS))
    checks = {
        name: tuple(check_record(stored, transfer) for stored in found.values())
        for name, found in evaluations.items()
    }
    whole = checks.get(None, ())
    schema = ledger.committed_schema(instance, asset)
    return HopEntry(
        source=source,
        target=str(hop.to),
        ranges=tuple(
            _range(
                transfer,
                name,
                (seen.ranges or {}).get(name),
                records.get(name),
                moved.get(name),
                checks.get(name, ()),
            )
            for name in names
        ),
        checks=whole,
        unchecked=_missing(WHOLE_TABLE_CHECKS, whole),
        columns=tuple(
            ColumnEntry(
                column.name,
                column.type,
                column.nullable,
                (column.description or "").removeprefix("from "),
            )
            for column in schema or ()
        ),
        drift=(seen.drift or {}).get(number, ""),
    )


def _range(
    transfer: Transfer,
    name: str,
    key_range: KeyRange | None,
    record: RangeRecord | None,
    moved: RangeRecord | None,
    checks: tuple[CheckRecord, ...],
) -> RangeEntry:
    if record is None:
        return RangeEntry(name, "missing", keys=_keys(transfer, key_range))
    state = str(record.state)
    committed = state in COMMITTED
    counted = next((figure for check in checks for figure in check.figures), None)
    rows = [int(text or 0) for text in counted[1:]] if counted and counted[0] == "rows" else None
    later = committed and moved is not None and moved.run_id != record.run_id
    return RangeEntry(
        name=name,
        state=state,
        keys=_keys(transfer, key_range),
        rows_source=rows[0] if rows else record.rows,
        rows=rows[1] if rows else record.rows if committed else None,
        rows_moved=moved.rows_of_move if moved else None,
        changed=dict(moved.counts) if moved else {},
        not_filled=moved.not_filled if moved else (),
        bytes=moved.bytes if moved else None,
        wire=moved.wire if moved else None,
        seconds=dict(moved.seconds) if moved else {},
        fingerprint=(moved.fingerprint or moved.data_version) if moved else None,
        moved_at=moment_of(moved.timestamp) if moved else None,
        moved_by=moved.run_id if moved else None,
        confirmed_at=moment_of(record.timestamp) if later else None,
        confirmed_by=record.run_id if later else None,
        source_server=moved.source_server if moved else None,
        target_server=moved.target_server if moved else None,
        error=record.error,
        checks=checks,
        unchecked=_missing(checks_of(transfer), checks) if committed else (),
    )


def _keys(transfer: Transfer, key_range: KeyRange | None) -> str:
    """A range's bounds as a condition on the key."""
    if key_range is None:
        return ""
    key = transfer.key_name
    if key_range.null:
        return f"{key} is NULL"
    if key_range.kind == "file":
        first, past = key_range.rows or (None, None)
        stretch = f", {first} ≤ {ROW}" if first else ""
        return f"{key} = {key_range.lower}{stretch}{f' < {past}' if past else ''}"
    lower = "" if key_range.lower is None else f"{key_range.lower} ≤ "
    upper = "" if key_range.upper is None else f" < {key_range.upper}"
    return f"{lower}{key}{upper}" if lower or upper else f"all {key}"


def _missing(declared: Sequence[str], found: Sequence[CheckRecord]) -> tuple[str, ...]:
    there = {check.name for check in found}
    return tuple(name for name in declared if name not in there)


def _run(run: PastRun, failed: bool) -> RunEntry:
    return RunEntry(
        run_id=run.run_id,
        kind=run.kind,
        outcome=run.outcome,
        launched_by=run.launched_by,
        ranges=run.ranges,
        started_at=moment_of(run.started_at),
        ended_at=moment_of(run.ended_at),
        error=run.error,
        unanswered=failed,
    )


def _settings(transfer: Transfer) -> Iterator[tuple[str, str]]:
    """What decides which rows move, how, and what is checked, as the file would say it."""
    declared = transfer.model_dump(mode="json")
    names = ("key", "write", "reconcile", "fingerprint", "on_schema_drift", "schedule")
    yield from ((name, str(declared[name])) for name in names if declared[name])
    for name in ("ranges", "checks", "columns", "only", "exclude", "parallel"):
        if declared[name] and any(
            declared[name].values() if isinstance(declared[name], dict) else [1]
        ):
            text = yaml.safe_dump(
                _given(declared[name]), default_flow_style=True, width=10**6, allow_unicode=True
            )
            yield name, text.strip()
    for hop in transfer.hops:
        options = hop.model_dump(mode="json", exclude={"to"})
        yield str(hop.to), _yaml(_given(options))


def _yaml(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return str(text).strip()


def _given(value: Any) -> Any:
    """Without what is not given."""
    if isinstance(value, dict):
        return {name: _given(one) for name, one in value.items() if one is not None}
    return value
