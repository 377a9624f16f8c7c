"""The ledger at a glance: the records of key ranges out of Dagster's SQLite file, without Dagster.

Importing Dagster takes longer than reading its file. What is found here is what
`assets.log.ledger` finds, whose tests compare the two.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from assets.log.records import RangeRecord

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
SELECT check_name, partition, execution_status, about FROM (
    SELECT check_name, partition, execution_status,
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


class Unseen(Exception):
    """The file is not as it is expected, so that Dagster has to be asked."""


@dataclass(frozen=True)
class Glance:
    """An open event log.

    Its methods raise `sqlite3.Error`, `KeyError`, `TypeError` or `ValueError` if the file is not
    as the installed Dagster writes it.
    """

    connection: sqlite3.Connection

    def partitions(self, name: str) -> list[str]:
        """The keys of dynamic partitions, in their order."""
        found = self.connection.execute(
            "SELECT partition FROM dynamic_partitions WHERE partitions_def_name = ? ORDER BY id",
            [name],
        )
        return [one for (one,) in found]

    def ranges(
        self, asset: str, checks: Sequence[str]
    ) -> tuple[dict[str, RangeRecord], dict[str, dict[str, bool]]]:
        """The newest record of each range of an asset, and whether its checks passed.

        Args:
            asset: its key, as Dagster writes it.
            checks: names.

        Raises:
            Unseen: the asset was wiped.
        """
        wiped = "SELECT 1 FROM asset_keys WHERE asset_key = ? AND wipe_timestamp IS NOT NULL"
        if self.connection.execute(wiped, [asset]).fetchone():
            raise Unseen
        newest: dict[str, int] = {}
        committed: dict[str, int] = {}
        for name, kind, number in self.connection.execute(_NEWEST, [asset, _MOVED, _LOOKED]):
            newest[name] = max(number, newest.get(name, -1))
            if kind == _MOVED:
                committed[name] = number
        records = {one.range: one for one in self._records(sorted(newest.values()))}
        return records, self._verdicts(asset, checks, committed)

    def _records(self, ids: Sequence[int]) -> Iterable[RangeRecord]:
        for start in range(0, len(ids), _MOST_VARIABLES):
            part = ids[start : start + _MOST_VARIABLES]
            found = self.connection.execute(
                f"SELECT event FROM event_logs WHERE id IN ({_marks(part)})", part
            )
            for (text,) in found:
                yield RangeRecord.stored(text)

    def _verdicts(
        self, asset: str, checks: Sequence[str], committed: Mapping[str, int]
    ) -> dict[str, dict[str, bool]]:
        rows = self.connection.execute(_STANDING.format(_marks(checks)), [asset, *checks])
        found: dict[str, dict[str, bool]] = {}
        for check, name, status, about in sorted(rows, key=lambda row: checks.index(row[0])):
            if about >= committed.get(name, 0):
                found.setdefault(name, {})[check] = status == "SUCCEEDED"
        return found


def glance(home: Path) -> closing[sqlite3.Connection] | None:
    """The event log of a home, to be read; None if Dagster has to be asked.

    That is so where the home keeps it elsewhere, and where a run has not ended: it may be dead,
    and is marked as failed then.
    """
    try:
        config = home / "dagster.yaml"
        if _ELSEWHERE.search(config.read_text(encoding="utf-8")):
            return None
        with closing(_open(home / RUNS)) as runs:
            unfinished = f"SELECT 1 FROM runs WHERE status NOT IN ({_marks(_ENDED)}) LIMIT 1"
            if runs.execute(unfinished, _ENDED).fetchone():
                return None
        return closing(_open(home / INDEX))
    except (OSError, ValueError, sqlite3.Error):
        return None


def _open(file: Path) -> sqlite3.Connection:
    # one that is there: `mode=rw` makes none, and may read what a writer has left in the log
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=30)


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))
