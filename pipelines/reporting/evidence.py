"""The evidence of a check's verdict: figures of both sides, rows that differ, expectations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.check_metadata import KEY_PREFIX
from tableferry.assets.log.check_records import CheckRecord
from tableferry.checks.verdict import Difference, DifferenceKind
from tableferry.resources.words import iso_time

SHOWN_ELSEWHERE = (
    "seconds",
    "seconds_of_query",
    "ranges_in_query",
    "rows_source",
    "rows_target",
    "sums",
    "results",
    "great_expectations",
    "one_row_in",
    "rows",
    "found",
    "found_in_run",
    "found_at",
)
"""Metadata of a check that a report shows elsewhere than among the details."""

CheckOutcome = Literal["passed", "warning", "failed"]


@dataclass(frozen=True)
class ExpectationEntry:
    """The result of an expectation on a range."""

    name: str
    type: str
    arguments: Mapping[str, Any]
    passed: bool
    observed: str | None = None
    unexpected: int | None = None
    """Number of unexpected values, or rows of a query; None where they are not counted."""
    examples: tuple[str, ...] = ()
    """The first unexpected values."""


@dataclass(frozen=True)
class CheckEntry:
    """The standing verdict of a check, with its evidence."""

    name: str
    passed: bool
    summary: str
    warning: bool = False
    """A failure is only a warning."""
    blocking: bool = True
    at: str | None = None
    """When it was recorded, ISO 8601 in UTC."""
    run_id: str | None = None
    seconds: float | None = None
    figures: tuple[tuple[str, str | None, str | None], ...] = ()
    """Name, source's figure, target's figure."""
    expectations: tuple[ExpectationEntry, ...] = ()
    sampled: int | None = None
    """The expectations read one row in this many; None if they read all."""
    differences: tuple[Difference, ...] = ()
    """The first differing values, and rows that only one side has."""
    differing_rows: int = 0
    rows_named_by: str = ""
    """What identifies the rows in `differences`, e.g. `primary key (id, line)`."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The check's other metadata, by name."""

    @property
    def named_by(self) -> tuple[str, ...]:
        """The columns that identify the rows in `differences`."""
        return tuple(self.differences[0].row) if self.differences else ()

    @property
    def outcome(self) -> CheckOutcome:
        if self.passed:
            return "passed"
        return "warning" if self.warning else "failed"


def check_entry(record: CheckRecord, transfer: Transfer, hop: int) -> CheckEntry:
    """Read the evidence of a verdict about the target of a hop (1-based)."""
    metadata = record.metadata
    key = transfer.target_name(transfer.key, hop)
    one_in = metadata.get("one_row_in") or 1
    return CheckEntry(
        name=record.name,
        passed=record.passed,
        summary=record.summary,
        warning=record.warning,
        blocking=transfer.check_spec(record.name).blocking,
        at=iso_time(record.at),
        run_id=record.run_id,
        seconds=metadata.get("seconds"),
        figures=tuple(_figures(metadata)),
        expectations=tuple(_expectation(row) for row in metadata.get("results", ())),
        sampled=one_in if one_in > 1 else None,
        differences=tuple(_difference(row, key) for row in metadata.get("differences", ())),
        rows_named_by=metadata.get("differing_rows_named_by", f"key column ({key})"),
        differing_rows=metadata.get("differing_rows", 0),
        details={
            name: value
            for name, value in metadata.items()
            if name not in SHOWN_ELSEWHERE and not name.startswith("differ") and value
        },
    )


def _figures(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str | None, str | None]]:
    if "rows_source" in metadata and "rows_target" in metadata:
        yield "rows", str(metadata["rows_source"]), str(metadata["rows_target"])
    sums = metadata.get("sums", ())
    if isinstance(sums, Mapping):
        yield from ((name, value, value) for name, value in sums.items())
        return
    for row in sums:
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
    keys = {
        name.removeprefix(KEY_PREFIX): value
        for name, value in row.items()
        if name.startswith(KEY_PREFIX)
    }
    return Difference(
        key=keys.get(key),
        kind=cast(DifferenceKind, str(row["what"]).replace(" ", "_")),
        column=row["column"] or None,
        source=row["source"],
        target=row["target"],
        row=keys,
    )
