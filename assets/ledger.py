"""Reads and writes the records of key ranges in Dagster's event log, the only state there is.

Nothing else in the project knows which events mean what:

- A materialization with a data version says that the range is committed: it is visible in the
  target and its blocking checks were green. Its data version is the range's fingerprint.
- A failed check that is newer than the materialization says that the range is damaged.
- Observations tell how far an attempt came; they never count as committed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import dagster as dg
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
    AssetCheckPartitionInfo,
)

from assets.evidence import conclusion, latest_materialization, verdict_metadata
from assets.manifest import Transfer
from assets.records import (
    COLUMN_SCHEMA,
    DATA_VERSION,
    STATE,
    USER_PROVIDED,
    VERSION,
    DataVersion,
    RangeRecord,
    Reason,
)
from checks.verdict import CHECK_NAMES, Verdict

PASSED = AssetCheckExecutionRecordStatus.SUCCEEDED
EVALUATED = {PASSED, AssetCheckExecutionRecordStatus.FAILED}
"""Left out: checks that a run planned and has not come to, or that it failed to evaluate."""


@dataclass(frozen=True)
class Committed:
    """The latest materialization of a range, as far as planning needs it."""

    data_version: DataVersion
    storage_id: int
    check_failed: bool = False
    unchecked: bool = False


class EventLogger(Protocol):
    """What the writer needs of an op's context."""

    @property
    def instance(self) -> dg.DagsterInstance: ...

    def log_event(self, event: Any) -> None: ...


def committed(
    instance: dg.DagsterInstance, asset: dg.AssetKey, checks: Sequence[str]
) -> dict[str, Committed]:
    """The committed ranges of one hop, by partition key.

    Takes two queries, a few per check, and one more per check that a run has planned and not come
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
    for name, (seen, unknown) in _latest_verdicts(instance, asset, checks, ids).items():
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
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    checks: Sequence[str],
    since: Mapping[str, int] | None = None,
) -> dict[str, tuple[dict[str, bool], set[str]]]:
    """Whether each check passed when it was last evaluated, per range.

    Args:
        instance: whose event log.
        asset: the hop's.
        checks: names.
        since: storage ids of materializations, by range: only newer verdicts count, and no other
            ranges.

    Returns:
        Per check the verdicts, and the ranges of which it is not known whether there is one.
    """
    log = instance.event_log_storage
    keys = [dg.AssetCheckKey(asset, name) for name in checks]
    found: dict[str, list[AssetCheckPartitionInfo]] = {name: [] for name in checks}
    for info in log.get_asset_check_partition_info(keys) if keys else ():
        if info.partition_key is not None and (since is None or info.partition_key in since):
            found[info.check_key.name].append(info)
    verdicts: dict[str, tuple[dict[str, bool], set[str]]] = {}
    for key in keys:
        seen: dict[str, bool] = {}
        masked: set[str] = set()
        for info in found[key.name]:
            name = str(info.partition_key)
            at = info.latest_target_materialization_storage_id
            at = info.latest_check_event_storage_id if at is None else at
            if info.latest_execution_status not in EVALUATED:
                masked.add(name)
            elif since is None or at >= since[name]:
                seen[name] = info.latest_execution_status is PASSED
        unknown = _unmask(instance, key, masked, seen, since) if masked else set()
        verdicts[key.name] = (seen, unknown)
    return verdicts


def _unmask(
    instance: dg.DagsterInstance,
    check: dg.AssetCheckKey,
    masked: set[str],
    seen: dict[str, bool],
    since: Mapping[str, int] | None,
) -> set[str]:
    """Add to `seen` the verdicts that a planned evaluation hides; returns where that is unsure."""
    limit = 4 * (len(masked) + len(seen)) + 100
    history = instance.event_log_storage.get_asset_check_execution_history(
        check, limit=limit, status=EVALUATED
    )
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
    return {name for name in masked if since is not None and since[name] < oldest}


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
    for name, (seen, _) in _latest_verdicts(instance, asset, checks).items():
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
