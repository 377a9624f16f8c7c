"""How the ranges of a transfer are shared among several runs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

MOST_RUNS = 4
"""Scattered ranges become one run per contiguous segment, up to this many; beyond it one run spans
them all and skips what lies between, because a run costs about a second and a skip far less."""


def stretches(
    names: Sequence[str], most: int, rows: Mapping[str, int] | None = None
) -> list[list[str]]:
    """Cut a list of ranges into consecutive parts of about as many rows each.

    None has more than its even share and the rows of one range. A range of which the rows are not
    known counts as the average of the others; one without rows counts, too, as a little.

    Args:
        names: the ranges, in order.
        most: how many parts; fewer, if there are fewer ranges.
        rows: of the ranges where they are known.
    """
    known = [rows[name] for name in names if name in rows] if rows else []
    average = sum(known) / len(known) if known else 1
    weights = [max(rows.get(name, average) if rows else 1, 1) for name in names]
    # where each range begins, in rows; the last entry is the end of all
    starts = [0, *accumulate(weights)]
    count = min(most, len(names))
    cuts = [0]
    for number in range(1, count):
        even = starts[-1] * number / count
        cut = bisect_left(starts, even)
        if starts[cut] - even > even - starts[cut - 1]:
            cut -= 1
        # a range at least for this part, and for each that follows
        cuts.append(min(max(cut, cuts[-1] + 1), len(names) - (count - number)))
    return [list(names[a:b]) for a, b in zip(cuts, [*cuts[1:], len(names)], strict=True) if b > a]


def segments(
    order: Sequence[str], wanted: Collection[str], most: int = MOST_RUNS
) -> list[tuple[str, str]]:
    """First and last of each run of neighbours among the wanted; one spanning them if too many.

    Args:
        order: all partition keys, in Dagster's order.
        wanted: those to cover.
        most: how many are not too many.
    """
    found: list[tuple[str, str]] = []
    previous = -2
    for index, name in enumerate(order):
        if name not in wanted:
            continue
        if index == previous + 1:
            found[-1] = (found[-1][0], name)
        else:
            found.append((name, name))
        previous = index
    return found if len(found) <= most else [(found[0][0], found[-1][1])]
