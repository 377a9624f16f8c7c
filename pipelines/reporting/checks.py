"""Reads a check's verdict, with the evidence, out of what was recorded of it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from assets.declaring.manifest import Transfer
from assets.log.check_metadata import NAMED_BY
from checks.verdict import Difference, DifferenceKind
from pipelines.reporting.report import CheckEntry, ExpectationEntry

SHOWN_ELSEWHERE = (
    "seconds",
    "seconds_of_query",
    "ranges_in_query",
    "rows_source",
    "rows_target",
    "sums",
    "results",
    "one_row_in",
    "rows",
    "found",
    "found_in_run",
    "found_at",
)
"""Parts of a check's metadata that have a place of their own in a report."""


def check_entry(stored: AssetCheckExecutionRecord, transfer: Transfer) -> CheckEntry:
    """A stored evaluation as the report has it.

    A verdict that still held when a later run looked is recorded again, with who found it first.
    """
    evaluation = stored.evaluation
    assert evaluation is not None, "only evaluated checks are asked for"
    metadata = {name: value.value for name, value in evaluation.metadata.items()}
    key = transfer.key_name
    one_in = cast("int | None", metadata.get("one_row_in"))
    # a row for the verdict was made when its run was planned
    found_at = stored.event.timestamp if stored.event else stored.create_timestamp
    return CheckEntry(
        name=evaluation.check_name,
        passed=evaluation.passed,
        summary=str(metadata.get("found") or evaluation.description or ""),
        warning=evaluation.severity is dg.AssetCheckSeverity.WARN,
        blocking=transfer.check_spec(evaluation.check_name).blocking,
        at=moment_of(cast("float | None", metadata.get("found_at")) or found_at),
        run_id=str(metadata.get("found_in_run") or stored.run_id),
        seconds=cast("float | None", metadata.get("seconds")),
        figures=tuple(_figures(metadata)),
        expectations=tuple(_expectation(row) for row in _rows(metadata.get("results"))),
        sampled=one_in if one_in and one_in > 1 else None,
        differences=tuple(_difference(row, key) for row in _rows(metadata.get("differences"))),
        rows_named_by=str(metadata.get("differing_rows_named_by", f"key column ({key})")),
        differing_rows=int(cast("int | None", metadata.get("differing_rows")) or 0),
        details={
            name: value
            for name, value in metadata.items()
            if name not in SHOWN_ELSEWHERE and not name.startswith("differ") and value
        },
    )


def _figures(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str | None, str | None]]:
    if "rows_source" in metadata and "rows_target" in metadata:
        yield "rows", str(metadata["rows_source"]), str(metadata["rows_target"])
    for row in _rows(metadata.get("sums")):
        yield str(row["figure"]), row["source"] or None, row["target"] or None


def _expectation(row: Mapping[str, Any]) -> ExpectationEntry:
    return ExpectationEntry(
        name=str(row["expectation"]),
        type=str(row.get("type") or ""),
        arguments=json.loads(row.get("arguments") or "{}"),
        passed=bool(row["passed"]),
        observed=row["observed"],
        unexpected=row["unexpected"],
        examples=tuple(json.loads(row["examples"] or "[]")),
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


def _rows(table: Any) -> list[Mapping[str, Any]]:
    """Rows of a table in a check's metadata, however Dagster hands it out."""
    return [record.data for record in getattr(table, "records", table) or ()]


def moment_of(timestamp: float | None) -> str | None:
    """ISO 8601 in UTC."""
    if timestamp is None:
        return None
    return dt.datetime.fromtimestamp(timestamp, dt.UTC).isoformat(timespec="seconds")
