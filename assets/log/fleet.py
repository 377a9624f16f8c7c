"""Reads records and runs of many tables at once, by the rules of `ledger`, without Dagster.

The number of queries grows with hundreds of tables and of ranges, not with each of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tableferry.assets.asset_keys import stored_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.queries import Id, Log, pages, parameters, select_events, select_runs
from tableferry.assets.log.records import ROWS_SINCE, SOURCE_NEWER, RangeRecord
from tableferry.assets.log.run_tags import TRANSFER
from tableferry.assets.log.runs import failure_stands
from tableferry.checks.expectations import ALL_CHECKS
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.resources.tables import TableRef

MAX_RUNS_PER_TARGET = 200
"""Maximum runs of a target, from the newest one back, among which failures are looked for."""

_NEWEST = """
SELECT e.asset_key, e.partition, max(e.id),
 max(CASE WHEN e.dagster_event_type = 'ASSET_MATERIALIZATION' THEN e.id END)
FROM event_logs e LEFT JOIN asset_keys k ON k.asset_key = e.asset_key
WHERE e.asset_key IN ({keys}) AND e.partition IS NOT NULL
 AND e.dagster_event_type IN ('ASSET_MATERIALIZATION', 'ASSET_OBSERVATION')
 AND (k.wipe_timestamp IS NULL OR e.timestamp > k.wipe_timestamp)
GROUP BY e.asset_key, e.partition
"""

_VERDICTS = """
SELECT r.id, r.asset_key, r.check_name, r.range_name, r.about FROM (
 SELECT c.id, c.asset_key, c.check_name, c.partition AS range_name,
  coalesce(c.materialization_event_storage_id, c.evaluation_event_storage_id) AS about,
  row_number() OVER (PARTITION BY c.asset_key, c.check_name, c.partition ORDER BY
  coalesce(c.materialization_event_storage_id, c.evaluation_event_storage_id) DESC,
  c.evaluation_event_storage_id DESC) AS place
 FROM asset_check_executions c
 WHERE c.asset_key IN ({keys}) AND c.execution_status IN ('SUCCEEDED', 'FAILED')
  AND c.evaluation_event_storage_id IS NOT NULL
) r WHERE r.place = 1
"""

_FAILED_RUNS = "SELECT r.run_id FROM runs r WHERE r.status IN ('FAILURE', 'CANCELED')"
# each run that selects an asset has planned its checks, as in `ledger.recent_runs`
_RECENT_RUNS = f"""
SELECT n.asset_key, n.run_id FROM (
 SELECT c.asset_key, c.run_id,
  row_number() OVER (PARTITION BY c.asset_key ORDER BY max(c.id) DESC) AS place
 FROM asset_check_executions c
 WHERE c.asset_key IN ({{keys}})
  AND c.check_name IN ({", ".join(f"'{check}'" for check in WHOLE_TABLE_CHECKS)})
 GROUP BY c.asset_key, c.run_id
) n WHERE n.place <= {MAX_RUNS_PER_TARGET} ORDER BY n.asset_key, n.place
"""
_RUNS = "SELECT r.id, r.run_id, r.status, r.run_body FROM runs r WHERE r.run_id IN ({runs})"


@dataclass(frozen=True)
class FleetVerdict:
    """A verdict about what is in the target now."""

    check: str
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


@dataclass(frozen=True)
class TargetHistory:
    """The newest records and verdicts of one target."""

    records: Mapping[str, RangeRecord] = field(default_factory=dict)
    """By range."""
    verdicts: Mapping[str | None, Sequence[FleetVerdict]] = field(default_factory=dict)
    """By range; those of the whole table under None."""


@dataclass(frozen=True)
class FleetHistory:
    """What the event log says of many transfers."""

    ranges: Mapping[str, Sequence[str]]
    """The known ranges of each transfer, in their order."""
    targets: Mapping[TableRef, TargetHistory]
    failed: Collection[str]
    """Transfers whose last run failed, or was refused, without a success since."""


def read_fleet(log: Log, transfers: Collection[Transfer]) -> FleetHistory:
    """Read the newest records and the standing verdicts of all ranges of these transfers."""
    tables = {stored_key(hop.to): hop.to for transfer in transfers for hop in transfer.hops}
    by_partitions = ranges_by_name(log, [transfer.partitions_name for transfer in transfers])
    newest: dict[str, dict[str, int]] = defaultdict(dict)
    commits: dict[str, dict[str, int]] = defaultdict(dict)
    for key, name, event, commit in _in_pages(log, select_events, _NEWEST, "keys", tables):
        newest[key][name] = event
        if commit is not None:
            commits[key][name] = commit
    places = {
        number: (key, name) for key, by_name in newest.items() for name, number in by_name.items()
    }
    statement = "SELECT e.id, e.event FROM event_logs e WHERE e.id IN ({ids}) ORDER BY e.id"
    records: dict[str, dict[str, RangeRecord]] = defaultdict(dict)
    for number, text in _texts(log, statement, places):
        key, name = places[number]
        records[key][name] = RangeRecord.stored(text)
    verdicts = _verdicts(log, tables, commits)
    return FleetHistory(
        ranges={
            transfer.transfer: by_partitions.get(transfer.partitions_name, ())
            for transfer in transfers
        },
        targets={
            table: TargetHistory(records.get(key, {}), verdicts.get(key, {}))
            for key, table in tables.items()
        },
        failed=failed_transfers(log, transfers),
    )


def failed_transfers(log: Log, transfers: Collection[Transfer]) -> set[str]:
    """Return the transfers whose last run failed, by the rule of `runs.is_unanswered`."""
    failures = {run_id for (run_id,) in select_runs(log, _FAILED_RUNS)}
    if not failures:
        return set()
    keys = {
        transfer.transfer: [stored_key(hop.to) for hop in transfer.hops] for transfer in transfers
    }
    recent: dict[str, list[str]] = defaultdict(list)
    every = [key for targets in keys.values() for key in targets]
    for key, run_id in _in_pages(log, select_events, _RECENT_RUNS, "keys", every):
        recent[key].append(run_id)
    # only runs since the oldest failure of a target can answer one
    for key, run_ids in recent.items():
        places = [place for place, run_id in enumerate(run_ids) if run_id in failures]
        recent[key] = run_ids[: places[-1] + 1] if places else []
    read = [run_id for run_ids in recent.values() for run_id in run_ids]
    stored = {
        run_id: (number, status, body)
        for number, run_id, status, body in _in_pages(log, select_runs, _RUNS, "runs", read)
    }
    failed = set()
    for transfer in transfers:
        covering = {run_id for key in keys[transfer.transfer] for run_id in recent[key]}
        runs = sorted((stored[run_id] for run_id in covering & stored.keys()), reverse=True)
        targets = [hop.to for hop in transfer.hops]
        if failure_stands(transfer, targets, (run[1:] for run in runs)):
            failed.add(transfer.transfer)
    return failed


def ranges_by_name(log: Log, names: Sequence[str]) -> dict[str, list[str]]:
    """Read the keys of dynamic partitions, in their order, by the name of their definition."""
    statement = (
        "SELECT p.partitions_def_name, p.partition FROM dynamic_partitions p"
        " WHERE p.partitions_def_name IN ({names}) ORDER BY p.id"
    )
    ranges: dict[str, list[str]] = defaultdict(list)
    for name, key in _in_pages(log, select_events, statement, "names", names):
        ranges[name].append(key)
    return ranges


def _verdicts(
    log: Log, keys: Collection[str], commits: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str | None, list[FleetVerdict]]]:
    """Read the verdicts that count, as `ledger.standing` does, and those of a newer source."""
    places: dict[int, tuple[str, str | None]] = {}
    for number, key, check, name, about in _in_pages(log, select_events, _VERDICTS, "keys", keys):
        of_table = name is None
        # without a range, a check of ranges is the summary of a run that checked them all
        if check not in (WHOLE_TABLE_CHECKS if of_table else ALL_CHECKS):
            continue
        known = commits.get(key, {})
        since = max(known.values(), default=0) if of_table else known.get(name, 0)
        if about >= since:
            places[number] = key, name
    statement = (
        "SELECT c.id, c.evaluation_event FROM asset_check_executions c"
        " WHERE c.id IN ({ids}) ORDER BY c.id"
    )
    verdicts: dict[str, dict[str | None, list[FleetVerdict]]] = {}
    for number, text in _texts(log, statement, places):
        key, name = places[number]
        verdicts.setdefault(key, {}).setdefault(name, []).append(_verdict(text))
    return verdicts


def _verdict(text: str) -> FleetVerdict:
    """Read a stored evaluation, without making Dagster's objects of it."""
    entry = json.loads(text)
    evaluation = entry["dagster_event"]["event_specific_data"]
    metadata: Mapping[str, Any] = evaluation["metadata"]
    values = {
        name: metadata[name].get("value", metadata[name].get("text"))
        for name in ("found", "found_at", ROWS_SINCE)
        if name in metadata
    }
    severity = evaluation.get("severity") or {}
    return FleetVerdict(
        check=evaluation["check_name"],
        passed=evaluation["success"],
        at=float(values.get("found_at") or entry["timestamp"]),
        summary=str(values.get("found") or evaluation["description"] or ""),
        warning=severity.get("__enum__") == "AssetCheckSeverity.WARN",
        source_newer=SOURCE_NEWER in metadata,
        rows_since=int(values.get(ROWS_SINCE) or 0),
    )


def _texts(log: Log, statement: str, ids: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yield the rows of a statement about ids, a page of them at a time in memory."""
    for page in pages(ids):
        marks, values = parameters("id", page)
        rows = select_events(log, statement.format(ids=marks), **values)
        yield from ((number, text) for number, text in rows)


def _in_pages(
    log: Log,
    ask: Callable[..., Sequence[Sequence[Any]]],
    statement: str,
    placeholder: str,
    values: Iterable[str],
) -> list[Sequence[Any]]:
    """Collect the rows of a statement for lists of values that are short enough for one query."""
    rows: list[Sequence[Any]] = []
    for page in pages(set(values)):
        marks, named = parameters("name", page)
        rows += ask(log, statement.format(**{placeholder: marks}), **named)
    return rows


_SECONDS = (
    "SELECT r.{column}, r.end_time - r.start_time FROM runs r WHERE r.status = 'SUCCESS'"
    " AND r.end_time IS NOT NULL AND r.start_time IS NOT NULL AND r.{column} IN ({wanted})"
)
_LAST_SUCCESSES = (
    "SELECT t.value, max(r.id) FROM run_tags t JOIN runs r ON r.run_id = t.run_id"
    " WHERE t.key = :tag AND t.value IN ({names}) AND r.status = 'SUCCESS' GROUP BY t.value"
)


def seconds_of_last_runs(log: Log, targets: Mapping[str, TableRef]) -> dict[str, float | None]:
    """Return how long each transfer's last success took, of those that have ever run.

    A run that failed may have failed at once, and one that died counts as running until it is
    noticed. The seconds are None where no run has succeeded.

    Args:
        log: the event log.
        targets: the last target of each transfer, by the transfer's name.
    """
    names = {stored_key(table): name for name, table in targets.items()}
    newest = {
        names[key]: run_id
        for key, run_id in select_events(
            log,
            "SELECT k.asset_key, k.last_run_id FROM asset_keys k"
            " WHERE k.last_materialization IS NOT NULL",
        )
        if key in names
    }
    of_newest = _seconds(log, "run_id", {run_id for run_id in newest.values() if run_id})
    seconds = {name: of_newest.get(run_id) for name, run_id in newest.items()}
    earlier: dict[str, int] = {}
    for page in pages(name for name, taken in seconds.items() if taken is None):
        marks, values = parameters("name", page)
        rows = select_runs(log, _LAST_SUCCESSES.format(names=marks), tag=TRANSFER, **values)
        earlier.update((name, number) for name, number in rows)
    of_earlier = _seconds(log, "id", earlier.values())
    return seconds | {name: of_earlier.get(number) for name, number in earlier.items()}


def _seconds(log: Log, column: str, wanted: Iterable[Id]) -> dict[Id, float]:
    """Return the seconds of successful runs by the value of a column that identifies them."""
    seconds: dict[Id, float] = {}
    for page in pages(wanted):
        marks, values = parameters("run", page)
        statement = _SECONDS.format(column=column, wanted=marks)
        seconds.update((key, taken) for key, taken in select_runs(log, statement, **values))
    return seconds
