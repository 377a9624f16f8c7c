"""The record of a key range, and its form in Dagster's events.

This module does not import Dagster: `ferry status` works without it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tableferry.assets.log.states import Reason, State
from tableferry.resources.contract.fingerprint import HISTORY

if TYPE_CHECKING:
    import dagster as dg

    from tableferry.checks.verdict import Differences
    from tableferry.resources.artifacts import Artifact

DATA_VERSION = "dagster/data_version"
USER_PROVIDED = "dagster/data_version_is_user_provided"
STATE = "tableferry/state"
VERSION = "tableferry/data_version"
"""Tag of observations; Dagster's own tag would make them versions of the asset."""

GONE = "tableferry/gone"
"""Metadata of an observation of a target: a list of ranges whose rows have left it for good."""
CREATED = "tableferry/created"
"""Tag of an observation: the identity of the table that a run has created as its target."""
WRITTEN_BY, TAKEN_FROM = "tableferry/written_by", "tableferry/taken_from"
"""Tags of materializations in a chain, see `RangeRecord`."""

COLUMN_SCHEMA = "dagster/column_schema"
COLUMN_LINEAGE = "dagster/column_lineage"
COMPUTED = "tableferry/computed"
"""Tag of a column in its table's schema: an expression of the transfer makes its values."""
KEPT = "tableferry/kept"
"""Tag of a column in its table's schema: it has values of earlier runs, and gets no new ones."""
KEY = "tableferry/key"
"""Tag of a column in its table's schema: its ranges are cut by it. The value is the table's system
and the kind of the ranges, separated by a dot: `postgres.integer`."""
NOT_COMMITTED = "ranges_not_committed"
"""Metadata of whole-table checks: how many ranges are not committed."""
ASKED = "asked"
"""Metadata of a check: `declared.asked_of` what it was asked."""
SOURCE_NEWER = "source_newer"
"""Metadata of a check that failed only because the source has changed since the commit."""
ROWS_SINCE = "source_rows_since"
"""Metadata of `total_rows`: rows that the source gained since the committed ranges were read."""

MIN_ROWS_FOR_RATE = 10_000
"""Below this, fixed costs dominate a range's time, so that its rate would say nothing."""
MAX_ARTIFACTS_LISTED = 20
"""Every event of a range repeats the list."""

_METADATA_NAMES = {
    "rows": "rows",
    "bytes": "bytes",
    "wire": "wire_format",
    "wire_because": "wire_format_because",
    "fingerprint": "fingerprint",
    "row_versions": "row_versions",
    "segments": "source_segments",
    "unchanged_by": "unchanged_by",
    "source_server": "source_server",
    "target_server": "target_server",
    "source_position": "source_position",
    "source_snapshot": "source_snapshot",
    "error": "error",
    "why": "error_alone",
    "shadow": "shadow",
    "rejected": "rejected_rows_in",
    "quarantined": "rows_rejected",
    "since": "rows_with",
    "rows_moved": "rows_moved",
    "inserted": "rows_inserted",
    "updated": "rows_updated",
    "deleted": "rows_deleted",
    "whole_because": "moved_whole_because",
    "source_seconds": "source_seconds",
    "longest_statement": "longest_statement",
    "snapshot_seconds": "snapshot_seconds",
    "declared": "declared",
}
"""The metadata of those fields of a record that are stored as they are."""


def digest(*parts: object) -> str:
    """Return a short hash of values that their `repr` describes completely."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def rate(rows: int | None, moving_seconds: float | None) -> float | None:
    """Return rows per second of wall-clock time; None if nothing was moved, or too few rows."""
    if not moving_seconds or rows is None or rows < MIN_ROWS_FOR_RATE:
        return None
    return rows / moving_seconds


@dataclass(frozen=True)
class DataVersion:
    """What determines a range's rows; its text is the partition's Dagster data version."""

    source: str
    """Hash of the source rows' fingerprint, or of the previous hop's data version; prefixed by
    `SourceFingerprint.definition` and `-`, e.g. `md5-2-`, if there is one."""
    schema: str
    settings: str

    def __str__(self) -> str:
        return f"{self.source}.{self.schema}.{self.settings}"

    @classmethod
    def parse(cls, text: str) -> DataVersion:
        """Parse the text of a data version; a foreign text becomes one that equals no other."""
        parts = text.rsplit(".", 2)
        return cls(*parts) if len(parts) == 3 else cls(text, "", "")

    def is_of(self, before: DataVersion) -> bool:
        """Whether it is a later hop's, of rows that the hop before had committed as `before`."""
        return self.source.rpartition("-")[2] == digest(str(before))

    def change_since(self, committed: DataVersion) -> Reason | None:
        """Return the first reason why a range committed as `committed` is out of date, if any."""
        if self.schema != committed.schema:
            return Reason.SCHEMA_CHANGED
        if self.settings != committed.settings:
            return Reason.SETTINGS_CHANGED
        if self.source == committed.source:
            return None
        definition, earlier = self.source.rpartition("-")[0], committed.source.rpartition("-")[0]
        if definition == earlier or not definition:
            return Reason.SOURCE_CHANGED
        digest, history, _ = definition.partition(HISTORY)
        earlier_digest, earlier_history, _ = earlier.partition(HISTORY)
        same = digest == earlier_digest and history and earlier_history
        return Reason.SOURCE_REPLACED if same else Reason.DIGEST_CHANGED


@dataclass(frozen=True)
class Proven:
    """`incremental`: the proven state of a range, from which the next run may continue."""

    column: str
    """The source's watermark column."""
    watermark: str | None
    """The column's greatest value among the committed rows."""
    at: float
    """When the whole range was last moved or compared, in seconds since 1970."""
    kept: str = "0:0"
    """How many rows the target has beyond its source, and the sum of the digests of their keys and
    watermarks, separated by a colon."""
    held: str | None = None
    """The digest of the keys and watermarks of all rows in the target, as
    `RangeRecord.target_digest`, after a move of newer rows, which audits no others."""

    def metadata(self) -> dict[str, Any]:
        """Return Dagster metadata."""
        import dagster as dg

        return {
            "watermark_column": self.column,
            "proven_whole_at": dg.MetadataValue.timestamp(self.at),
            "kept_rows_and_digest": self.kept,
            **({"watermark": self.watermark} if self.watermark else {}),
            **({"keys_and_watermarks": self.held} if self.held else {}),
        }

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Proven | None:
        """Read it from metadata; None if an event has none."""
        if "proven_whole_at" not in values:
            return None
        return cls(
            column=str(values["watermark_column"]),
            watermark=values.get("watermark"),
            at=float(values["proven_whole_at"]),
            kept=str(values["kept_rows_and_digest"]),
            held=values.get("keys_and_watermarks"),
        )


@dataclass(frozen=True)
class RangeRecord:
    """What is recorded of one range in one hop."""

    range: str
    state: State
    data_version: str | None = None
    run_id: str | None = None
    timestamp: float | None = None
    rows: int | None = None
    bytes: int | None = None
    wire: str | None = None
    wire_because: str | None = None
    """Why `wire: auto` has not taken the wire format that it prefers."""
    fingerprint: str | None = None
    """Fingerprint of the source rows; only the first hop has one."""
    row_versions: str | None = None
    """Hash of the row versions that have this fingerprint, with `fingerprint: auto`."""
    segments: str = ""
    """Hashes of the source rows by segment of the range, see `resources.digest.stretches`."""
    unchanged_by: str | None = None
    """What a range that was not moved was found unchanged by: row versions, or content."""
    source_server: str | None = None
    target_server: str | None = None
    """The servers and their versions, see `assets.planning.servers.Servers.identity`."""
    source_position: str | None = None
    """The position in the source's history of writes, if its system has one."""
    source_snapshot: str | None = None
    """The state of the source as of which the range was proven together with other tables."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase. Phases overlap, and do not include waiting for the other side."""
    moving_seconds: float | None = None
    """Seconds from the first row written until the rows are in their table, waiting included."""
    source_seconds: float | None = None
    """Seconds in which the hop's source worked for the range: it sent its rows, and its share of
    the statements that fingerprinted it."""
    longest_statement: float | None = None
    """The longest of these statements in seconds, waits for the target included."""
    snapshot_seconds: float | None = None
    """The age of the snapshot when the range had been read."""
    waited: Mapping[str, float] = field(default_factory=dict)
    """Seconds that the range has waited for signals of the source, by signal."""
    attempts: int = 1
    error: str | None = None
    """Begins with the transfer, the target and the range."""
    why: str | None = None
    """The error without these; None in records of earlier releases."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of values that an `on_overflow` opt-in changed, by column."""
    not_filled: tuple[str, ...] = ()
    """Columns of the target that earlier runs filled, and that this move left out."""
    schema: dg.TableSchema | None = None
    """The columns that were written."""
    lineage: dg.TableColumnLineage | None = None
    """The source columns of those columns."""
    cast: Mapping[str, int] = field(default_factory=dict)
    """Number of values of which a declared cast lost part, by column."""
    quarantined: int | None = None
    """Number of rows that the target does without, if rejected rows are kept beside it."""
    shadow: str | None = None
    """Identity of the shadow table in which a swap gathered the range."""
    rejected: str | None = None
    """Name of the table that keeps the rows that failed their audit."""
    artifacts: Sequence[Artifact] = ()
    """bcp's files that the rows went through, in order."""
    since: str | None = None
    """The condition, e.g. `at >= 2024-01-01`, if only some rows of the range were moved."""
    rows_moved: int | None = None
    """The number of rows that were moved, if not all: `rows` are all rows of the range."""
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    """What was done to the target's rows, if only rows that differ were moved."""
    whole_because: str | None = None
    """Why the whole range was moved although only newer rows, or those that differ, were
    planned."""
    proven: Proven | None = None
    repaired: Differences | None = None
    """The rows that a repair has put right, as they were found; not read back."""
    target_digest: str | None = None
    """The audited rows in the target, as `digest definition:row count:sum of row digests`; None if
    the checks computed no digests, or the target keeps rows of its own."""
    left_digest: str | None = None
    """The same of a target that keeps rows of its own, which has others beside these, or none."""
    written_by: str | None = None
    """The run that has written the rows; None if no later hop reads them, or in old logs."""
    taken_from: str | None = None
    """`written_by` of the hop before when the rows were taken from it, or compared with it."""
    declared: str | None = None
    """What the transfer declared then, see `declared.declaration_of`; None in old logs."""

    @property
    def rows_of_move(self) -> int | None:
        """The number of rows that went from source to target."""
        return self.rows if self.rows_moved is None else self.rows_moved

    @property
    def written(self) -> dict[str, int]:
        """What was done to the target's rows, as far as it is known: if only rows that differ were
        moved, or rows that the source has no more were deleted."""
        done = {name: getattr(self, name) for name in ("inserted", "updated", "deleted")}
        return {name: rows for name, rows in done.items() if rows is not None}

    @property
    def rows_per_second(self) -> float | None:
        """The `rate` of the move."""
        return rate(self.rows_of_move, self.moving_seconds)

    def metadata(self) -> dict[str, Any]:
        """Return Dagster metadata; numbers stay numbers, so that the UI plots them."""
        values: dict[str, Any] = {STATE: str(self.state), "attempts": self.attempts}
        for name, key in _METADATA_NAMES.items():
            if (value := getattr(self, name)) not in (None, ""):
                values[key] = round(value, 4) if isinstance(value, float) else value
        if self.rows is not None:
            values["dagster/partition_row_count"] = self.rows
        if self.seconds:
            values |= {f"seconds_{phase}": round(value, 4) for phase, value in self.seconds.items()}
            values["bottleneck"] = max(self.seconds, key=lambda phase: self.seconds[phase])
        if self.moving_seconds is not None:
            values["moving_seconds"] = round(self.moving_seconds, 4)
        if self.rows_per_second is not None:
            values["rows_per_second"] = round(self.rows_per_second, 1)
        values |= {f"waited_for_{name}": round(value, 1) for name, value in self.waited.items()}
        values |= {f"overflow_{column}": number for column, number in self.counts.items()}
        values |= {f"cast_{column}": number for column, number in self.cast.items()}
        if self.not_filled:
            values["columns_not_filled"] = json.dumps(self.not_filled, ensure_ascii=False)
        if self.state.in_target:
            columns = {COLUMN_SCHEMA: self.schema, COLUMN_LINEAGE: self.lineage}
            values |= {name: value for name, value in columns.items() if value}
            values |= {"target_digest": self.target_digest} if self.target_digest else {}
            values |= {"left_digest": self.left_digest} if self.left_digest else {}
            values |= self.proven.metadata() if self.proven else {}
        return values | _artifact_metadata(self.artifacts)

    @classmethod
    def stored(cls, text: str) -> RangeRecord:
        """Read the record of a materialization or observation, as Dagster stores it.

        Dagster's own deserialisation creates an object for every column of the table.
        """
        entry = json.loads(text)
        data = entry["dagster_event"]["event_specific_data"]
        event = data.get("materialization") or data["asset_observation"]
        entries = {item["label"]: item["entry_data"] for item in event["metadata_entries"]}
        values = {name: item.get("value", item.get("text")) for name, item in entries.items()}
        tags = event.get("tags") or {}
        plain = {name: values[key] for name, key in _METADATA_NAMES.items() if key in values}
        return cls(
            range=event["partition"] or "",
            state=State(str(values.get(STATE, State.COMMITTED))),
            data_version=tags.get(DATA_VERSION) or tags.get(VERSION),
            run_id=entry["run_id"],
            timestamp=entry["timestamp"],
            seconds={name: float(value) for name, value in _prefixed(values, "seconds_")},
            moving_seconds=values.get("moving_seconds"),
            attempts=int(values.get("attempts", 1)),
            waited={name: float(value) for name, value in _prefixed(values, "waited_for_")},
            counts={name: int(value) for name, value in _prefixed(values, "overflow_")},
            cast={name: int(value) for name, value in _prefixed(values, "cast_")},
            not_filled=tuple(json.loads(values.get("columns_not_filled", "[]"))),
            proven=Proven.read(values),
            target_digest=values.get("target_digest"),
            left_digest=values.get("left_digest"),
            written_by=tags.get(WRITTEN_BY),
            taken_from=tags.get(TAKEN_FROM),
            **plain,
        )


def _prefixed(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if name.startswith(prefix):
            yield name.removeprefix(prefix), value


def _artifact_metadata(artifacts: Sequence[Artifact]) -> dict[str, Any]:
    """Return the number of files, and the first of them with rows, bytes and SHA-256."""
    if not artifacts:
        return {}
    import dagster as dg

    listed = [
        dg.TableRecord(
            {"file": file.path.name, "rows": file.rows, "bytes": file.bytes, "sha256": file.sha256}
        )
        for file in artifacts[:MAX_ARTIFACTS_LISTED]
    ]
    return {"artifacts": dg.MetadataValue.table(listed), "artifact_count": len(artifacts)}
