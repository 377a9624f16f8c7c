"""Collects what the event log knows of a transfer into a report that a reviewer can be sent."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
from collections.abc import Iterator, Mapping
from typing import Any, cast

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from assets import ledger
from assets.asset_keys import asset_key
from assets.evidence import NAMED_BY
from assets.journey import ALL_CHECKS
from assets.manifest import HopSpec, Transfer
from checks.verdict import Difference, DifferenceKind
from checks.whole_table import WHOLE_TABLE_CHECKS
from pipelines.report import CheckEntry, HopEntry, RangeEntry, Report
from pipelines.session import Session
from resources.errors import TableferryError
from resources.tables import System

PACKAGES = ("tableferry", "dagster", "pyarrow", "mssql-python", "clickhouse-connect")


def report(session: Session, name: str) -> Report:
    """The latest record and verdicts of every range and table of a transfer.

    Raises:
        InputError: there is no such transfer.
    """
    transfer = session.transfer(name)
    stations = [transfer.source, *(hop.to for hop in transfer.hops)]
    return Report(
        transfer=name,
        created_at=_moment(dt.datetime.now(dt.UTC).timestamp()),
        hops=tuple(
            _hop(session.instance, transfer, str(before), hop)
            for before, hop in zip(stations, transfer.hops, strict=False)
        ),
        versions=dict(_versions(session, {table.system for table in stations})),
        settings={
            "key": transfer.key,
            "write": transfer.write,
            "reconcile": transfer.reconcile,
            "fingerprint": transfer.fingerprint,
            "ranges": str(transfer.ranges.model_dump(exclude_none=True)),
        },
    )


def _hop(instance: dg.DagsterInstance, transfer: Transfer, source: str, hop: HopSpec) -> HopEntry:
    asset = asset_key(hop.to)
    names = instance.get_dynamic_partitions(transfer.partitions_name)
    records = ledger.records(instance, asset, names)
    evaluations = ledger.evaluations(instance, asset, (*ALL_CHECKS, *WHOLE_TABLE_CHECKS))
    ranges = []
    for name in names:
        record = records.get(name)
        ranges.append(
            RangeEntry(
                name=name,
                state=str(record.state) if record else "missing",
                rows=record.rows if record else None,
                bytes=record.bytes if record else None,
                seconds=dict(record.seconds) if record else {},
                fingerprint=(record.fingerprint or record.data_version) if record else None,
                run_id=record.run_id if record else None,
                committed_at=_moment(record.timestamp) if record and record.timestamp else None,
                checks=tuple(
                    _check(stored, transfer) for stored in evaluations.get(name, {}).values()
                ),
            )
        )
    whole = tuple(_check(stored, transfer) for stored in evaluations.get(None, {}).values())
    return HopEntry(source=source, target=str(hop.to), ranges=tuple(ranges), checks=whole)


def _check(stored: AssetCheckExecutionRecord, transfer: Transfer) -> CheckEntry:
    evaluation = stored.evaluation
    assert evaluation is not None, "only evaluated checks are asked for"
    metadata = {name: value.value for name, value in evaluation.metadata.items()}
    key = transfer.key_name
    return CheckEntry(
        name=evaluation.check_name,
        passed=evaluation.passed,
        summary=evaluation.description or "",
        at=_moment(stored.create_timestamp),
        seconds=cast("float | None", metadata.get("seconds")),
        blocking=transfer.check_spec(evaluation.check_name).blocking,
        figures=tuple(_figures(metadata)),
        differences=tuple(_difference(row, key) for row in _rows(metadata.get("differences"))),
        rows_named_by=str(metadata.get("differing_rows_named_by", f"key column ({key})")),
        differing_rows=int(cast("int | None", metadata.get("differing_rows")) or 0),
    )


def _difference(row: Mapping[str, Any], key: str) -> Difference:
    # events of earlier releases have the key column alone, as `key`
    named = {
        name.removeprefix(NAMED_BY): value
        for name, value in row.items()
        if name.startswith(NAMED_BY)
    } or {key: row["key"]}
    return Difference(
        key=named.get(key),
        kind=cast(DifferenceKind, str(row["what"]).replace(" ", "_")),
        column=row["column"] or None,
        source=row["source"],
        target=row["target"],
        row=named,
    )


def _figures(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    if "rows_source" in metadata or "rows_target" in metadata:
        yield "rows", str(metadata.get("rows_source")), str(metadata.get("rows_target"))
    for row in _rows(metadata.get("sums")):
        yield str(row["figure"]), str(row["source"]), str(row["target"])


def _rows(table: Any) -> list[Mapping[str, Any]]:
    """Rows of a table in a check's metadata, however Dagster hands it out."""
    return [record.data for record in getattr(table, "records", table) or ()]


def _versions(session: Session, systems: set[System]) -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        yield package, importlib.metadata.version(package)
    for system in sorted(systems):
        try:
            yield system, session.servers.endpoint(system).ping()
        except TableferryError:
            yield system, "not reachable"


def _moment(timestamp: float) -> str:
    return dt.datetime.fromtimestamp(timestamp, dt.UTC).isoformat(timespec="seconds")
