"""Check verdicts, as read from the event log; Dagster is not imported."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tableferry.assets.log.queries import Log, select_events, select_in
from tableferry.assets.log.records import ASKED, ROWS_SINCE, SOURCE_NEWER

_VALUES = ("value", "text", "data", "run_id")
"""What the kinds of Dagster's metadata call their values."""

_EVALUATIONS = (
    "SELECT c.id, c.evaluation_event FROM asset_check_executions c"
    " WHERE c.id IN ({values}) ORDER BY c.id"
)


@dataclass(frozen=True)
class CheckRecord:
    """A verdict about what is in the target now."""

    name: str
    passed: bool
    at: float
    """When the rows were compared; a verdict that still held later keeps its first moment."""
    summary: str = ""
    warning: bool = False
    """A failure is no more than a hint."""
    source_newer: bool = False
    """The check failed only because the source has changed since the commit."""
    rows_since: int = 0
    """Rows that the source had gained since the commit, when the whole table was counted."""
    run_id: str = ""
    """The run that compared the rows."""
    asked: str | None = None
    """What it was asked, see `declared.asked_of`; None for a level alone, and in old logs."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The evidence, by name; empty if it was not asked for."""

    @property
    def failed(self) -> bool:
        """Whether the rows differ from those that were committed, and that is more than a hint."""
        return not (self.passed or self.warning or self.source_newer)

    @classmethod
    def stored(cls, text: str, *, evidence: bool = False) -> CheckRecord:
        """Read an evaluation as Dagster stores it, without making Dagster's objects of it."""
        entry = json.loads(text)
        evaluation = entry["dagster_event"]["event_specific_data"]
        metadata: Mapping[str, Any] = evaluation["metadata"]

        def value(name: str) -> Any:
            return _value(metadata[name]) if name in metadata else None

        severity = evaluation.get("severity") or {}
        return cls(
            name=evaluation["check_name"],
            passed=evaluation["success"],
            at=float(value("found_at") or entry["timestamp"]),
            summary=str(value("found") or evaluation["description"] or ""),
            warning=severity.get("__enum__") == "AssetCheckSeverity.WARN",
            source_newer=SOURCE_NEWER in metadata,
            rows_since=int(value(ROWS_SINCE) or 0),
            run_id=str(value("found_in_run") or entry["run_id"]),
            asked=value(ASKED),
            metadata={name: _value(metadata[name]) for name in metadata} if evidence else {},
        )


def _value(entry: Mapping[str, Any]) -> Any:
    """Return the plain value of a metadata entry; of a table, its rows."""
    if "records" in entry:
        return [record["data"] for record in entry["records"]]
    return next((entry[name] for name in _VALUES if name in entry), None)


def read_checks(log: Log, ids: Iterable[int], *, evidence: bool = False) -> dict[int, CheckRecord]:
    """Read verdicts by the ids of their rows in Dagster's table of checks."""
    return {
        number: CheckRecord.stored(text, evidence=evidence)
        for number, text in read_evaluations(log, ids)
    }


def read_evaluations(log: Log, ids: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yield ids and texts of evaluations, a page at a time in memory."""
    return select_in(select_events, log, _EVALUATIONS, ids)
