"""What the event log says of key ranges, of one target or of a thousand; Dagster is not imported.

The number of queries grows with hundreds of tables and of ranges, not with each of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from tableferry.assets.asset_keys import stored_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.check_records import CheckRecord, read_checks, standing_verdicts
from tableferry.assets.log.queries import Asset, Log, key_of, parameters, select_events, select_in
from tableferry.assets.log.records import GONE, RangeRecord
from tableferry.assets.log.states import State
from tableferry.checks.expectations import ALL_CHECKS
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.resources.keys.cover import lacking, names_in_key_order, strangers
from tableferry.resources.tables import TableRef

MATERIALIZATION, OBSERVATION = "ASSET_MATERIALIZATION", "ASSET_OBSERVATION"

NOT_WIPED = (
    " AND NOT EXISTS (SELECT 1 FROM asset_keys k"
    " WHERE k.asset_key = e.asset_key AND k.wipe_timestamp >= e.timestamp)"
)
"""The condition that an event `e` is not from before its asset was wiped."""

_WIPED = (
    "SELECT k.asset_key FROM asset_keys k"
    " WHERE k.asset_key IN ({values}) AND k.wipe_timestamp IS NOT NULL"
)
_NEWEST = (
    "SELECT e.asset_key, e.dagster_event_type, e.partition, max(e.id) FROM event_logs e"
    " WHERE e.asset_key IN ({{values}}) AND e.dagster_event_type IN ({types})"
    " AND e.partition IS NOT NULL{more}"
    " GROUP BY e.asset_key, e.dagster_event_type, e.partition"
)
_EVENTS = "SELECT e.id, e.event FROM event_logs e WHERE e.id IN ({values}) ORDER BY e.id"
_PARTITIONS = (
    "SELECT p.partitions_def_name, p.partition FROM dynamic_partitions p"
    " WHERE p.partitions_def_name IN ({values}) ORDER BY p.id"
)


@dataclass(frozen=True)
class RangeStatus:
    """What the event log says of a range in one target."""

    record: RangeRecord
    """The newest commit or unfinished attempt; its state is MISSING if there is none."""
    checks: tuple[CheckRecord, ...] = ()
    """The standing verdicts about its rows."""
    committed: RangeRecord | None = None
    """The newest commit, which an unfinished attempt may have come after."""


@dataclass(frozen=True)
class TargetStatus:
    """What the event log says of one target."""

    ranges: Mapping[str, RangeStatus] = field(default_factory=dict)
    """The known ranges of the transfer, in key order."""
    checks: tuple[CheckRecord, ...] = ()
    """The standing verdicts about the whole table."""
    lacking: tuple[str, ...] = ()
    """The ranges that lack among the known ones, by their bounds and by what has moved."""
    strangers: tuple[str, ...] = ()
    """Those of the known ones that somebody else has added."""


def read_status(
    log: Log,
    transfers: Collection[Transfer],
    *,
    only: Collection[str] | None = None,
    evidence: bool = False,
) -> dict[TableRef, TargetStatus]:
    """Read the newest records and the standing verdicts of all ranges of all targets.

    Args:
        log: the event log.
        transfers: the transfers of these targets.
        only: the ranges to read; the others are left out.
        evidence: also keep the figures and the differing rows of each verdict.
    """
    known = ranges_by_name(log, [transfer.partitions_name for transfer in transfers])
    targets: dict[str, None] = {}
    names: dict[str, dict[str, None]] = {}
    for transfer in transfers:
        ranges = known[transfer.partitions_name]
        ranges = names_in_key_order(ranges, of_files=_of_files(transfer))
        for hop in transfer.hops:
            key = stored_key(hop.to)
            targets[key] = None
            names[key] = dict.fromkeys(name for name in ranges if only is None or name in only)
    attempts: dict[str, dict[str, int]] = {key: {} for key in targets}
    commits: dict[str, dict[str, int]] = {key: {} for key in targets}
    for key, kind, name, number in newest_events(log, targets, MATERIALIZATION, OBSERVATION):
        if name in names[key]:
            attempts[key][name] = max(number, attempts[key].get(name, 0))
        if kind == MATERIALIZATION:
            commits[key][name] = number
    needed = {
        number
        for events in (attempts, commits)
        for key, by_name in events.items()
        for name, number in by_name.items()
        if name in names[key]
    }
    records = read_records(log, needed)
    standing = standing_verdicts(log, commits, (*ALL_CHECKS, *WHOLE_TABLE_CHECKS), newer=True)
    ids = {
        (key, name): [verdict.id for verdict in verdicts.values()]
        for key, by_range in standing.items()
        for name, verdicts in by_range.items()
        if name is None or name in names[key]
    }
    checks = read_checks(log, chain.from_iterable(ids.values()), evidence=evidence)

    def status(key: str, name: str) -> RangeStatus:
        number, commit = attempts[key].get(name), commits[key].get(name)
        record = RangeRecord(name, State.MISSING) if number is None else records[number]
        return RangeStatus(record, checks_of(key, name), records[commit] if commit else None)

    def checks_of(key: str, name: str | None) -> tuple[CheckRecord, ...]:
        return tuple(checks[number] for number in ids.get((key, name), ()))

    def target_status(transfer: Transfer, target: TableRef) -> TargetStatus:
        key, ranges = stored_key(target), known[transfer.partitions_name]
        return TargetStatus(
            {name: status(key, name) for name in names[key]},
            checks_of(key, None),
            lacking=tuple(lacking_names(log, transfer, target, ranges, commits[key])),
            strangers=tuple(strangers(ranges, of_files=_of_files(transfer))),
        )

    return {
        hop.to: target_status(transfer, hop.to) for transfer in transfers for hop in transfer.hops
    }


def _of_files(transfer: Transfer) -> bool:
    return transfer.source.system.by_path is not None


def lacking_names(
    log: Log, transfer: Transfer, target: TableRef, known: Sequence[str], moved: Mapping[str, int]
) -> list[str]:
    """Name the ranges that lack among the known ones of a transfer.

    Args:
        log: the event log.
        transfer: the transfer.
        target: one of its targets.
        known: the names of its ranges.
        moved: the storage ids of the commits of its ranges there, also of earlier ones, by name.
    """
    # the rows of files may have left with these
    leave = _of_files(transfer) and transfer.on_missing != "keep"
    newest_first = [] if leave else sorted(moved, key=lambda name: -moved[name])
    names = lacking(known, newest_first, of_files=_of_files(transfer))
    gone = gone_ids(log, target) if any(name in moved for name in names) else {}
    return [name for name in names if gone.get(name, 0) < moved.get(name, 1)]


def ranges_by_name(log: Log, names: Iterable[str]) -> dict[str, list[str]]:
    """Read the keys of dynamic partitions, in their order, by the name of their definition."""
    ranges: dict[str, list[str]] = defaultdict(list)
    for name, key in select_in(select_events, log, _PARTITIONS, names):
        ranges[name].append(key)
    return ranges


def newest_events(
    log: Log, keys: Collection[str], *types: str, but: str | None = None
) -> Iterator[tuple[str, str, str, int]]:
    """Return asset key, type, range and storage id of each range's newest event of each type.

    With `but`, of the events whose text does not contain it.
    """
    marks, named = parameters("type", types)
    more = since_wiped(log, keys)
    if but is not None:
        more, named = f"{more} AND e.event NOT LIKE :but", {**named, "but": f"%{but}%"}
    statement = _NEWEST.format(types=marks, more=more)
    return select_in(select_events, log, statement, keys, **named)


def since_wiped(log: Log, keys: Iterable[str]) -> str:
    """Return the condition that excludes events `e` from before their asset was wiped.

    It is empty if none of these assets was: PostgreSQL then need not visit the rows of the events.
    """
    return NOT_WIPED if any(True for _ in select_in(select_events, log, _WIPED, keys)) else ""


def read_events(log: Log, ids: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Return storage ids and texts of events, in order, a page at a time in memory."""
    return select_in(select_events, log, _EVENTS, ids)


def read_records(log: Log, ids: Iterable[int]) -> dict[int, RangeRecord]:
    """Read the records of events by their storage ids."""
    return {number: RangeRecord.stored(text) for number, text in read_events(log, ids)}


def gone_ids(log: Log, asset: Asset) -> dict[str, int]:
    """Return the storage id of the last event by which the rows of each range have left a target.

    Only ranges of files leave, with their file; others are replaced by ranges that move.
    """
    rows = select_events(
        log,
        "SELECT e.id, e.event FROM event_logs e WHERE e.asset_key = :asset"
        " AND e.dagster_event_type = :type AND e.partition IS NULL AND e.event LIKE :text"
        f"{since_wiped(log, [key_of(asset)])} ORDER BY e.id",
        asset=key_of(asset),
        type=OBSERVATION,
        text=f"%{GONE}%",
    )
    gone: dict[str, int] = {}
    for number, text in rows:
        event = json.loads(text)["dagster_event"]["event_specific_data"]["asset_observation"]
        data = {entry["label"]: entry["entry_data"] for entry in event["metadata_entries"]}
        gone |= dict.fromkeys(json.loads(data[GONE]["text"]), number)
    return gone
