"""The ledger at a glance: the records of key ranges out of Dagster's SQLite file, without Dagster.

Importing Dagster takes longer than reading its file. What is found here is what
`assets.log.ledger` finds, whose tests compare the two.
"""

from __future__ import annotations

import functools
import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tableferry.assets.declaring.names import check_job_name, move_job_name
from tableferry.assets.log import answers
from tableferry.assets.log.committed import Committed
from tableferry.assets.log.records import (
    COLUMN_SCHEMA,
    DATA_VERSION,
    RangeRecord,
    says_source_is_newer,
)

INDEX = Path("history", "runs", "index.db")
RUNS = Path("history", "runs.db")
"""Where Dagster keeps them in a home whose dagster.yaml does not say otherwise."""

_ELSEWHERE = re.compile(
    r"^(storage|event_log_storage|run_storage|local_artifact_storage|instance_class|custom_.*)\s*:",
    re.MULTILINE,
)
_ENDED = ("SUCCESS", "FAILURE", "CANCELED")
_MOVED, _LOOKED = "ASSET_MATERIALIZATION", "ASSET_OBSERVATION"
_MOST_VARIABLES = 500

_NEWEST = """
SELECT partition, dagster_event_type, max(id) FROM event_logs
WHERE asset_key = ? AND partition IS NOT NULL AND dagster_event_type IN (?, ?)
GROUP BY partition, dagster_event_type
"""

# as `ledger.standing` has it
_STANDING = """
SELECT check_name, partition, execution_status, about, failure FROM (
    SELECT check_name, partition, execution_status,
        CASE WHEN execution_status <> 'SUCCEEDED' THEN evaluation_event END AS failure,
        coalesce(materialization_event_storage_id, evaluation_event_storage_id) AS about,
        row_number() OVER (
            PARTITION BY check_name, partition
            ORDER BY coalesce(materialization_event_storage_id, evaluation_event_storage_id) DESC,
                evaluation_event_storage_id DESC
        ) AS latest
    FROM asset_check_executions
    WHERE asset_key = ? AND check_name IN ({}) AND execution_status IN ('SUCCEEDED', 'FAILED')
        AND evaluation_event_storage_id IS NOT NULL AND partition IS NOT NULL
) WHERE latest = 1
"""

_VERSIONS = """
SELECT newest.partition, tags.value FROM asset_event_tags AS tags JOIN (
    SELECT partition, max(id) AS id FROM event_logs
    WHERE asset_key = ? AND partition IS NOT NULL AND dagster_event_type = ?
    GROUP BY partition
) AS newest ON tags.event_id = newest.id
WHERE tags.key = ?
"""

_LATEST = """
SELECT event FROM event_logs WHERE asset_key = ? AND dagster_event_type = ?
ORDER BY id DESC LIMIT 20
"""


# the latter is what Dagster's pages start for assets that somebody chose
_RUNS = r"""
SELECT status, pipeline_name, run_body FROM runs_file.runs
WHERE pipeline_name IN (?, ?) OR pipeline_name LIKE '\_\_ASSET\_JOB%' ESCAPE '\'
ORDER BY id DESC LIMIT 2000
"""


class Unseen(Exception):
    """The file is not as it is expected, so that Dagster has to be asked."""


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _seen(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """What looks at the file: whatever is not as expected there, it is `Unseen`."""

    @functools.wraps(method)
    def looked(*arguments: _P.args, **options: _P.kwargs) -> _T:
        try:
            return method(*arguments, **options)
        except (sqlite3.Error, KeyError, TypeError, ValueError) as error:
            raise Unseen from error

    return looked


@dataclass(frozen=True)
class Column:
    """Of a table that was written."""

    name: str
    type: str
    description: str | None


@dataclass(frozen=True)
class Columns:
    """All of a table."""

    columns: Sequence[Column]


@dataclass(frozen=True)
class Glance:
    """An open event log; assets are named as Dagster's storage does.

    Its methods raise `Unseen` if an asset was wiped, or if the file is not as the installed Dagster
    writes it.
    """

    connection: sqlite3.Connection

    @_seen
    def partitions(self, name: str) -> list[str]:
        """The keys of dynamic partitions, in their order."""
        found = self.connection.execute(
            "SELECT partition FROM dynamic_partitions WHERE partitions_def_name = ? ORDER BY id",
            [name],
        )
        return [one for (one,) in found]

    @_seen
    def newest_ids(self, asset: str) -> dict[str, int]:
        """The storage id of the newest materialization of each range that has one."""
        return {name: number for name, kind, number in self._newest(asset) if kind == _MOVED}

    @_seen
    def records(self, asset: str) -> dict[str, RangeRecord]:
        """The newest record of each range."""
        newest: dict[str, int] = {}
        for name, _, number in self._newest(asset):
            newest[name] = max(number, newest.get(name, -1))
        return {one.range: one for one in self._records(sorted(newest.values()))}

    @_seen
    def verdicts(self, asset: str, checks: Sequence[str]) -> dict[str, dict[str, bool]]:
        """Whether each of these checks of each range passed, as far as a verdict counts."""
        newest = self.newest_ids(asset)
        rows = self.connection.execute(_STANDING.format(_marks(checks)), [asset, *checks])
        found: dict[str, dict[str, bool]] = {}
        in_order = sorted(rows, key=lambda row: checks.index(row[0]))
        for check, name, status, about, failure in in_order:
            if about >= newest.get(name, 0) and not says_source_is_newer(failure):
                found.setdefault(name, {})[check] = status == "SUCCEEDED"
        return found

    @_seen
    def committed(
        self, asset: str, checks: Sequence[str], declared: Sequence[str]
    ) -> dict[str, Committed]:
        """The committed ranges, see `ledger.committed`."""
        ids = self.newest_ids(asset)
        found = self.verdicts(asset, sorted({*checks, *declared})) if checks else {}
        versions = self.connection.execute(_VERSIONS, [asset, _MOVED, DATA_VERSION])
        return Committed.of(dict(versions), ids, found, checks, declared)

    @_seen
    def committed_schema(self, asset: str) -> Columns | None:
        """The columns that the newest committed range was written with."""
        self._require_unwiped(asset)
        for (text,) in self.connection.execute(_LATEST, [asset, _MOVED]):
            data = json.loads(text)["dagster_event"]["event_specific_data"]
            for one in data["materialization"]["metadata_entries"]:
                if one["label"] == COLUMN_SCHEMA and "schema" in one["entry_data"]:
                    columns = one["entry_data"]["schema"]["columns"]
                    return Columns(
                        [Column(one["name"], one["type"], one["description"]) for one in columns]
                    )
        return None

    @_seen
    def unanswered(self, transfer: str, targets: frozenset[str], wanted: Collection[str]) -> bool:
        """Whether the newest run for one of the wanted targets failed: see `answers`."""
        jobs = [move_job_name(transfer), check_job_name(transfer)]
        found = self.connection.execute(_RUNS, jobs)
        runs = ((status, *_covered(transfer, targets, job, body)) for status, job, body in found)
        return answers.unanswered(runs, wanted)

    def _newest(self, asset: str) -> list[tuple[str, str, int]]:
        """Range, kind of event and its storage id."""
        self._require_unwiped(asset)
        return self.connection.execute(_NEWEST, [asset, _MOVED, _LOOKED]).fetchall()

    def _require_unwiped(self, asset: str) -> None:
        wiped = "SELECT 1 FROM asset_keys WHERE asset_key = ? AND wipe_timestamp IS NOT NULL"
        if self.connection.execute(wiped, [asset]).fetchone():
            raise Unseen

    def _records(self, ids: Sequence[int]) -> Iterable[RangeRecord]:
        for start in range(0, len(ids), _MOST_VARIABLES):
            part = ids[start : start + _MOST_VARIABLES]
            found = self.connection.execute(
                f"SELECT event FROM event_logs WHERE id IN ({_marks(part)})", part
            )
            for (text,) in found:
                yield RangeRecord.stored(text)


def _covered(
    transfer: str, targets: frozenset[str], job: str, body: str
) -> tuple[str, frozenset[str]]:
    """What a run does to the transfer, and the targets for which its success answers."""
    run = json.loads(body)
    ops = (run["run_config"] or {}).get("ops") or {}
    about = answers.covered(
        transfer,
        targets,
        job,
        {json.dumps(one["path"]) for one in _members(run["asset_selection"])},
        {json.dumps(one["asset_key"]["path"]) for one in _members(run["asset_check_selection"])},
        some_ranges=any((op.get("config") or {}).get("ranges") for op in ops.values()),
    )
    return about or ("", frozenset())


def _members(stored: dict[str, Any] | None) -> Iterable[dict[str, Any]]:
    return stored["__frozenset__"] if stored else ()


def opened(home: Path) -> closing[sqlite3.Connection]:
    """The event log of a home with its runs, to be read; whoever opens it closes it.

    Raises:
        sqlite3.Error: they are not there.
    """
    connection = _open(home / INDEX)
    try:
        connection.execute("ATTACH DATABASE ? AS runs_file", [_uri(home / RUNS)])
    except sqlite3.Error:
        connection.close()
        raise
    return closing(connection)


def glance(home: Path) -> closing[sqlite3.Connection] | None:
    """The event log of a home, to be read; None if Dagster has to be asked.

    That is so where the home keeps it elsewhere, and where a run has not ended or holds a slot of
    a pool: it may be dead, and is marked as failed then.
    """
    try:
        config = home / "dagster.yaml"
        if _ELSEWHERE.search(config.read_text(encoding="utf-8")):
            return None
        with closing(_open(home / RUNS)) as runs:
            unfinished = f"SELECT 1 FROM runs WHERE status NOT IN ({_marks(_ENDED)}) LIMIT 1"
            if runs.execute(unfinished, _ENDED).fetchone():
                return None
        with closing(_open(home / INDEX)) as slots:
            if slots.execute("SELECT 1 FROM concurrency_slots WHERE run_id IS NOT NULL").fetchone():
                return None
        return opened(home)
    except (OSError, ValueError, sqlite3.Error):
        return None


def _open(file: Path) -> sqlite3.Connection:
    # one that is there: `mode=rw` makes none, and may read what a writer has left in the log
    return sqlite3.connect(_uri(file), uri=True, timeout=30)


def _uri(file: Path) -> str:
    return f"{file.absolute().as_uri()}?mode=rw"


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))
