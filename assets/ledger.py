"""Reads and writes the records of key ranges in Dagster's event log, the only state there is.

Nothing else in the project knows which events mean what:

- A materialization with a data version says that the range is committed: it is visible in the
  target and its blocking checks were green. Its data version is the range's fingerprint.
- A failed check that is newer than the materialization says that the range is damaged.
- Observations tell how far an attempt came; they never count as committed.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import dagster as dg
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)

from assets.artifacts import artifact_metadata
from assets.evidence import conclusion, latest_materialization, verdict_metadata
from assets.manifest import Transfer
from checks.verdict import CHECK_NAMES, Verdict
from resources.files import Artifact

DATA_VERSION = "dagster/data_version"
USER_PROVIDED = "dagster/data_version_is_user_provided"
STATE = "tableferry/state"
VERSION = "tableferry/data_version"
"""Tag of observations; Dagster's own would make them versions of the asset."""


COLUMN_SCHEMA = "dagster/column_schema"
PASSED = AssetCheckExecutionRecordStatus.SUCCEEDED
EVALUATED = {PASSED, AssetCheckExecutionRecordStatus.FAILED}
"""Left out: checks that a run planned and has not come to, or that it failed to evaluate."""


class State(StrEnum):
    """How far a range has come, in order."""

    EXPORTED = "exported"
    LOADED = "loaded"
    FINALISED = "finalised"
    SHADOWED = "shadowed"
    """Checked and waiting in the shadow table of a swap."""
    COMMITTED = "committed"
    FAILED = "failed"
    SKIPPED_UNCHANGED = "skipped_unchanged"


class Reason(StrEnum):
    """Why a range is run or skipped."""

    MISSING = "missing"
    SOURCE_CHANGED = "source_changed"
    SCHEMA_CHANGED = "schema_changed"
    SETTINGS_CHANGED = "settings_changed"
    LAST_CHECK_FAILED = "last_check_failed"
    TARGET_MISSING = "target_missing"
    FORCED = "forced"
    SWAP = "swap"
    """Unchanged, but other ranges are not, and a swap replaces the whole table."""
    SHADOWED = "shadowed"
    """Already in the shadow table, by an earlier run."""
    PROMOTED = "promoted"
    """In the target since a swap whose run died before it recorded the range."""
    UNCHECKED = "unchecked"
    """Unchanged, but the run that committed it died before it recorded the checks."""
    UNCHANGED = "unchanged"


def digest(*parts: object) -> str:
    """A short hash of values whose `repr` says all about them."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class DataVersion:
    """What a committed range was made from; its text is the partition's Dagster data version."""

    source: str
    """Hash of the source rows' fingerprint, or of the data version of the hop before."""
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
        if self.source != committed.source:
            return Reason.SOURCE_CHANGED
        return None


@dataclass(frozen=True)
class Committed:
    """The latest materialization of a range, as far as planning needs it."""

    data_version: DataVersion
    storage_id: int
    check_failed: bool = False
    unchecked: bool = False


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
    seconds: Mapping[str, float] = field(default_factory=dict)
    attempts: int = 1
    error: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """Values changed by an `on_overflow` opt-in, per column."""
    schema: dg.TableSchema | None = None
    """The columns that were written."""
    shadow: str | None = None
    """Identity of the table that a swap gathered the range in."""
    artifacts: Sequence[Artifact] = ()
    """What the rows went through as bcp's files, in their order."""

    def metadata(self) -> dict[str, Any]:
        """Dagster metadata: numbers stay numbers, so that the UI plots them."""
        total = sum(self.seconds.values())
        found: dict[str, Any] = {STATE: str(self.state), "attempts": self.attempts}
        if self.rows is not None:
            found |= {"rows": self.rows, "dagster/partition_row_count": self.rows}
        if self.bytes is not None:
            found["bytes"] = self.bytes
        if self.wire:
            found["wire_format"] = self.wire
        if self.fingerprint:
            found["fingerprint"] = self.fingerprint
        if self.seconds:
            found |= {f"seconds_{phase}": round(value, 4) for phase, value in self.seconds.items()}
            found["bottleneck"] = max(self.seconds, key=lambda phase: self.seconds[phase])
            if self.rows and total > 0:
                found["rows_per_second"] = round(self.rows / total, 1)
        if self.error:
            found["error"] = self.error
        if self.schema:
            found[COLUMN_SCHEMA] = self.schema
        if self.shadow:
            found["shadow"] = self.shadow
        if self.counts:
            found |= {f"overflow_{column}": number for column, number in self.counts.items()}
        return found | artifact_metadata(self.artifacts)

    @classmethod
    def read(cls, entry: dg.EventLogEntry) -> RangeRecord:
        """The record in a stored materialization or observation."""
        event = entry.asset_materialization or entry.asset_observation
        assert event is not None, "only materializations and observations hold range records"
        values = {name: value.value for name, value in event.metadata.items()}
        seconds = {
            name.removeprefix("seconds_"): float(value)  # type: ignore[arg-type]
            for name, value in values.items()
            if name.startswith("seconds_")
        }
        return cls(
            range=event.partition or "",
            state=State(str(values.get(STATE, State.COMMITTED))),
            data_version=(event.tags or {}).get(DATA_VERSION) or (event.tags or {}).get(VERSION),
            run_id=entry.run_id,
            timestamp=entry.timestamp,
            rows=values.get("rows"),  # type: ignore[arg-type]
            bytes=values.get("bytes"),  # type: ignore[arg-type]
            wire=values.get("wire_format"),  # type: ignore[arg-type]
            fingerprint=values.get("fingerprint"),  # type: ignore[arg-type]
            seconds=seconds,
            attempts=int(values.get("attempts", 1)),  # type: ignore[arg-type]
            error=values.get("error"),  # type: ignore[arg-type]
            shadow=values.get("shadow"),  # type: ignore[arg-type]
            counts={
                name.removeprefix("overflow_"): int(value)  # type: ignore[arg-type]
                for name, value in values.items()
                if name.startswith("overflow_")
            },
        )


class EventLogger(Protocol):
    """What the writer needs of an op's context."""

    @property
    def instance(self) -> dg.DagsterInstance: ...

    def log_event(self, event: Any) -> None: ...


def committed(
    instance: dg.DagsterInstance, asset: dg.AssetKey, checks: Sequence[str]
) -> dict[str, Committed]:
    """The committed ranges of one hop, by partition key.

    Takes 2 queries and one per check, and one more per check that a run has planned and not come
    to, however many ranges there are. A verdict counts only when it is newer than the
    materialization, which itself is proof of green checks at commit.
    """
    log = instance.event_log_storage
    ids = log.get_latest_storage_id_by_partition(asset, dg.DagsterEventType.ASSET_MATERIALIZATION)
    tags = log.get_latest_tags_by_partition(
        asset, dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION]
    )
    failed: set[str] = set()
    unchecked: set[str] = set()
    for name in checks:
        seen, unknown = _latest_verdicts(instance, dg.AssetCheckKey(asset, name), ids)
        failed |= {range_name for range_name, passed in seen.items() if not passed}
        if name == CHECK_NAMES["count"]:
            # the last to be recorded of every materialization
            unchecked = set(ids) - set(seen) - unknown
    return {
        name: Committed(
            DataVersion.parse(found[DATA_VERSION]), ids[name], name in failed, name in unchecked
        )
        for name, found in tags.items()
        if DATA_VERSION in found and name in ids
    }


def _latest_verdicts(
    instance: dg.DagsterInstance, check: dg.AssetCheckKey, since: Mapping[str, int] | None = None
) -> tuple[dict[str, bool], set[str]]:
    """Whether a check passed when it was last evaluated, per range.

    Args:
        instance: whose event log.
        check: which check.
        since: storage ids of materializations, by range: only newer verdicts count, and no other
            ranges.

    Returns:
        The verdicts, and the ranges of which it is not known whether there is such a verdict.
    """
    log = instance.event_log_storage
    seen: dict[str, bool] = {}
    masked: set[str] = set()
    found = log.get_asset_check_partition_info([check])
    for latest in found:
        name = latest.partition_key
        if name is None or (since is not None and name not in since):
            continue
        if latest.latest_execution_status not in EVALUATED:
            masked.add(name)
            continue
        at = latest.latest_target_materialization_storage_id
        at = latest.latest_check_event_storage_id if at is None else at
        if since is None or at >= since[name]:
            seen[name] = latest.latest_execution_status is PASSED
    if not masked:
        return seen, set()
    # a check that is planned hides the verdict before it
    limit = 4 * len(found) + 100
    history = log.get_asset_check_execution_history(check, limit=limit, status=EVALUATED)
    oldest = 0
    for record in history:
        name = record.partition
        target = record.evaluation.target_materialization_data if record.evaluation else None
        if target and len(history) == limit:
            oldest = target.storage_id
        if name is None or name not in masked or name in seen:
            continue
        if since is None or target is None or target.storage_id >= since[name]:
            seen[name] = record.status is PASSED
    return seen, {name for name in masked if since is not None and since[name] < oldest}


def decide(
    current: Mapping[str, DataVersion],
    previous: Mapping[str, Committed],
    *,
    target_rows: Mapping[str, int] | None = None,
    expected_rows: Mapping[str, int] | None = None,
    force: bool = False,
) -> dict[str, Reason]:
    """Why each range is run, or `UNCHANGED` where it is skipped.

    Args:
        current: the data version that each range would be committed with now.
        previous: what `committed` found.
        target_rows: rows in the target per range, None when the target table does not exist.
        expected_rows: rows in the source per range.
        force: run all.
    """
    reasons: dict[str, Reason] = {}
    for name, version in current.items():
        before = previous.get(name)
        if before is None:
            reasons[name] = Reason.MISSING
        elif force:
            reasons[name] = Reason.FORCED
        elif change := version.change_since(before.data_version):
            reasons[name] = change
        elif before.check_failed:
            reasons[name] = Reason.LAST_CHECK_FAILED
        elif target_rows is None or (
            expected_rows is not None and target_rows.get(name, 0) != expected_rows[name]
        ):
            reasons[name] = Reason.TARGET_MISSING
        elif before.unchecked:
            reasons[name] = Reason.UNCHECKED
        else:
            reasons[name] = Reason.UNCHANGED
    return reasons


def records(
    instance: dg.DagsterInstance, asset: dg.AssetKey, ranges: Iterable[str]
) -> dict[str, RangeRecord]:
    """The newest record of each range that has one, be it committed or an unfinished attempt."""
    log = instance.event_log_storage
    wanted = set(ranges)
    latest: dict[str, RangeRecord] = {}
    newest: dict[str, int] = {}
    for event_type, fetch in (
        (dg.DagsterEventType.ASSET_MATERIALIZATION, instance.fetch_materializations),
        (dg.DagsterEventType.ASSET_OBSERVATION, instance.fetch_observations),
    ):
        ids = log.get_latest_storage_id_by_partition(asset, event_type)
        chosen = sorted(ids[name] for name in wanted & set(ids))
        for start in range(0, len(chosen), 500):
            part = chosen[start : start + 500]
            found = fetch(dg.AssetRecordsFilter(asset_key=asset, storage_ids=part), limit=len(part))
            for stored in found.records:
                record = RangeRecord.read(stored.event_log_entry)
                if stored.storage_id > newest.get(record.range, -1):
                    newest[record.range], latest[record.range] = stored.storage_id, record
    return latest


def committed_schema(instance: dg.DagsterInstance, asset: dg.AssetKey) -> dg.TableSchema | None:
    """The columns that the newest committed range of a hop was written with."""
    for stored in instance.fetch_materializations(asset, limit=20).records:
        event = stored.asset_materialization
        value = event.metadata.get(COLUMN_SCHEMA) if event else None
        if isinstance(value, dg.TableSchemaMetadataValue):
            return value.schema
    return None


def evaluations(
    instance: dg.DagsterInstance, asset: dg.AssetKey, checks: Sequence[str]
) -> dict[str | None, dict[str, AssetCheckExecutionRecord]]:
    """The latest evaluation of each check, per range; those of the whole table under None."""
    found: dict[str | None, dict[str, AssetCheckExecutionRecord]] = {}
    for name in checks:
        for record in instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(asset, name), limit=5000, status=EVALUATED
        ):
            found.setdefault(record.partition, {}).setdefault(name, record)
    return found


def verdicts(
    instance: dg.DagsterInstance, asset: dg.AssetKey, checks: Sequence[str]
) -> dict[str, dict[str, bool]]:
    """The latest verdict of each check per range: `{range: {check: passed}}`."""
    found: dict[str, dict[str, bool]] = {}
    for name in checks:
        seen, _ = _latest_verdicts(instance, dg.AssetCheckKey(asset, name))
        for range_name, passed in seen.items():
            found.setdefault(range_name, {})[name] = passed
    return found


class Writer:
    """Records what becomes of the ranges of one hop, from any thread of one run."""

    def __init__(self, context: EventLogger, asset: dg.AssetKey, transfer: Transfer) -> None:
        self._context, self._asset, self._transfer = context, asset, transfer
        self._lock = threading.Lock()

    def progress(self, record: RangeRecord) -> None:
        """Tell how far an attempt came, or that it failed."""
        with self._lock:
            self._context.log_event(
                dg.AssetObservation(
                    self._asset,
                    partition=record.range,
                    metadata=record.metadata(),
                    tags={STATE: str(record.state), VERSION: record.data_version or "none"},
                )
            )

    def commit(self, record: RangeRecord) -> None:
        """Record that a range is committed, or was found unchanged."""
        assert record.data_version is not None, "a commit needs its data version"
        with self._lock:
            self._context.log_event(
                dg.AssetMaterialization(
                    self._asset,
                    partition=record.range,
                    metadata=record.metadata(),
                    tags={
                        DATA_VERSION: record.data_version,
                        USER_PROVIDED: "true",
                        STATE: str(record.state),
                    },
                )
            )

    def checked(self, range_name: str, verdict: Verdict) -> None:
        """Record a check's verdict, bound to the range's latest materialization if it has one."""
        meaning = self._transfer.check_spec(verdict.check)
        with self._lock:
            target = latest_materialization(self._context.instance, self._asset, range_name)
            self._context.log_event(
                dg.AssetCheckEvaluation(
                    asset_key=self._asset,
                    check_name=verdict.check,
                    passed=verdict.passed,
                    partition=range_name,
                    blocking=meaning.blocking,
                    severity=dg.AssetCheckSeverity[meaning.severity.upper()],
                    target_materialization_data=target,
                    description=conclusion(verdict),
                    metadata=verdict_metadata(verdict),
                )
            )
