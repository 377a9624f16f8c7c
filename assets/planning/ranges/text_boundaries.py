"""Cuts of a key space of texts: by rows, by count, or as declared.

There are always more texts between two of them, so a cut is the shortest text that separates two
neighbouring keys: `AB-1` rather than `AB-1000017`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tableferry.assets.planning.ranges.boundaries import ceil_div, limit
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import Bound
from tableferry.resources.keys.text import problem, separator
from tableferry.resources.ranges.statistics import KeyStatistics

NO_SPAN = "a text key has no width, and no span to divide; give rows, count or all bounds"


def text_cuts(stats: KeyStatistics, spec: Mapping[str, Any], floor: Bound | None) -> list[str]:
    """The cuts that the keys from `floor` on need; none if one open range is enough for them.
    `floor` is the lower bound of the open top range; None if there is no range, or one unbounded.

    Raises:
        InputError: the spec is not for texts, or makes too many ranges.
    """
    declared, rows = _declared(spec), spec.get("rows")
    if floor is None:
        return _first_cuts(stats, spec) if declared is None else declared
    least = str(floor)
    if declared is not None:
        return [cut for cut in declared if cut > least]
    if rows is None or not stats.rows:
        return []
    points = _points(stats)
    start = bisect_left(points, least)
    above = max(1, stats.rows * (len(points) - start) // len(points)) if start else stats.rows
    points = points[start:]
    if above <= rows * 3 // 2 or len(points) < 2:
        return []
    limit(above // rows)
    buckets = len(points) - 1
    cuts = _separators(
        points, [piece * rows * buckets // above for piece in range(1, above // rows + 1)]
    )
    return [cut for cut in cuts if cut > least]


def _first_cuts(stats: KeyStatistics, spec: Mapping[str, Any]) -> list[str]:
    if not stats.rows:
        return []
    points, rows = _points(stats), spec.get("rows")
    pieces = (spec.get("count") or 1) if rows is None else ceil_div(stats.rows, rows)
    limit(pieces)
    buckets = len(points) - 1
    return _separators(points, [piece * buckets // pieces for piece in range(1, pieces)])


def _points(stats: KeyStatistics) -> list[str]:
    return [str(quantile) for quantile in stats.quantiles]


def _declared(spec: Mapping[str, Any]) -> list[str] | None:
    bounds: Sequence[Any] = spec.get("bounds") or ()
    if spec.get("width") is not None or (bounds and spec.get("count") is not None):
        raise InputError(NO_SPAN)
    for bound in bounds:
        if not isinstance(bound, str):
            raise InputError(f"the range bound {bound!r} should be a text; put it in quotes")
        if why := problem(bound):
            raise InputError(f"the range bound {bound!r} {why}")
    if any(not lower < upper for lower, upper in pairwise(bounds)):
        raise InputError(f"range bounds should be strictly ascending by code points: {[*bounds]}")
    return [*bounds] if bounds else None


def _separators(points: Sequence[str], positions: Sequence[int]) -> list[str]:
    """Ascending cuts, each right after the point at its position, or at the next possible one."""
    cuts: list[str] = []
    for position in positions:
        for low, high in pairwise(points[max(0, position) :]):
            cut = separator(low, high) if low < high else None
            if cut is not None:
                if not cuts or cut > cuts[-1]:
                    cuts.append(cut)
                break
    return cuts
