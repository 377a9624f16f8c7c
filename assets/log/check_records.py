"""Check verdicts as read from the event log, and which of them stand; Dagster is not imported."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tableferry.assets.log.queries import Log, parameters, select_events, select_in
from tableferry.assets.log.records import ASKED, ROWS_SINCE, SOURCE_NEWER
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS

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


@dataclass(frozen=True)
class Standing:
    """A verdict about what is in the target now."""

    id: int
    """Primary key of its row in Dagster's table of checks."""
    passed: bool


StandingVerdicts: TypeAlias = Mapping[str | None, Mapping[str, Standing]]
"""By range and check; those of the whole table under None."""

_LATEST = """
SELECT r.id, r.asset_key, r.check_name, r.range_name, r.about, r.failure FROM (
 SELECT c.id, c.asset_key, c.check_name, c.partition AS range_name,
  CASE WHEN c.execution_status <> 'SUCCEEDED' THEN c.evaluation_event END AS failure,
  coalesce(c.materialization_event_storage_id, c.evaluation_event_storage_id) AS about,
  row_number() OVER (PARTITION BY c.asset_key, c.check_name, c.partition ORDER BY
  coalesce(c.materialization_event_storage_id, c.evaluation_event_storage_id) DESC,
  c.evaluation_event_storage_id DESC) AS place
 FROM asset_check_executions c
 WHERE c.asset_key IN ({{values}}) AND c.check_name IN ({checks})
  AND c.execution_status IN ('SUCCEEDED', 'FAILED')
  AND c.evaluation_event_storage_id IS NOT NULL{more}
) r WHERE r.place = 1
"""


def standing_verdicts(
    log: Log,
    commits: Mapping[str, Mapping[str, int]],
    checks: Sequence[str],
    *,
    only: str | None = None,
    newer: bool = False,
) -> dict[str, dict[str | None, dict[str, Standing]]]:
    """Return the standing verdict of each check: the latest about what is in the target now.

    A verdict about an older materialization than the range's newest does not count, however late it
    was recorded: a check that ran beside a move judged rows that are gone. Nor does one that is
    only planned, or that found only that the source has changed.

    Dagster's API returns the row created last. But a run creates the rows of its checks when it is
    queued and fills them in later, so the last row need not be the last verdict. Checks of a range
    that was never committed refer to no materialization.

    Args:
        log: the event log.
        commits: by asset key, as Dagster stores it, the storage ids of the newest materializations
            of its ranges.
        checks: names of checks.
        only: the only range to return.
        newer: also return those that found only that the source has changed.

    Returns:
        Verdicts by asset key, range and check, in the order of `checks`; those of a whole table
        under None.
    """
    if not checks:
        return {}
    marks, named = parameters("check", checks)
    more, one_range = (" AND c.partition = :only", {"only": only}) if only is not None else ("", {})
    statement = _LATEST.format(checks=marks, more=more)
    rows = select_in(select_events, log, statement, commits, **named, **one_range)
    newest_of_table = {key: max(ids.values(), default=0) for key, ids in commits.items()}
    places = {check: place for place, check in enumerate(checks)}
    verdicts: dict[str, dict[str | None, dict[str, Standing]]] = {}
    for row_id, key, check, name, about, failure in sorted(rows, key=lambda row: places[row[2]]):
        since = newest_of_table[key] if name is None else commits[key].get(name, 0)
        # without a range, a check of ranges is the summary of a run that checked them all
        if about < since or (name is None and check not in WHOLE_TABLE_CHECKS):
            continue
        if newer or failure is None or not CheckRecord.stored(failure).source_newer:
            by_range = verdicts.setdefault(key, {})
            by_range.setdefault(name, {})[check] = Standing(row_id, failure is None)
    return verdicts
