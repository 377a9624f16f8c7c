"""Reads the records of key ranges in Dagster's event log, the only state there is.

`assets.log` is all of the ledger: `writer` writes what is read here, `records` and `check_records`
are what it says, `history` tells of runs, `glance` reads the same without Dagster, and `reading`
lets planning do with either. Nothing else in the project knows which events mean what, or uses what
Dagster keeps to itself:

- A materialization with a data version says that the range is committed: it is visible in the
  target and its blocking checks were green. Its data version is the range's fingerprint.
- A failed check about the newest materialization says that the range is damaged; one about an older
  materialization says nothing any more.
- Observations tell how far an attempt came; they never count as committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
import sqlalchemy as sql
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    SqlEventLogStorageTable,
)

from tableferry.assets.log.committed import Committed
from tableferry.assets.log.records import (
    COLUMN_SCHEMA,
    DATA_VERSION,
    RangeRecord,
    says_source_is_newer,
)
from tableferry.checks.verdict import CHECK_NAMES
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.resources.errors import InputError

Materialization = AssetCheckEvaluationTargetMaterializationData
"""The materialization that a check's verdict is about."""

StoredCheck = AssetCheckExecutionRecord
"""A verdict with all that was recorded of it."""

PASSED = AssetCheckExecutionRecordStatus.SUCCEEDED
EVALUATED = {PASSED, AssetCheckExecutionRecordStatus.FAILED}
"""Left out: checks that a run planned and has not come to, or that it failed to evaluate."""


@dataclass(frozen=True)
class Standing:
    """A verdict that counts."""

    id: int
    """Of its row in Dagster's table of checks."""
    passed: bool


def committed(
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    checks: Sequence[str],
    *,
    declared: Sequence[str] = (CHECK_NAMES["count"],),
) -> dict[str, Committed]:
    """The committed ranges of one hop, by partition key.

    Takes three queries, however many ranges there are.

    Args:
        instance: whose event log.
        asset: the hop's.
        checks: whose failure makes a range suspect.
        declared: checks that every range must have a verdict of.
    """
    log = instance.event_log_storage
    ids = newest_ids(instance, asset)
    tags = log.get_latest_tags_by_partition(
        asset, dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION]
    )
    found = standing(instance, asset, sorted({*checks, *declared}) if checks else (), ids)
    versions = {name: of[DATA_VERSION] for name, of in tags.items() if DATA_VERSION in of}
    passed = {
        name: {check: one.passed for check, one in of.items()} for name, of in found.items() if name
    }
    return Committed.of(versions, ids, passed, checks, declared)


def standing(
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    checks: Sequence[str],
    newest: Mapping[str, int] | None = None,
    *,
    only: str | None = None,
) -> dict[str | None, dict[str, Standing]]:
    """The verdicts that count: of each check, the latest about what is in the target now.

    A verdict about an older materialization than the range's newest one does not count, whenever it
    was given: a check that ran beside a move judged rows that are gone. Nor does one that a run has
    planned and not come to, nor one that found nothing but that the source has changed since.

    Dagster's own API finds the row that was created last. A run creates the rows of its checks when
    it is queued and fills them in when it comes to them, so that the last row need not be the last
    verdict; hence a query of our own (Dagster's version is pinned).

    Args:
        instance: whose event log.
        asset: the hop's.
        checks: names.
        newest: storage ids of the newest materializations by range, where the caller has them.
        only: look at this range alone.

    Returns:
        By range and check, in the order of `checks`; verdicts about the whole table under None.

    Raises:
        InputError: the event log is not in an SQL database.
    """
    log = _sql_log(instance)
    if not checks:
        return {}
    row = AssetCheckExecutionsTable.c
    # a range that was never committed has no materialization that its checks could be about
    about = sql.func.coalesce(row.materialization_event_storage_id, row.evaluation_event_storage_id)
    latest = sql.func.row_number().over(
        partition_by=(row.check_name, row.partition),
        order_by=(about.desc(), row.evaluation_event_storage_id.desc()),
    )
    ranked = (
        sql.select(
            row.id,
            row.check_name,
            row.partition,
            row.execution_status,
            sql.case((row.execution_status != PASSED.value, row.evaluation_event)).label("failure"),
            about.label("about"),
            latest.label("latest"),
        )
        .where(
            row.asset_key == asset.to_string(),
            row.check_name.in_(checks),
            row.execution_status.in_([status.value for status in EVALUATED]),
            row.evaluation_event_storage_id.is_not(None),
            row.partition == only if only is not None else sql.true(),
        )
        .subquery()
    )
    with log.index_connection() as connection:
        rows = connection.execute(sql.select(ranked).where(ranked.c.latest == 1)).all()
    if newest is None:
        newest = newest_ids(instance, asset)
    of_table = max(newest.values(), default=0)
    found: dict[str | None, dict[str, Standing]] = {}
    for one in sorted(rows, key=lambda one: checks.index(one.check_name)):
        since = of_table if one.partition is None else newest.get(one.partition, 0)
        # without a range, a check of ranges is the summary of a run that checked them all
        summary = one.partition is None and one.check_name not in WHOLE_TABLE_CHECKS
        if one.about >= since and not summary and not says_source_is_newer(one.failure):
            passed = one.execution_status == PASSED.value
            found.setdefault(one.partition, {})[one.check_name] = Standing(one.id, passed)
    return found


def _sql_log(instance: dg.DagsterInstance) -> SqlEventLogStorage:
    log = instance.event_log_storage
    if not isinstance(log, SqlEventLogStorage):
        raise InputError(
            "Dagster's event log should be kept in SQLite, PostgreSQL or MySQL, not in a "
            f"{type(log).__name__}"
        )
    return log


def records(
    instance: dg.DagsterInstance, asset: dg.AssetKey, ranges: Iterable[str]
) -> dict[str, RangeRecord]:
    """The newest record of each range that has one, be it committed or an unfinished attempt.

    Raises:
        InputError: the event log is not in an SQL database.
    """
    log, wanted = _sql_log(instance), set(ranges)
    latest: dict[str, int] = {}
    for kind in (dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION):
        for name, number in log.get_latest_storage_id_by_partition(asset, kind).items():
            latest[name] = max(number, latest.get(name, number))
    chosen = sorted(latest[name] for name in wanted & latest.keys())
    found: dict[str, RangeRecord] = {}
    row = SqlEventLogStorageTable.c
    with log.index_connection() as connection:
        for start in range(0, len(chosen), 500):
            stored = sql.select(row.event).where(row.id.in_(chosen[start : start + 500]))
            for (text,) in connection.execute(stored):
                record = RangeRecord.stored(text)
                found[record.range] = record
    return found


def newest_ids(instance: dg.DagsterInstance, asset: dg.AssetKey) -> Mapping[str, int]:
    """The storage id of the newest materialization of each range that has one."""
    return instance.event_log_storage.get_latest_storage_id_by_partition(
        asset, dg.DagsterEventType.ASSET_MATERIALIZATION
    )


def newest(
    instance: dg.DagsterInstance, asset: dg.AssetKey, ranges: Iterable[str]
) -> dict[str, Materialization]:
    """The newest materialization of each range that has one: what a check now is about."""
    return {
        str(stored.partition_key): materialization_of(stored)
        for stored in _newest_stored(instance, asset, ranges)
    }


def committed_records(
    instance: dg.DagsterInstance, asset: dg.AssetKey, ranges: Iterable[str]
) -> dict[str, RangeRecord]:
    """What is recorded of the newest commit of each range that has one, or of a later skip."""
    found = (
        RangeRecord.read(stored.event_log_entry)
        for stored in _newest_stored(instance, asset, ranges)
    )
    return {record.range: record for record in found}


def _newest_stored(
    instance: dg.DagsterInstance, asset: dg.AssetKey, ranges: Iterable[str]
) -> Iterator[dg.EventLogRecord]:
    ids = newest_ids(instance, asset)
    chosen = sorted(ids[name] for name in set(ranges) & set(ids))
    for start in range(0, len(chosen), 500):
        part = chosen[start : start + 500]
        wanted = dg.AssetRecordsFilter(asset_key=asset, storage_ids=part)
        yield from instance.fetch_materializations(wanted, limit=len(part)).records


def materialization_of(stored: dg.EventLogRecord) -> Materialization:
    """A materialization, as a check's evaluation names it."""
    return Materialization(
        storage_id=stored.storage_id, run_id=stored.run_id, timestamp=stored.timestamp
    )


def latest_materialization(
    instance: dg.DagsterInstance, asset: dg.AssetKey, range_name: str | None = None
) -> Materialization | None:
    """What a check of one range, or of the whole asset, is about."""
    wanted = dg.AssetRecordsFilter(
        asset_key=asset, asset_partitions=[range_name] if range_name else None
    )
    found = instance.fetch_materializations(wanted, limit=1).records
    return materialization_of(found[0]) if found else None


def committed_schema(instance: dg.DagsterInstance, asset: dg.AssetKey) -> dg.TableSchema | None:
    """The columns that the newest committed range of a hop was written with."""
    for limit in (1, 20):  # a range that was found unchanged is recorded without its columns
        for stored in instance.fetch_materializations(asset, limit=limit).records:
            event = stored.asset_materialization
            value = event.metadata.get(COLUMN_SCHEMA) if event else None
            if isinstance(value, dg.TableSchemaMetadataValue):
                return value.schema
    return None


def evaluations(
    instance: dg.DagsterInstance, asset: dg.AssetKey, checks: Sequence[str]
) -> dict[str | None, dict[str, StoredCheck]]:
    """The `standing` verdicts with all that was recorded of them."""
    return stored_checks(instance, asset, standing(instance, asset, checks))


def stored_checks(
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    found: Mapping[str | None, Mapping[str, Standing]],
) -> dict[str | None, dict[str, StoredCheck]]:
    """What was recorded of verdicts that `standing` has found."""
    stored = _stored(instance, asset, [one.id for of in found.values() for one in of.values()])
    return {
        name: {check: stored[one.id] for check, one in verdicts.items()}
        for name, verdicts in found.items()
    }


def _stored(
    instance: dg.DagsterInstance, asset: dg.AssetKey, ids: Sequence[int]
) -> dict[int, StoredCheck]:
    """Rows of Dagster's table of checks, by id."""
    log, row = _sql_log(instance), AssetCheckExecutionsTable.c
    found: dict[int, StoredCheck] = {}
    with log.index_connection() as connection:
        for start in range(0, len(ids), 500):
            wanted = sql.select(AssetCheckExecutionsTable).where(
                row.id.in_(ids[start : start + 500])
            )
            for one in connection.execute(wanted).mappings():
                key = dg.AssetCheckKey(asset, one["check_name"])
                found[one["id"]] = AssetCheckExecutionRecord.from_db_row(one, key=key)
    return found


def verdicts(
    instance: dg.DagsterInstance, asset: dg.AssetKey, checks: Sequence[str]
) -> dict[str, dict[str, bool]]:
    """Whether each check of each range passed, as far as there is a `standing` verdict."""
    return {
        name: {check: one.passed for check, one in found.items()}
        for name, found in standing(instance, asset, checks).items()
        if name is not None
    }
