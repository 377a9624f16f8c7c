"""Runs of transfers: their tags, which failed, how long they took; Dagster is not imported."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Any, Literal, TypeVar

from tableferry.assets.asset_keys import stored_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.queries import Id, Log, select_events, select_in, select_runs
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.resources.tables import TableRef

FORCE = "tableferry/force"
"""Run tag: move the ranges also where nothing changed."""

REPAIR = "tableferry/repair"
"""Run tag: put right the rows of targets that differ, and nothing else."""

RECREATE = "tableferry/recreate"
"""Run tag: make the targets anew, and replace them when they are proven."""

PROFILE = "tableferry/profile"
"""Run tag: name of the profile to use instead of the transfer's own."""

TRANSFER = "tableferry/transfer"
"""Run tag: the transfer that the run moves or checks, to find its runs by in the user interface."""

LEVEL = "tableferry/level"
"""Run tag of a check: count, checksum, sample_hash or full_hash; else as the transfer declares."""

RANGES = "tableferry/ranges"
"""Run tag of a check: a JSON list of the partition keys to compare; else all."""

AS_OF_LAST_RUN = "tableferry/as_of_last_run"
"""Run tag of a check: compare with the recorded digests, without reading the source."""

UP_TO_DATE = "tableferry/up_to_date"
"""Run tag of a check: also fail where the source is newer than the last move."""

COMPLETE = "tableferry/complete"
"""Run tag of a check: also fail if ranges are not committed."""

ADOPT = "tableferry/adopt"
"""Run tag of a check: record ranges that are equal as committed, see `ferry adopt`."""

RECHECK = "tableferry/recheck"
"""Run tag of a check: `NxS`, compare rows that differ N more times, S seconds apart."""

LAUNCH = "tableferry/launch"
"""Run tag: `n:name` of the n runs that share the ranges of one command or tick."""

PARTITION = "dagster/partition"

RANGE_START = "dagster/asset_partition_range_start"

RANGE_END = "dagster/asset_partition_range_end"


def checked_ranges(tags: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the partition keys that a check is restricted to; None if the tag is invalid."""
    try:
        names = json.loads(tags.get(RANGES, "[]"))
    except ValueError:
        return None
    valid = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if valid else None


RunEnd = Literal["succeeded", "failed", "canceled", "unfinished"]
_OUTCOMES: Mapping[str, RunEnd] = {
    "SUCCESS": "succeeded",
    "FAILURE": "failed",
    "CANCELED": "canceled",
}
"""How runs end, by Dagster's names for it."""
_ENDED_BADLY = ("failed", "canceled")

MAX_RUNS_PER_TARGET = 200
"""Maximum runs of a target, from the newest one back, among which failures are looked for."""

_FAILED_RUNS = "SELECT r.run_id FROM runs r WHERE r.status IN ('FAILURE', 'CANCELED')"
# each run that selects an asset or its checks has planned these, and unlike the runs of an instance
# they have an index by asset
_RECENT_RUNS = f"""
SELECT n.asset_key, n.run_id FROM (
 SELECT c.asset_key, c.run_id,
  row_number() OVER (PARTITION BY c.asset_key ORDER BY max(c.id) DESC) AS place
 FROM asset_check_executions c
 WHERE c.asset_key IN ({{values}})
  AND c.check_name IN ({", ".join(f"'{check}'" for check in WHOLE_TABLE_CHECKS)})
 GROUP BY c.asset_key, c.run_id
) n WHERE n.place <= {MAX_RUNS_PER_TARGET} ORDER BY n.asset_key, n.place
"""
_RUNS = "SELECT r.id, r.run_id, r.status, r.run_body FROM runs r WHERE r.run_id IN ({values})"

Run = TypeVar("Run")
Asset = TypeVar("Asset")
Coverage = tuple[Literal["move", "check"], frozenset[Asset]]
"""What a run does to a transfer, and the targets whose earlier failures its success answers."""


def failed_transfers(log: Log, transfers: Collection[Transfer]) -> dict[str, RunEnd]:
    """Return how the newest run of a transfer ended that failed or was canceled, by transfer.

    Those whose failures were all answered by a later success are left out. A run may fail although
    all of its ranges were committed, or be refused before any.
    """
    return _failed(log, [(transfer, [hop.to for hop in transfer.hops]) for transfer in transfers])


def is_unanswered(log: Log, transfer: Transfer, tables: Iterable[TableRef]) -> bool:
    """Whether a run that moves one of these tables failed and no later success answers it."""
    return bool(_failed(log, [(transfer, tables)]))


def _failed(log: Log, wanted: Iterable[tuple[Transfer, Iterable[TableRef]]]) -> dict[str, RunEnd]:
    """Return the transfers of which runs failed to move these tables, without an answer."""
    failures = {run_id for (run_id,) in select_runs(log, _FAILED_RUNS)}
    if not failures:
        return {}
    targets = {
        transfer.transfer: (transfer, [stored_key(hop.to) for hop in transfer.hops], tables)
        for transfer, tables in wanted
    }
    recent: dict[str, list[str]] = defaultdict(list)
    every = [key for _, keys, _ in targets.values() for key in keys]
    for key, run_id in select_in(select_events, log, _RECENT_RUNS, every):
        recent[key].append(run_id)
    # only runs since the oldest failure of a target can answer one
    for key, run_ids in recent.items():
        places = [place for place, run_id in enumerate(run_ids) if run_id in failures]
        recent[key] = run_ids[: places[-1] + 1] if places else []
    read = {run_id for run_ids in recent.values() for run_id in run_ids}
    stored = {
        run_id: (number, status, body)
        for number, run_id, status, body in select_in(select_runs, log, _RUNS, read)
    }
    failed: dict[str, RunEnd] = {}
    for name, (transfer, keys, tables) in targets.items():
        covering = {run_id for key in keys for run_id in recent[key]}
        newest_first = sorted((stored[run_id] for run_id in covering & stored.keys()), reverse=True)
        moved = {stored_key(table) for table in tables}
        ends = {number: outcome_of(status) for number, status, _ in newest_first}
        for number in unanswered(_effects(transfer, newest_first), moved):
            failed.setdefault(name, ends[number])
    return failed


def unanswered(
    newest_first: Iterable[tuple[Run, Coverage[Asset], RunEnd]], targets: Set[Asset]
) -> Iterator[Run]:
    """Yield the failed or canceled moves of targets that no later success answers.

    The verdicts of a check speak for themselves.

    Args:
        newest_first: runs with what each does and how it ended, read only as far as needed.
        targets: the targets in question.
    """
    answered: set[Asset] = set()
    for run, (action, covered), outcome in newest_first:
        if outcome == "succeeded":
            answered |= covered
        elif action == "move" and outcome in _ENDED_BADLY and (covered & targets) - answered:
            yield run
        if answered >= targets:
            return


def _effects(
    transfer: Transfer, runs: Iterable[tuple[int, str, str]]
) -> Iterator[tuple[int, Coverage[str], RunEnd]]:
    """Yield the runs, given by number, status and body, that do something to a transfer."""
    targets = frozenset(stored_key(hop.to) for hop in transfer.hops)
    for number, status, body in runs:
        if covered := _stored_coverage(targets, json.loads(body)):
            yield number, covered, outcome_of(status)


def outcome_of(status: str) -> RunEnd:
    """Return how a run ended by Dagster's name for its status."""
    return _OUTCOMES.get(status, "unfinished")


def _stored_coverage(targets: frozenset[str], run: Mapping[str, Any]) -> Coverage[str] | None:
    """`coverage` of a run as Dagster stores it."""

    def members(keys: dict[str, Any] | None) -> list[dict[str, Any]]:
        # a run that is executed again through the API has a set
        return keys.get("__frozenset__", keys.get("__set__", [])) if keys else []

    selected = {json.dumps(key["path"]) for key in members(run["asset_selection"])}
    checks = members(run["asset_check_selection"])
    checked = {json.dumps(check["asset_key"]["path"]) for check in checks}
    return coverage(
        # a run that selects nothing is of all assets
        selected if selected or checked else targets,
        checked,
        targets,
        some_ranges=bool(checked_ranges(run["tags"])),
    )


def coverage(
    selected: Set[Asset], checked: Set[Asset], targets: frozenset[Asset], *, some_ranges: bool
) -> Coverage[Asset] | None:
    """Return what a run does to targets; None if it concerns none of them.

    Args:
        selected: the assets that the run materializes.
        checked: the assets whose checks the run selects.
        targets: the targets of one transfer or several.
        some_ranges: the run only checks some of the ranges, and so answers nothing.
    """
    if moved := selected & targets:
        return "move", frozenset(moved)
    if compared := checked & targets:
        return "check", frozenset() if some_ranges else frozenset(compared)
    return None


_TIMED_RUNS = (
    "SELECT r.id, r.run_body, r.end_time - r.start_time FROM runs r WHERE r.status = 'SUCCESS'"
    " AND r.end_time IS NOT NULL AND r.start_time IS NOT NULL AND r.run_id IN ({values})"
)
MAX_TIMES = 5
"""Runs whose durations a plan shows, at most."""


def seconds_of_moves(log: Log, transfer: Transfer) -> list[float]:
    """Return how long the last runs took that moved a transfer and succeeded, the newest first."""
    targets = frozenset(stored_key(hop.to) for hop in transfer.hops)
    recent = {run_id for _, run_id in select_in(select_events, log, _RECENT_RUNS, targets)}
    timed = sorted(select_in(select_runs, log, _TIMED_RUNS, recent), reverse=True)
    seconds: list[float] = []
    for _, body, taken in timed:
        covered = _stored_coverage(targets, json.loads(body))
        if covered is not None and covered[0] == "move":
            seconds.append(max(0.0, taken))
        if len(seconds) == MAX_TIMES:
            break
    return seconds


_SECONDS = (
    "SELECT r.{column}, r.end_time - r.start_time FROM runs r WHERE r.status = 'SUCCESS'"
    " AND r.end_time IS NOT NULL AND r.start_time IS NOT NULL AND r.{column} IN ({{values}})"
)
_LAST_SUCCESSES = (
    "SELECT t.value, max(r.id) FROM run_tags t JOIN runs r ON r.run_id = t.run_id"
    " WHERE t.key = :tag AND t.value IN ({values}) AND r.status = 'SUCCESS' GROUP BY t.value"
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
    unknown = [name for name, taken in seconds.items() if taken is None]
    for name, number in select_in(select_runs, log, _LAST_SUCCESSES, unknown, tag=TRANSFER):
        earlier[name] = number
    of_earlier = _seconds(log, "id", earlier.values())
    return seconds | {name: of_earlier.get(number) for name, number in earlier.items()}


def _seconds(log: Log, column: str, wanted: Iterable[Id]) -> dict[Id, float]:
    """Return the seconds of successful runs by the value of a column that identifies them."""
    statement = _SECONDS.format(column=column)
    # a clock may have been set back while a run went on
    return {key: max(0.0, taken) for key, taken in select_in(select_runs, log, statement, wanted)}
