"""Where to cut the keys of a table that are texts: by rows, by count, or as declared.

Between two texts there are always more, so that a cut is the shortest text that parts two
neighbouring keys: `AB-1` rather than `AB-1000017`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tableferry.assets.planning.boundaries import limit
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import Bound
from tableferry.resources.keys.text import problem, separator
from tableferry.resources.ranges.statistics import KeyStatistics

NO_SPAN = "a text key has no width, and no span to divide; give rows, count or all bounds"


def first_text_cuts(stats: KeyStatistics, spec: Mapping[str, Any]) -> list[str]:
    """The cuts of a table of which no range is known yet.

    Raises:
        InputError: the spec is not one for texts, or makes too many ranges.
    """
    declared = _declared(spec)
    if declared is not None or not stats.rows:
        return declared or []
    points = _points(stats)
    rows = spec.get("rows")
    pieces = (spec.get("count") or 1) if rows is None else max(1, -(-stats.rows // rows))
    limit(pieces)
    buckets = len(points) - 1
    return _parting(points, [piece * buckets // pieces for piece in range(1, pieces)])


def growth_text_cuts(
    stats: KeyStatistics, spec: Mapping[str, Any], floor: Bound | None
) -> list[str]:
    """The cuts above `floor` that the keys there need; none if the open top range does.

    Args:
        stats: of the whole table, or of the keys from `floor` on.
        spec: the `ranges` of the transfer.
        floor: lower bound of the open top range.

    Raises:
        InputError: as of `first_text_cuts`.
    """
    if floor is None:
        return first_text_cuts(stats, spec)
    least, declared, rows = str(floor), _declared(spec), spec.get("rows")
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
    cuts = _parting(
        points, [piece * rows * buckets // above for piece in range(1, above // rows + 1)]
    )
    return [cut for cut in cuts if cut > least]


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


def _parting(points: Sequence[str], places: Sequence[int]) -> list[str]:
    """Ascending cuts, each behind the point at its place or as near above it as there is one."""
    cuts: list[str] = []
    for place in places:
        for low, high in pairwise(points[max(0, place) :]):
            cut = separator(low, high) if low < high else None
            if cut is not None:
                if not cuts or cut > cuts[-1]:
                    cuts.append(cut)
                break
    return cuts
