"""Reads the records of key ranges in Dagster's event log, the only state there is.

`assets.log` is all of the ledger: `writer` writes what is read here, `records` and `check_records`
are what it says, and `history` tells of runs. Nothing else in the project knows which events mean
what, or uses what Dagster keeps to itself:

- A materialization with a data version says that the range is committed: it is visible in the
  target and its blocking checks were green. Its data version is the range's fingerprint.
- A failed check about the newest materialization says that the range is damaged; one about an older
  materialization says nothing any more.
- Observations tell how far an attempt came; they never count as committed.

A log is asked by SQL that all of Dagster's storages take: that of an instance by the storage's own
connection, and the files of a quiet home (`sqlite_home`) without importing Dagster.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tableferry.assets.log.asking import (
    PAGE,
    Asset,
    Log,
    events,
    key_of,
    pages,
    parameters,
    sql_log,
)
from tableferry.assets.log.records import (
    COLUMN_SCHEMA,
    DATA_VERSION,
    DataVersion,
    RangeRecord,
    State,
    says_source_is_newer,
)
from tableferry.checks.verdict import CHECK_NAMES
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS

if TYPE_CHECKING:
    import dagster as dg
    from dagster._core.definitions.asset_checks.asset_check_evaluation import (
        AssetCheckEvaluationTargetMaterializationData,
    )
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

Materialization: TypeAlias = "AssetCheckEvaluationTargetMaterializationData"
"""The materialization that a check's verdict is about."""
StoredCheck: TypeAlias = "AssetCheckExecutionRecord"
"""A verdict with all that was recorded of it."""

_MATERIALIZATION, _OBSERVATION = "ASSET_MATERIALIZATION", "ASSET_OBSERVATION"
MOST_MATERIALIZATIONS_READ = 20_000


@dataclass(frozen=True)
class Committed:
    """The latest materialization of a range, as far as planning needs it."""

    data_version: DataVersion
    storage_id: int
    failed: tuple[str, ...] = ()
    """The checks that failed since."""
    unchecked: bool = False
    """A declared check has no verdict: its run died before, or the check was declared since."""


@dataclass(frozen=True)
class Standing:
    """A verdict that counts."""

    id: int
    """Of its row in Dagster's table of checks."""
    passed: bool


@dataclass(frozen=True)
class WrittenColumn:
    """A column that a range was written with."""

    name: str
    type: str
    description: str | None
    nullable: bool


def partitions(log: Log, name: str) -> list[str]:
    """The keys of dynamic partitions, in their order."""
    found = events(
        log,
        "SELECT p.partition FROM dynamic_partitions p WHERE p.partitions_def_name = :name "
        "ORDER BY p.id",
        name=name,
    )
    return [key for (key,) in found]


def committed(
    log: Log,
    asset: Asset,
    checks: Sequence[str],
    *,
    declared: Sequence[str] = (CHECK_NAMES["count"],),
) -> dict[str, Committed]:
    """The committed ranges of one hop, by partition key.

    The number of queries does not depend on the number of ranges.

    Args:
        log: the event log.
        asset: the hop's.
        checks: whose failure makes a range suspect.
        declared: checks that every range must have a verdict of.
    """
    ids = newest_ids(log, asset)
    standing_checks = sorted({*checks, *declared}) if checks else ()
    verdicts_of = standing(log, asset, standing_checks, ids)
    versions = events(
        log,
        "SELECT n.range_name, t.value FROM asset_event_tags t JOIN ("
        " SELECT e.partition AS range_name, max(e.id) AS id FROM event_logs e"
        " WHERE e.asset_key = :asset AND e.dagster_event_type = :kind"
        " AND e.partition IS NOT NULL GROUP BY e.partition"
        ") n ON t.event_id = n.id WHERE t.key = :tag",
        asset=key_of(asset),
        kind=_MATERIALIZATION,
        tag=DATA_VERSION,
    )
    found = {}
    for name, version in versions:
        if name in ids:
            passed = {check: one.passed for check, one in verdicts_of.get(name, {}).items()}
            found[name] = Committed(
                DataVersion.parse(version),
                ids[name],
                failed=tuple(check for check in checks if not passed.get(check, True)),
                unchecked=any(check not in passed for check in declared),
            )
    return found


def standing(
    log: Log,
    asset: Asset,
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
    verdict. A range that was never committed has no materialization that its checks could be about.

    Args:
        log: the event log.
        asset: the hop's.
        checks: names.
        newest: storage ids of the newest materializations by range, where the caller has them.
        only: look at this range alone.

    Returns:
        By range and check, in the order of `checks`; verdicts about the whole table under None.
    """
    if not checks:
        return {}
    marks, names = parameters("check", checks)
    rows = events(
        log,
        "SELECT r.id, r.check_name, r.range_name, r.execution_status, r.about, r.failure FROM ("
        " SELECT c.id, c.check_name, c.partition AS range_name, c.execution_status,"
        " CASE WHEN c.execution_status <> 'SUCCEEDED' THEN c.evaluation_event END AS failure,"
        " coalesce(c.materialization_event_storage_id, c.evaluation_event_storage_id) AS about,"
        " row_number() OVER (PARTITION BY c.check_name, c.partition ORDER BY"
        " coalesce(c.materialization_event_storage_id, c.evaluation_event_storage_id) DESC,"
        " c.evaluation_event_storage_id DESC) AS place"
        " FROM asset_check_executions c"
        f" WHERE c.asset_key = :asset AND c.check_name IN ({marks})"
        " AND c.execution_status IN ('SUCCEEDED', 'FAILED')"
        " AND c.evaluation_event_storage_id IS NOT NULL"
        + (" AND c.partition = :only" if only is not None else "")
        + ") r WHERE r.place = 1",
        asset=key_of(asset),
        **names,
        **({"only": only} if only is not None else {}),
    )
    if newest is None:
        newest = newest_ids(log, asset)
    of_table = max(newest.values(), default=0)
    found: dict[str | None, dict[str, Standing]] = {}
    for number, check, name, status, about, failure in sorted(
        rows, key=lambda row: checks.index(row[1])
    ):
        since = of_table if name is None else newest.get(name, 0)
        # without a range, a check of ranges is the summary of a run that checked them all
        summary = name is None and check not in WHOLE_TABLE_CHECKS
        if about >= since and not summary and not says_source_is_newer(failure):
            found.setdefault(name, {})[check] = Standing(number, status == "SUCCEEDED")
    return found


def verdicts(log: Log, asset: Asset, checks: Sequence[str]) -> dict[str, dict[str, bool]]:
    """Whether each check of each range passed, as far as there is a `standing` verdict."""
    return {
        name: {check: one.passed for check, one in found.items()}
        for name, found in standing(log, asset, checks).items()
        if name is not None
    }


def records(log: Log, asset: Asset, ranges: Iterable[str]) -> dict[str, RangeRecord]:
    """The newest record of each range that has one, be it committed or an unfinished attempt."""
    latest: dict[str, int] = {}
    for name, number in _newest(log, asset, _MATERIALIZATION, _OBSERVATION):
        latest[name] = max(number, latest.get(name, number))
    return _records(log, latest, ranges)


def committed_records(log: Log, asset: Asset, ranges: Iterable[str]) -> dict[str, RangeRecord]:
    """What is recorded of the newest commit of each range that has one, or of a later skip."""
    return _records(log, newest_ids(log, asset), ranges)


def moves(log: Log, asset: Asset, ranges: Collection[str]) -> dict[str, RangeRecord]:
    """The newest record of each range by a run that moved it: skips repeat an older one's rows."""
    found: dict[str, RangeRecord] = {}
    for _, text in _newest_first(log, asset, MOST_MATERIALIZATIONS_READ):
        if found.keys() >= set(ranges):
            break
        record = RangeRecord.stored(text)
        if record.state is State.COMMITTED and record.range in ranges:
            found.setdefault(record.range, record)
    return found


def newest_ids(log: Log, asset: Asset) -> dict[str, int]:
    """The storage id of the newest materialization of each range that has one."""
    return dict(_newest(log, asset, _MATERIALIZATION))


def newest_attempts(log: Log, asset: Asset) -> dict[str, int]:
    """The storage id of the newest observation of each range that has one."""
    return dict(_newest(log, asset, _OBSERVATION))


def newest(log: Log, asset: Asset, ranges: Iterable[str]) -> dict[str, Materialization]:
    """The newest materialization of each range that has one: what a check now is about."""
    ids = newest_ids(log, asset)
    return {
        json.loads(text)["dagster_event"]["event_specific_data"]["materialization"][
            "partition"
        ]: _materialization(number, text)
        for number, text in _texts(log, [ids[name] for name in set(ranges) & set(ids)])
    }


def latest_materialization(
    log: Log, asset: Asset, range_name: str | None = None
) -> Materialization | None:
    """What a check of one range, or of the whole asset, is about."""
    for number, text in _newest_first(log, asset, 1, range_name):
        return _materialization(number, text)
    return None


def latest_record(log: Log, asset: Asset) -> RangeRecord | None:
    """What is recorded of the commit, or skip, that came last."""
    for _, text in _newest_first(log, asset, 1):
        return RangeRecord.stored(text)
    return None


def committed_schema(log: Log, asset: Asset) -> Sequence[WrittenColumn] | None:
    """The columns that the newest committed range of a hop was written with."""
    # a range that was found unchanged is recorded without its columns
    for _, text in _newest_first(log, asset, 20):
        data = json.loads(text)["dagster_event"]["event_specific_data"]
        for entry in data["materialization"]["metadata_entries"]:
            if entry["label"] == COLUMN_SCHEMA and "schema" in entry["entry_data"]:
                columns = entry["entry_data"]["schema"]["columns"]
                return [
                    WrittenColumn(
                        column["name"],
                        column["type"],
                        column["description"],
                        column["constraints"]["nullable"],
                    )
                    for column in columns
                ]
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
    """What was recorded of verdicts that `standing` has found, with the objects of Dagster."""
    import dagster as dg
    import sqlalchemy as sql
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord
    from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable

    stored: dict[int, StoredCheck] = {}
    ids = [one.id for of_range in found.values() for one in of_range.values()]
    with sql_log(instance).index_connection() as connection:
        for part in pages(ids):
            column = AssetCheckExecutionsTable.c.id
            rows = connection.execute(
                sql.select(AssetCheckExecutionsTable).where(column.in_(part))
            ).mappings()
            for row in rows:
                key = dg.AssetCheckKey(asset, row["check_name"])
                stored[row["id"]] = AssetCheckExecutionRecord.from_db_row(row, key=key)
    return {
        name: {check: stored[one.id] for check, one in of_range.items()}
        for name, of_range in found.items()
    }


def _wiped(log: Log, asset: Asset) -> tuple[str, dict[str, object]]:
    """A condition that leaves out the events `e` from before the asset was wiped."""
    rows = events(
        log,
        "SELECT k.wipe_timestamp FROM asset_keys k"
        " WHERE k.asset_key = :asset AND k.wipe_timestamp IS NOT NULL",
        asset=key_of(asset),
    )
    return (" AND e.timestamp > :wiped", {"wiped": rows[0][0]}) if rows else ("", {})


def _newest(log: Log, asset: Asset, *kinds: str) -> list[tuple[str, int]]:
    """Range and storage id of its newest event, of each kind."""
    wiped, values = _wiped(log, asset)
    marks, listed = parameters("kind", kinds)
    found = events(
        log,
        "SELECT e.partition, max(e.id) FROM event_logs e"
        " WHERE e.asset_key = :asset AND e.partition IS NOT NULL"
        f" AND e.dagster_event_type IN ({marks}){wiped}"
        " GROUP BY e.partition, e.dagster_event_type",
        asset=key_of(asset),
        **listed,
        **values,
    )
    return [(name, number) for name, number in found]


def _newest_first(
    log: Log, asset: Asset, most: int, range_name: str | None = None
) -> Iterator[tuple[int, str]]:
    """Storage ids and texts of the materializations of an asset, or of a range of it."""
    wiped, values = _wiped(log, asset)
    before: int | None = None
    for start in range(0, most, PAGE):
        limit = min(PAGE, most - start)
        found = events(
            log,
            "SELECT e.id, e.event FROM event_logs e"
            " WHERE e.asset_key = :asset AND e.dagster_event_type = :kind"
            + (" AND e.partition = :range_name" if range_name is not None else "")
            + (" AND e.id < :before" if before is not None else "")
            + f"{wiped} ORDER BY e.id DESC LIMIT {limit}",
            asset=key_of(asset),
            kind=_MATERIALIZATION,
            **({"range_name": range_name} if range_name is not None else {}),
            **({"before": before} if before is not None else {}),
            **values,
        )
        yield from ((number, text) for number, text in found)
        if len(found) < limit:
            return
        before = found[-1][0]


def _texts(log: Log, ids: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Storage ids and texts of events, in their order."""
    for part in pages(ids):
        marks, listed = parameters("id", part)
        wanted = f"WHERE e.id IN ({marks}) ORDER BY e.id"
        found = events(log, f"SELECT e.id, e.event FROM event_logs e {wanted}", **listed)
        yield from ((number, text) for number, text in found)


def _records(log: Log, ids: Mapping[str, int], ranges: Iterable[str]) -> dict[str, RangeRecord]:
    wanted = [ids[name] for name in ids.keys() & set(ranges)]
    found = (RangeRecord.stored(text) for _, text in _texts(log, wanted))
    return {record.range: record for record in found}


def _materialization(number: int, text: str) -> Materialization:
    """A materialization, as a check's evaluation names it."""
    from dagster._core.definitions.asset_checks.asset_check_evaluation import (
        AssetCheckEvaluationTargetMaterializationData,
    )

    event = json.loads(text)
    return AssetCheckEvaluationTargetMaterializationData(
        storage_id=number, run_id=event["run_id"], timestamp=event["timestamp"]
    )
