"""How the ranges of a transfer are shared among several runs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

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
