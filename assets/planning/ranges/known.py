"""The key ranges of a transfer that Dagster has as partitions, and how runs share them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import cast

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.judging import WHO_ADDED
from tableferry.assets.log.ledger import newest_ids, partitions
from tableferry.assets.log.queries import Log
from tableferry.assets.log.ranges import lacking_names
from tableferry.assets.log.written_columns import committed_schema
from tableferry.assets.planning.resolve import Hop
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.errors import InputError, KeyChanged
from tableferry.resources.keys.cover import gaps, in_key_order, overlapping
from tableferry.resources.keys.range import NULL_NAME, KeyKind, KeyRange, parse_range


def known_ranges(transfer: Transfer, hops: Sequence[Hop], log: Log) -> tuple[KeyRange, ...]:
    """Return the ranges that Dagster knows, in key order.

    Raises:
        KeyChanged: they were divided by another key than today's.
        InputError: somebody has added a partition that is no range, or has keys of another range.
    """
    kind, digits = key_kind(hops[0].plan.key.source, transfer.source.system)
    names = partitions(log, transfer.partitions_name)
    ranges = []
    for name in names:
        if (range_ := parse_range(name, kind, digits)) is None:
            require_same_key(transfer, hops[0], log)
            raise InputError(
                f"{transfer.transfer}: Dagster's partition {name!r} is no range of {kind} keys: "
                f"{WHO_ADDED}"
            )
        ranges.append(range_)
    if both := overlapping(ranges):
        earlier, later = sorted((range_.name for range_ in both), key=names.index)
        raise InputError(
            f"{transfer.transfer}: Dagster's partition {later!r} has keys of {earlier!r}, which "
            f"was there before: {WHO_ADDED}"
        )
    return tuple(in_key_order(ranges))


def require_same_key(transfer: Transfer, first: Hop, log: Log) -> None:
    """Refuse a transfer whose rows were moved in ranges of another key than it declares now.

    Raises:
        KeyChanged: names both keys, and what to do.
    """
    kind, _ = key_kind(first.plan.key.source, transfer.source.system)
    now = first.plan.key.source.name
    written = committed_schema(log, first.asset) or ()
    before = next((column for column in written if column.key), None)
    kind_before = before.key.rpartition(".")[2] if before else kind
    if before is None or (before.source, kind_before) == (now, kind):
        return
    again = f"declare 'key: {before.source}' again, or " if before.source != now else ""
    raise KeyChanged(
        f"{transfer.transfer}: {transfer.key_place}the key is {now!r} ({kind}), and the ranges of "
        f"{first.plan.target} were divided by {before.source!r} ({kind_before}): {again}have the "
        f"targets recreated, in ranges of the new key: ferry run {transfer.transfer} --recreate",
        kind_before,
    )


def former_ranges(transfer: Transfer, kind: str, log: Log) -> tuple[KeyRange, ...]:
    """Return the ranges that Dagster knows, as those of an earlier kind of key."""
    names = partitions(log, transfer.partitions_name)
    read = (parse_range(name, cast(KeyKind, kind)) for name in names)
    return tuple(range_ for range_ in read if range_ is not None)


def without_gaps(
    transfer: Transfer, known: Sequence[KeyRange], hops: Sequence[Hop], log: Log
) -> Sequence[KeyRange]:
    """Add the ranges that lack among the known ones, cut as they were when they last moved.

    Somebody has deleted their partitions, or a process died when it had removed one to put others
    in its place. Those of files that are gone are told to stay, as others of such files.
    """
    of_files = transfer.source.system.by_path is not None
    if not (of_files or gaps(known)):
        return known
    target, names = hops[0].spec.to, [range_.name for range_ in known]
    names = lacking_names(log, transfer, target, names, newest_ids(log, target))
    kind, digits = key_kind(hops[0].plan.key.source, transfer.source.system)
    lost = (KeyRange.parse(name, kind, digits) for name in names if name != NULL_NAME)
    return in_key_order((*known, *lost))


MOST_RUNS = 4
"""Scattered ranges become one run per contiguous segment, up to this many; beyond it one run spans
them all and skips what lies between, because a run costs about a second and a skip far less."""


def split_by_rows(
    names: Sequence[str], parts: int, rows: Mapping[str, int] | None = None
) -> list[list[str]]:
    """Split ranges into consecutive parts with about as many rows each.

    No part exceeds its even share by more than the rows of one range. A range with an unknown
    number of rows counts as the average of the others, an empty one as one row. There are at most
    as many parts as ranges.
    """
    known = [rows[name] for name in names if name in rows] if rows else []
    average = sum(known) / len(known) if known else 1
    weights = [max(rows.get(name, average) if rows else 1, 1) for name in names]
    # the row at which each range begins; the last entry is the total
    starts = [0, *accumulate(weights)]
    count = min(parts, len(names))
    cuts = [0]
    for number in range(1, count):
        ideal = starts[-1] * number / count
        cut = bisect_left(starts, ideal)
        if starts[cut] - ideal > ideal - starts[cut - 1]:
            cut -= 1
        # leave at least one range for this part and for each that follows
        cuts.append(min(max(cut, cuts[-1] + 1), len(names) - (count - number)))
    return [list(names[a:b]) for a, b in zip(cuts, [*cuts[1:], len(names)], strict=True) if b > a]


def segments(
    order: Sequence[str], wanted: Collection[str], most: int = MOST_RUNS
) -> list[tuple[str, str]]:
    """Return first and last of each contiguous segment of the wanted ranges.

    If there are more than `most`, a single segment spans them all. `order` has all partition keys
    in Dagster's order.
    """
    bounds: list[tuple[str, str]] = []
    previous = -2
    for index, name in enumerate(order):
        if name not in wanted:
            continue
        if index == previous + 1:
            bounds[-1] = (bounds[-1][0], name)
        else:
            bounds.append((name, name))
        previous = index
    return bounds if len(bounds) <= most else [(bounds[0][0], bounds[-1][1])]
