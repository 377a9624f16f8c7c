"""What is recorded of a key range, and how it is written in Dagster's events.

`assets.log.ledger` reads and writes them. Nothing here imports Dagster: `ferry status` needs none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tableferry.resources.contract.fingerprint import HISTORY

if TYPE_CHECKING:
    import dagster as dg

    from tableferry.resources.artifacts import Artifact

DATA_VERSION = "dagster/data_version"
USER_PROVIDED = "dagster/data_version_is_user_provided"
STATE = "tableferry/state"
VERSION = "tableferry/data_version"
"""Tag of observations; Dagster's own would make them versions of the asset."""

COLUMN_SCHEMA = "dagster/column_schema"
COLUMN_LINEAGE = "dagster/column_lineage"
NOT_COMMITTED = "ranges_not_committed"
"""Metadata of the checks of a whole table: how many ranges it lacks."""
SOURCE_NEWER = "source_newer"
"""Metadata of a check that failed for nothing but a source that has changed since the commit."""
ROWS_SINCE = "source_rows_since"
"""Metadata of `total_rows`: rows that the source gained since the committed ranges were read."""

LEAST_ROWS_OF_A_RATE = 10_000
"""Below, what a range costs whatever its size decides how long it takes, and not its rows."""


class State(StrEnum):
    """How far a range has come, in order."""

    MISSING = "missing"
    """No run has touched it."""
    LOADED = "loaded"
    FINALISED = "finalised"
    SHADOWED = "shadowed"
    """Checked and waiting in the shadow table of a swap."""
    COMMITTED = "committed"
    FAILED = "failed"
    SKIPPED_UNCHANGED = "skipped_unchanged"

    @property
    def in_target(self) -> bool:
        """Whether the range's rows are in the target."""
        return self in (State.COMMITTED, State.SKIPPED_UNCHANGED)


class Reason(StrEnum):
    """Why a range is run or skipped."""

    MISSING = "missing"
    SOURCE_CHANGED = "source_changed"
    SCHEMA_CHANGED = "schema_changed"
    SETTINGS_CHANGED = "settings_changed"
    LAST_CHECK_FAILED = "last_check_failed"
    TARGET_MISSING = "target_missing"
    """The target has no such table, or none of the range's rows."""
    TARGET_CHANGED = "target_changed"
    """The target has lost a column."""
    ROW_COUNT_DIFFERS = "row_count_differs"
    FORCED = "forced"
    SWAP = "swap"
    """Unchanged, but other ranges are not, and a swap replaces the whole table."""
    SHADOWED = "shadowed"
    """Already in the shadow table, by an earlier run."""
    PROMOTED = "promoted"
    """In the target since a swap whose run died before it recorded the range."""
    UNCHECKED = "unchecked"
    """Unchanged, but a declared check has no verdict about it: the run that committed it died too
    early, or the check was declared since."""
    FULL_CHECK = "full_check"
    """`incremental`: unchanged, but not compared as a whole for as long as declared. Compared, and
    moved if it differs."""
    TARGET_MOVED = "target_moved"
    """The target's marker says that another data version was published last, or none: by another
    home, or before this event log was restored. Compared, and moved if it differs."""
    DIGEST_CHANGED = "digest_changed"
    """Committed under another definition of the row digest: compared, and moved if it differs."""
    SOURCE_REPLACED = "source_replaced"
    """The source's server has another history of writes: a standby took over, or a backup was
    restored. What the fingerprint looks at may stand for other rows there: compared, and moved if
    it differs."""
    UNCHANGED = "unchanged"

    @property
    def compared(self) -> bool:
        """Both sides are compared, and the range moves only if they differ."""
        return self in (
            Reason.DIGEST_CHANGED,
            Reason.SOURCE_REPLACED,
            Reason.FULL_CHECK,
            Reason.TARGET_MOVED,
        )

    @property
    def current(self) -> bool:
        """The target has what was committed of the source as it is now: a later hop can read it."""
        return self in (Reason.UNCHANGED, Reason.FULL_CHECK)

    @property
    def needs_no_move(self) -> bool:
        """The range is in the target already; there is at most something to check and record."""
        return self in (Reason.UNCHANGED, Reason.UNCHECKED, Reason.PROMOTED)


def says_source_is_newer(failure: str | None) -> bool:
    """Whether a stored evaluation that failed found the target as it was committed.

    Args:
        failure: the evaluation's event, as Dagster stores it.
    """
    if failure is None:
        return False
    data = json.loads(failure)["dagster_event"]["event_specific_data"]
    return SOURCE_NEWER in data["metadata"]


def digest(*parts: object) -> str:
    """A short hash of values whose `repr` says all about them."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def rate(rows: int | None, moving_seconds: float | None) -> float | None:
    """Rows per second of wall-clock time; None where it would say nothing of the throughput.

    That is so of a range that was not moved, and of one of few rows.
    """
    if not moving_seconds or rows is None or rows < LEAST_ROWS_OF_A_RATE:
        return None
    return rows / moving_seconds


@dataclass(frozen=True)
class DataVersion:
    """What a committed range was made from; its text is the partition's Dagster data version."""

    source: str
    """Hash of the source rows' fingerprint, or of the data version of the hop before; preceded by
    `SourceFingerprint.definition` and `-`, e.g. `md5-2-`, if there is one."""
    schema: str
    settings: str

    def __str__(self) -> str:
        return f"{self.source}.{self.schema}.{self.settings}"

    @classmethod
    def parse(cls, text: str) -> DataVersion:
        """The inverse of `str`; a foreign data version is one that nothing equals."""
        parts = text.rsplit(".", 2)
        return cls(*parts) if len(parts) == 3 else cls(text, "", "")

    def change_since(self, committed: DataVersion) -> Reason | None:
        """The first reason for which a range committed as `committed` is out of date, if any."""
        if self.schema != committed.schema:
            return Reason.SCHEMA_CHANGED
        if self.settings != committed.settings:
            return Reason.SETTINGS_CHANGED
        if self.source == committed.source:
            return None
        own, before = (one.source.rpartition("-")[0] for one in (self, committed))
        if own == before or not own:
            return Reason.SOURCE_CHANGED
        (digest, mark, _), (digest_before, mark_before, _) = (
            one.partition(HISTORY) for one in (own, before)
        )
        same = digest == digest_before and mark and mark_before
        return Reason.SOURCE_REPLACED if same else Reason.DIGEST_CHANGED


@dataclass(frozen=True)
class Proven:
    """Of a transfer that is `incremental`: what the next run of a range may go on from."""

    column: str
    """The watermark column, as the source names it."""
    watermark: str | None
    """Its greatest value in the range as it was committed."""
    at: float
    """When the whole range was last moved or compared, in seconds since 1970."""
    kept: str = "0:0"
    """Rows that the target has beyond its source, and the sum of the digests of their keys and
    watermarks."""

    def metadata(self) -> dict[str, Any]:
        """In an event."""
        import dagster as dg

        return {
            "watermark_column": self.column,
            "proven_whole_at": dg.MetadataValue.timestamp(self.at),
            "kept_rows_and_digest": self.kept,
            **({"watermark": self.watermark} if self.watermark else {}),
        }

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Proven | None:
        """The inverse of `metadata`; None where there is nothing to go on from."""
        if "proven_whole_at" not in values:
            return None
        return cls(
            column=str(values["watermark_column"]),
            watermark=values.get("watermark"),
            at=float(values["proven_whole_at"]),
            kept=str(values["kept_rows_and_digest"]),
        )


@dataclass(frozen=True)
class RangeRecord:
    """What one hop of one range did, for the event log and for those who read it."""

    range: str
    state: State
    data_version: str | None = None
    run_id: str | None = None
    timestamp: float | None = None
    rows: int | None = None
    bytes: int | None = None
    wire: str | None = None
    fingerprint: str | None = None
    """Of the source rows of the first hop."""
    source_server: str | None = None
    target_server: str | None = None
    """Which servers these were, and their versions: `assets.planning.resolve.Servers.identity`."""
    source_position: str | None = None
    """Where in its history the source was, if it tells."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By phase. Phases overlap, and none of them counts waiting for the other side."""
    moving_seconds: float | None = None
    """From the first row written until the rows are in their table, waiting included."""
    attempts: int = 1
    error: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """Values changed by an `on_overflow` opt-in, per column."""
    not_filled: tuple[str, ...] = ()
    """Columns of the target that earlier runs filled, and that its rows were moved without."""
    schema: dg.TableSchema | None = None
    """The columns that were written."""
    lineage: dg.TableColumnLineage | None = None
    """Where they come from."""
    shadow: str | None = None
    """Identity of the table that a swap gathered the range in."""
    rejected: str | None = None
    """Name of the table in which the rows are kept that failed their audit."""
    artifacts: Sequence[Artifact] = ()
    """What the rows went through as bcp's files, in their order."""
    since: str | None = None
    """Where only these rows of the range were moved: the condition, e.g. `at >= 2024-01-01`."""
    rows_moved: int | None = None
    """How many these were; `rows` are all rows of the range."""
    whole_because: str | None = None
    """Why the whole range was moved although it had been planned otherwise."""
    proven: Proven | None = None
    target_digest: str | None = None
    """What the range's rows in the target were when they were audited: what the digests were
    computed by, the row count and the sum of the row digests, separated by colons; None where the
    checks took no digests, or the target keeps rows of its own."""

    @property
    def rows_of_move(self) -> int | None:
        """The rows that went from source to target."""
        return self.rows if self.rows_moved is None else self.rows_moved

    @property
    def rows_per_second(self) -> float | None:
        """See `rate`."""
        return rate(self.rows_of_move, self.moving_seconds)

    def metadata(self) -> dict[str, Any]:
        """Dagster metadata: numbers stay numbers, so that the UI plots them."""
        from tableferry.assets.log.range_artifacts import artifact_metadata

        found: dict[str, Any] = {STATE: str(self.state), "attempts": self.attempts}
        if self.rows is not None:
            found |= {"rows": self.rows, "dagster/partition_row_count": self.rows}
        if self.bytes is not None:
            found["bytes"] = self.bytes
        if self.wire:
            found["wire_format"] = self.wire
        if self.fingerprint:
            found["fingerprint"] = self.fingerprint
        for name in ("source_server", "target_server", "source_position"):
            if known := getattr(self, name):
                found[name] = known
        if self.seconds:
            found |= {f"seconds_{phase}": round(value, 4) for phase, value in self.seconds.items()}
            found["bottleneck"] = max(self.seconds, key=lambda phase: self.seconds[phase])
        if self.moving_seconds is not None:
            found["moving_seconds"] = round(self.moving_seconds, 4)
        if self.rows_per_second is not None:
            found["rows_per_second"] = round(self.rows_per_second, 1)
        if self.error:
            found["error"] = self.error
        if self.schema and self.state.in_target:
            found[COLUMN_SCHEMA] = self.schema
        if self.lineage and self.state.in_target:
            found[COLUMN_LINEAGE] = self.lineage
        if self.shadow:
            found["shadow"] = self.shadow
        if self.rejected:
            found["rejected_rows_in"] = self.rejected
        if self.counts:
            found |= {f"overflow_{column}": number for column, number in self.counts.items()}
        if self.not_filled:
            found["columns_not_filled"] = json.dumps(self.not_filled, ensure_ascii=False)
        if self.since:
            found["rows_with"] = self.since
        if self.rows_moved is not None:
            found["rows_moved"] = self.rows_moved
        if self.whole_because:
            found["moved_whole_because"] = self.whole_because
        if self.target_digest and self.state.in_target:
            found["target_digest"] = self.target_digest
        if self.proven and self.state.in_target:
            found |= self.proven.metadata()
        return found | artifact_metadata(self.artifacts)

    @classmethod
    def stored(cls, text: str) -> RangeRecord:
        """The record in a materialization or observation, as Dagster stores it.

        Its own way to read one makes an object of every column of the table.
        """
        entry = json.loads(text)
        data = entry["dagster_event"]["event_specific_data"]
        event = data.get("materialization") or data["asset_observation"]
        entries = {one["label"]: one["entry_data"] for one in event["metadata_entries"]}
        values = {name: one.get("value", one.get("text")) for name, one in entries.items()}
        return cls.of(
            event["partition"], values, event.get("tags") or {}, entry["run_id"], entry["timestamp"]
        )

    @classmethod
    def of(
        cls,
        range_name: str | None,
        values: Mapping[str, Any],
        tags: Mapping[str, str],
        run_id: str,
        timestamp: float,
    ) -> RangeRecord:
        """The same of the event's metadata and tags."""
        seconds = {
            name.removeprefix("seconds_"): float(value)
            for name, value in values.items()
            if name.startswith("seconds_")
        }
        return cls(
            range=range_name or "",
            state=State(str(values.get(STATE, State.COMMITTED))),
            data_version=tags.get(DATA_VERSION) or tags.get(VERSION),
            run_id=run_id,
            timestamp=timestamp,
            rows=values.get("rows"),
            bytes=values.get("bytes"),
            wire=values.get("wire_format"),
            fingerprint=values.get("fingerprint"),
            source_server=values.get("source_server"),
            target_server=values.get("target_server"),
            source_position=values.get("source_position"),
            seconds=seconds,
            moving_seconds=values.get("moving_seconds"),
            attempts=int(values.get("attempts", 1)),
            error=values.get("error"),
            shadow=values.get("shadow"),
            rejected=values.get("rejected_rows_in"),
            counts={
                name.removeprefix("overflow_"): int(value)
                for name, value in values.items()
                if name.startswith("overflow_")
            },
            not_filled=tuple(json.loads(values.get("columns_not_filled", "[]"))),
            since=values.get("rows_with"),
            rows_moved=values.get("rows_moved"),
            whole_because=values.get("moved_whole_because"),
            proven=Proven.read(values),
            target_digest=values.get("target_digest"),
        )
