"""Reads the records of key ranges from Dagster's event log, the only state there is.

Nothing outside of `assets.log` knows what the events mean:

- A materialization with a data version means that the range is committed: it is visible in the
  target, and its blocking checks passed.
- A failed check about the newest materialization means that the range is damaged; one about an
  older materialization means nothing.
- Observations record how far an attempt came; they never count as committed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tableferry.assets.log.check_records import (
    StandingVerdicts,
    read_checks,
    read_evaluations,
    standing_verdicts,
)
from tableferry.assets.log.declared import has_other_source
from tableferry.assets.log.queries import (
    PAGE,
    Asset,
    Log,
    key_of,
    select_events,
    select_in,
)
from tableferry.assets.log.ranges import (
    MATERIALIZATION,
    OBSERVATION,
    newest_events,
    read_events,
    read_records,
    since_wiped,
)
from tableferry.assets.log.records import (
    DATA_VERSION,
    STATE,
    DataVersion,
    RangeRecord,
    digest,
)
from tableferry.assets.log.states import State
from tableferry.checks.levels import CHECK_NAMES
from tableferry.resources.contract.fingerprint import SourceFingerprint

if TYPE_CHECKING:
    import dagster as dg

    from tableferry.assets.log.dagster_internals import (
        AssetCheckEvaluationTargetMaterializationData,
    )

Materialization: TypeAlias = "AssetCheckEvaluationTargetMaterializationData"
"""The materialization that a check's verdict is about."""

_SKIPPED = f'"{STATE}": "{State.SKIPPED_UNCHANGED}"'
"""What the text of a skip has, and no value in it can: Dagster's table of tags lacks states."""


@dataclass(frozen=True)
class Committed:
    """What planning needs of the newest materialization of a range."""

    data_version: DataVersion
    storage_id: int
    failed: tuple[str, ...] = ()
    """The checks whose standing verdict is a failure."""
    unchecked: bool = False
    """A declared check has no verdict: the run died early, or the check was declared later."""
    written_by: str | None = None
    taken_from: str | None = None
    declared: str | None = None
    """As in `RangeRecord`, if they were read."""


@dataclass(frozen=True)
class StoredCheck:
    """A verdict with its metadata."""

    run_id: str
    timestamp: float
    evaluation: dg.AssetCheckEvaluation

    @classmethod
    def read(cls, text: str) -> StoredCheck:
        """Read an evaluation as Dagster stores it."""
        import dagster as dg

        from tableferry.assets.log.dagster_internals import deserialize_value

        event = deserialize_value(text, dg.EventLogEntry)
        evaluation = event.get_dagster_event().asset_check_evaluation_data
        return cls(event.run_id, event.timestamp, evaluation)


def partitions(log: Log, name: str) -> list[str]:
    """Return the keys of dynamic partitions, in order."""
    query = "SELECT p.partition FROM dynamic_partitions p WHERE p.partitions_def_name = :name"
    return [key for (key,) in select_events(log, f"{query} ORDER BY p.id", name=name)]


def committed(
    log: Log,
    asset: Asset,
    checks: Sequence[str],
    *,
    declared: Sequence[str] = (CHECK_NAMES["count"],),
    asked: Mapping[str, str] | None = None,
    origins: bool = False,
) -> dict[str, Committed]:
    """Return the committed ranges of a hop, by partition key.

    The number of queries does not depend on the number of ranges.

    Args:
        log: the event log.
        asset: the hop's asset.
        checks: the checks whose failure makes a range suspect; none: verdicts are not read.
        declared: the checks of which every range needs a verdict.
        asked: what checks are asked, see `declared.asked_of`: a verdict about else is none.
        origins: also read which runs have written the rows, those that they were taken from, and
            what was declared.
    """
    ids = newest_ids(log, asset)
    stand = standing(log, asset, sorted({*checks, *declared}) if checks else (), ids)
    outcomes, outdated = _passed(stand), _asked_otherwise(log, stand, asked or {})
    # of the other tags, Dagster keeps no table
    origin_of = _records(log, ids, ids) if origins else {}
    statement = (
        "SELECT t.event_id, t.value FROM asset_event_tags t"
        " WHERE t.event_id IN ({values}) AND t.key = :tag"
    )
    names = {number: name for name, number in ids.items()}
    ranges = {}
    for number, version in select_in(select_events, log, statement, names, tag=DATA_VERSION):
        name = names[number]
        passed, origin = outcomes.get(name, {}), origin_of.get(name)
        ranges[name] = Committed(
            DataVersion.parse(version),
            number,
            failed=tuple(check for check in checks if not passed.get(check, True)),
            unchecked=name in outdated or any(check not in passed for check in declared),
            written_by=origin.written_by if origin else None,
            taken_from=origin.taken_from if origin else None,
            declared=origin.declared if origin else None,
        )
    return ranges


def _asked_otherwise(
    log: Log, verdicts: StandingVerdicts, asked: Mapping[str, str]
) -> set[str | None]:
    """Return the ranges with a verdict of a check that was asked something else then."""
    ranges = {
        by_check[check].id: name
        for name, by_check in verdicts.items()
        for check in asked.keys() & by_check.keys()
    }
    return {
        ranges[number]
        for number, record in read_checks(log, ranges).items()
        if record.asked not in (None, asked[record.name])
    }


def standing(
    log: Log,
    asset: Asset,
    checks: Sequence[str],
    newest: Mapping[str, int] | None = None,
    *,
    only: str | None = None,
) -> StandingVerdicts:
    """Return the standing verdict of each check, see `standing_verdicts`.

    Args:
        log: the event log.
        asset: the hop's asset.
        checks: names of checks.
        newest: storage ids of the ranges' newest materializations, if the caller has them.
        only: the only range to return.
    """
    if newest is None:
        newest = newest_ids(log, asset) if checks else {}
    key = key_of(asset)
    return standing_verdicts(log, {key: newest}, checks, only=only).get(key, {})


def verdicts(log: Log, asset: Asset, checks: Sequence[str]) -> dict[str, dict[str, bool]]:
    """Return whether the standing verdict of each check passed, by range."""
    return _passed(standing(log, asset, checks))


def _passed(verdicts: StandingVerdicts) -> dict[str, dict[str, bool]]:
    return {
        name: {check: verdict.passed for check, verdict in by_check.items()}
        for name, by_check in verdicts.items()
        if name is not None
    }


def records(log: Log, asset: Asset, ranges: Iterable[str]) -> dict[str, RangeRecord]:
    """Return the newest record of each range that has one: a commit, or an unfinished attempt."""
    latest: dict[str, int] = {}
    for _, _, name, number in newest_events(log, [key_of(asset)], MATERIALIZATION, OBSERVATION):
        latest[name] = max(number, latest.get(name, number))
    return _records(log, latest, ranges)


def committed_records(log: Log, asset: Asset, ranges: Iterable[str]) -> dict[str, RangeRecord]:
    """Return the record of each range's newest commit, or of a later skip."""
    return _records(log, newest_ids(log, asset), ranges)


def recorded_fingerprints(
    log: Log, asset: Asset, ranges: Iterable[str], declared: str
) -> dict[str, SourceFingerprint]:
    """Return the source fingerprints that the newest commits, or later skips, recorded by range.

    Only those with row versions are returned, and only if the data version was made of them, of
    the source that is `declared` now.
    """
    fingerprints = {}
    for name, record in committed_records(log, asset, ranges).items():
        if not (record.row_versions and record.fingerprint and record.data_version):
            continue
        if has_other_source(record.declared, declared):
            continue
        source = DataVersion.parse(record.data_version).source
        definition, _, hashed = source.rpartition("-")
        if hashed == digest(record.fingerprint):
            fingerprints[name] = SourceFingerprint(
                record.rows or 0,
                record.fingerprint,
                definition,
                row_versions=record.row_versions,
                segments=record.segments,
            )
    return fingerprints


def moves(log: Log, asset: Asset, ranges: Collection[str]) -> dict[str, RangeRecord]:
    """Return the newest record of each range by a run that moved or adopted it, not a skip."""
    if not ranges:
        return {}
    return _records(log, move_ids(log, asset), ranges)


def move_ids(log: Log, asset: Asset) -> dict[str, int]:
    """Return the storage id of each range's newest materialization that is not a skip."""
    return _newest(log, asset, MATERIALIZATION, but=_SKIPPED)


def newest_ids(log: Log, asset: Asset) -> dict[str, int]:
    """Return the storage id of each range's newest materialization."""
    return _newest(log, asset, MATERIALIZATION)


def newest_attempts(log: Log, asset: Asset) -> dict[str, int]:
    """Return the storage id of each range's newest observation."""
    return _newest(log, asset, OBSERVATION)


def newest(log: Log, asset: Asset, ranges: Iterable[str]) -> dict[str, Materialization]:
    """Return each range's newest materialization, which a check made now is about."""
    ids = newest_ids(log, asset)
    names = {storage_id: name for name, storage_id in ids.items()}
    texts = read_events(log, [ids[name] for name in set(ranges) & set(ids)])
    return {names[storage_id]: _materialization(storage_id, text) for storage_id, text in texts}


def latest_materialization(
    log: Log, asset: Asset, range_name: str | None = None
) -> Materialization | None:
    """Return the newest materialization of a range, or of the whole asset."""
    stored = next(newest_first(log, asset, 1, range_name), None)
    return _materialization(*stored) if stored else None


def latest_record(log: Log, asset: Asset, range_name: str | None = None) -> RangeRecord | None:
    """Return the record of the last commit or skip of an asset, or of one of its ranges."""
    stored = next(newest_first(log, asset, 1, range_name), None)
    return RangeRecord.stored(stored[1]) if stored else None


def evaluations(
    log: Log, asset: Asset, checks: Sequence[str]
) -> dict[str | None, dict[str, StoredCheck]]:
    """Return the verdicts of `standing` with their metadata."""
    return stored_checks(log, standing(log, asset, checks))


def stored_checks(log: Log, verdicts: StandingVerdicts) -> dict[str | None, dict[str, StoredCheck]]:
    """Return verdicts that `standing` has returned with their metadata, as Dagster's objects."""
    ids = (verdict.id for by_check in verdicts.values() for verdict in by_check.values())
    stored = {number: StoredCheck.read(text) for number, text in read_evaluations(log, ids)}
    return {
        name: {check: stored[verdict.id] for check, verdict in by_check.items()}
        for name, by_check in verdicts.items()
    }


def newest_first(
    log: Log, asset: Asset, most: int, range_name: str | None = None, *, saying: str | None = None
) -> Iterator[tuple[int, str]]:
    """Yield storage ids and texts of the newest materializations of an asset, or of one range.

    With `saying`, those whose text contains it.
    """
    condition, values = since_wiped(log, [key_of(asset)]), dict[str, object]()
    if saying is not None:
        condition, values = f"{condition} AND e.event LIKE :text", {"text": f"%{saying}%"}
    if range_name is not None:
        condition, values = f"{condition} AND e.partition = :range", {**values, "range": range_name}
    for start in range(0, most, PAGE):
        limit = min(PAGE, most - start)
        rows = select_events(
            log,
            "SELECT e.id, e.event FROM event_logs e WHERE e.asset_key = :asset"
            " AND e.dagster_event_type = :type"
            f"{condition}{' AND e.id < :before' if start else ''} ORDER BY e.id DESC LIMIT {limit}",
            asset=key_of(asset),
            type=MATERIALIZATION,
            **values,
        )
        yield from ((storage_id, text) for storage_id, text in rows)
        if len(rows) < limit:
            return
        values["before"] = rows[-1][0]


def _newest(log: Log, asset: Asset, kind: str, but: str | None = None) -> dict[str, int]:
    """Return the storage id of each range's newest event of a type, see `newest_events`."""
    return {
        name: number for _, _, name, number in newest_events(log, [key_of(asset)], kind, but=but)
    }


def _records(log: Log, ids: Mapping[str, int], ranges: Iterable[str]) -> dict[str, RangeRecord]:
    chosen = read_records(log, [ids[name] for name in ids.keys() & set(ranges)])
    return {record.range: record for record in chosen.values()}


def _materialization(storage_id: int, text: str) -> Materialization:
    """Return a materialization as a check's evaluation refers to it."""
    from tableferry.assets.log.dagster_internals import (
        AssetCheckEvaluationTargetMaterializationData,
    )

    event = json.loads(text)
    return AssetCheckEvaluationTargetMaterializationData(
        storage_id=storage_id, run_id=event["run_id"], timestamp=event["timestamp"]
    )
