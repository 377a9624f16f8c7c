"""What assets downstream of a target have read of its ranges, as their materializations record it.

A mark stands for the rows of a range: it is another one after each move, once they have left with
the file that they were of, and after each change of the range's data version, or attempt after its
last move that did not fail, which is all that the log says of one whose run died before it recorded
it. Marks are kept by range, and not as one position in the log: an event with a smaller id may
become visible later, when the transaction of another run ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import dagster as dg

from tableferry.assets.log.ledger import committed, move_ids, newest_attempts
from tableferry.assets.log.ranges import gone_ids, read_records
from tableferry.assets.log.records import GONE, digest
from tableferry.assets.log.states import State
from tableferry.assets.log.written_columns import WrittenColumn, written_columns

READ = "tableferry/read"
"""Metadata of a downstream asset's materialization: the marks of the ranges that it has read, by
asset key of the target."""

Marks: TypeAlias = Mapping[str, str]
"""The mark of each range."""


def record_gone(instance: dg.DagsterInstance, target: dg.AssetKey, ranges: Sequence[str]) -> None:
    """Record that rows of these ranges have left a target, and no others take their place."""
    observation = dg.AssetObservation(target, metadata={GONE: json.dumps([*ranges])})
    instance.report_runless_asset_event(observation)


def marks(instance: dg.DagsterInstance, target: dg.AssetKey) -> Marks:
    """Return the marks of all ranges of a target, also of those that are gone or replaced."""
    moved, gone = move_ids(instance, target), gone_ids(instance, target)
    attempts = newest_attempts(instance, target)
    later = {name: number for name, number in attempts.items() if number > moved.get(name, 0)}
    records = read_records(instance, later.values())
    marked = {}
    for name, newest in committed(instance, target, ()).items():
        left = [gone[name]] if name in gone else []
        # an attempt of a run that died may have published what it did not record
        number = later.get(name)
        ended = number is None or records[number].state is State.FAILED
        died = [] if ended else [number]
        marked[name] = digest(moved.get(name), str(newest.data_version), *left, *died)
    return marked


def key_column(instance: dg.DagsterInstance, target: dg.AssetKey) -> WrittenColumn | None:
    """Return the column that the ranges of a target are cut by; None if no transfer writes it."""
    written = next(written_columns(instance, target), None)
    return next((column for column in written.columns if column.key), None) if written else None


def marks_read(instance: dg.DagsterInstance, asset: dg.AssetKey) -> Mapping[str, Marks]:
    """Return the marks of the ranges that an asset's newest materialization has read, by target."""
    event = instance.get_latest_materialization_event(asset)
    materialization = event.asset_materialization if event else None
    entry = materialization.metadata.get(READ) if materialization else None
    return entry.value if isinstance(entry, dg.JsonMetadataValue) else {}  # type: ignore[return-value]


def record_read(
    context: dg.AssetExecutionContext, asset: dg.AssetKey, read: Mapping[str, Marks]
) -> None:
    """Add the marks to the metadata of an asset that an op is about to materialize."""
    context.add_asset_metadata({READ: dg.MetadataValue.json(dict(read))}, asset_key=asset)
