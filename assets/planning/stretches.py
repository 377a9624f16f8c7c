"""How the ranges of a transfer are shared among several runs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate


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
