"""Cuts of a key space, as whole numbers: by rows, by count, by width, or as declared."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any, Self

from tableferry.assets.declaring.bounds import MAX_RANGES
from tableferry.resources.errors import InputError
from tableferry.resources.keys.bounds import from_number, largest_number, to_bound, to_number
from tableferry.resources.keys.range import KeyKind
from tableferry.resources.ranges.statistics import KeyStatistics

FEW_ROWS = 100
"""Fewer rows than this above the known ranges do not show how dense future keys will be."""

MICROSECONDS = 10**6
DAY = 86_400 * MICROSECONDS
UNITS: Mapping[KeyKind, tuple[int, ...]] = {
    "integer": (1,),
    "date": (1,),
    "timestamp": (DAY, 3600 * MICROSECONDS, 60 * MICROSECONDS, MICROSECONDS, 1),
    "uuid": (2**96, 2**64, 1),
}
"""Cuts fall on whole units, to keep the names of ranges readable."""


@dataclass(frozen=True)
class CutRules:
    """A `ranges` spec, checked against the key's kind. Bounds are numbers, see `to_number`."""

    kind: KeyKind
    largest: int
    """The largest possible cut; a range that would end beyond it stays open."""
    rows: int | None = None
    count: int | None = None
    width: int | str | None = None
    bounds: tuple[int, ...] = ()

    @classmethod
    def read(cls, spec: Mapping[str, Any], kind: KeyKind, digits: int) -> Self:
        """Check a spec.

        Raises:
            InputError: it contradicts itself or does not fit the key's kind.
        """
        bounds = tuple(to_number(to_bound(value, kind)) for value in spec.get("bounds") or ())
        width = spec.get("width")
        if any(not lower < upper for lower, upper in pairwise(bounds)):
            raise InputError(f"range bounds should be strictly ascending: {spec['bounds']}")
        if isinstance(width, str) and kind not in ("date", "timestamp"):
            raise InputError(f"a range width of {width!r} needs a date or timestamp key")
        if width is not None and kind == "uuid":
            raise InputError("a uuid key cannot be cut by width; give rows or count")
        largest = largest_number(kind, digits)
        return cls(kind, largest, spec.get("rows"), spec.get("count"), width, bounds)

    @property
    def declared(self) -> list[int] | None:
        """The cuts, if the spec alone decides them: bounds, or a span divided by count."""
        if not self.bounds or self.width is not None:
            return None
        if self.count is None:
            return list(self.bounds)
        limit(self.count)
        low, high = self.bounds
        return sorted({low + (high - low) * i // self.count for i in range(self.count + 1)})


def first_cuts(stats: KeyStatistics, rules: CutRules) -> list[int]:
    """The cuts of a table without known ranges."""
    if rules.declared is not None:
        return rules.declared
    if rules.width is not None:
        if rules.bounds:
            low, high = rules.bounds
            return [low, *_steps(rules, low, max(high, _beyond(stats)))]
        return _steps(rules, to_number(stats.minimum), _beyond(stats)) if stats.rows else []  # type: ignore[arg-type]
    if not stats.rows:
        return []
    points = [to_number(quantile) for quantile in stats.quantiles]
    pieces = (rules.count or 1) if rules.rows is None else ceil_div(stats.rows, rules.rows)
    target = rules.rows or stats.rows / pieces
    cuts = _even(points, pieces, rules)
    end = points[-1] + 1 + _headroom(points, stats.rows, pieces, target)
    return cuts + _end(end, end - (cuts[-1] if cuts else points[0]), rules)


def growth_cuts(
    stats: KeyStatistics, rules: CutRules, floor: int, typical: int | None
) -> list[int]:
    """The cuts that the keys from `floor` on need; none if one open range is enough for them.

    `floor` is the lower bound of the open top range; `typical` the typical key width of the known
    finite ranges, if there are any. `stats` may be of the whole table.
    """
    if rules.declared is not None:
        return [cut for cut in rules.declared if cut > floor]
    if stats.maximum is None or to_number(stats.maximum) < floor:
        return []
    if rules.width is not None:
        return _steps(rules, floor, max([_beyond(stats), *rules.bounds[1:]]))
    points = [to_number(quantile) for quantile in stats.quantiles]
    start = bisect_left(points, floor)
    rows = max(1, stats.rows * (len(points) - start) // len(points)) if start else stats.rows
    points = points[start:] if len(points) > start + 1 else [points[-1]] * 2
    full = floor + (typical or 0)
    if rules.rows is not None:
        pieces = ceil_div(rows, rules.rows)
        if rows >= min(FEW_ROWS, rules.rows) or not typical:
            full = points[-1] + 1 + _headroom(points, rows, pieces, rules.rows)
        fits = rows <= rules.rows * 3 // 2
    else:
        pieces = min(rules.count or 1, ceil_div(points[-1] + 1 - floor, typical or 2**128))
        fits = True
    cuts = _even(points, pieces, rules)
    width = full - (cuts[-1] if cuts else floor)
    end = _end(max(points[-1] + 1, full), width, rules)
    left = rules.largest - end[0] if end else -1
    needed = max(typical or 0, points[-1] - floor) if rules.rows is not None else 0
    if left < needed and fits:
        # no range fits in above, as with random uuids: the open range keeps the largest keys
        return []
    return [cut for cut in cuts + end if cut > floor]


def limit(ranges: int) -> None:
    """Refuse more ranges than the event log can handle.

    Raises:
        InputError: says how many there would be.
    """
    if ranges > MAX_RANGES:
        raise InputError(
            f"this would make {ranges} key ranges, and at most {MAX_RANGES} are sensible; "
            "cut by rows, or take larger ranges"
        )


def _even(points: Sequence[int], pieces: int, rules: CutRules) -> list[int]:
    """Cuts between the points into pieces with equal numbers of rows; fewer where keys repeat."""
    limit(pieces)
    buckets = len(points) - 1
    gap = (points[-1] - points[0]) // pieces
    cuts: list[int] = []
    for piece in range(1, pieces):
        index, rest = divmod(piece * buckets, pieces)
        low, high = points[index], points[min(index + 1, buckets)]
        # plus one, because a cut is the first key of the range above it
        cut = _rounded(low + (high - low) * rest // pieces + 1, gap, rules.kind)
        if (cuts[-1] if cuts else points[0]) < cut <= points[-1]:
            cuts.append(cut)
    return cuts


def _headroom(points: Sequence[int], rows: int, pieces: int, target: float) -> int:
    """How far beyond the largest key the last piece should reach, to hold `target` rows one day.

    The densest tail of the piece decides: a gap in its keys makes the piece look sparse as a whole,
    but says nothing about future keys.
    """
    buckets = len(points) - 1
    tails = {max(1, buckets // (pieces * share)) for share in (1, 2, 4)}
    spans = [(points[-1] - points[-1 - tail], tail) for tail in tails]
    widths = [span * buckets / (tail * rows) for span, tail in spans if span]
    return int(min(widths, default=0.0) * max(0.0, target - rows / pieces))


def _end(cut: int, width: int, rules: CutRules) -> list[int]:
    cut = _rounded(cut, width, rules.kind)
    return [cut] if cut <= rules.largest else []


def _rounded(cut: int, gap: int, kind: KeyKind) -> int:
    """Round up to the largest unit that is at most a hundredth of a range's width."""
    unit = next((unit for unit in UNITS[kind] if unit * 100 <= gap), 1)
    return -(-cut // unit) * unit


def _steps(rules: CutRules, start: int, stop: int) -> list[int]:
    """The steps of the declared width above `start`, up to the first that is at least `stop`."""
    cuts: list[int] = []
    for cut in _grid(rules, start):
        if cut > rules.largest:
            break
        cuts.append(cut)
        if cut >= stop:
            break
        if len(cuts) > MAX_RANGES:
            raise InputError(
                f"a range width of {rules.width} would make more than {MAX_RANGES} key ranges; "
                "cut by rows, or take a larger width"
            )
    return cuts


def _grid(rules: CutRules, start: int) -> Iterator[int]:
    if isinstance(rules.width, str):
        moment = from_number(start, rules.kind)
        assert isinstance(moment, dt.date)
        for day in _starts_after(moment, rules.width):
            midnight = dt.datetime.combine(day, dt.time())
            yield day.toordinal() if rules.kind == "date" else to_number(midnight)
        return
    width = (rules.width or 1) * (MICROSECONDS if rules.kind == "timestamp" else 1)
    if rules.bounds:
        anchor = rules.bounds[0]
    else:
        epochs = {"date": dt.date(1970, 1, 1), "timestamp": dt.datetime(1970, 1, 1)}
        anchor = to_number(epochs[rules.kind]) if rules.kind in epochs else 0
    yield from count(start + width - (start - anchor) % width, width)


def _starts_after(moment: dt.date, unit: str) -> Iterator[dt.date]:
    """The first days of the years or months after a moment, or the days after it."""
    if unit == "day":
        later = range(moment.toordinal() + 1, dt.date.max.toordinal() + 1)
        yield from map(dt.date.fromordinal, later)
        return
    months = 12 if unit == "year" else 1
    current = (moment.year * 12 + moment.month - 1) // months * months
    for number in range(current + months, (dt.MAXYEAR + 1) * 12, months):
        yield dt.date(number // 12, number % 12 + 1, 1)


def _beyond(stats: KeyStatistics) -> int:
    return 0 if stats.maximum is None else to_number(stats.maximum) + 1


def ceil_div(amount: int, by: int) -> int:
    """Divide and round up, to at least one."""
    return max(1, -(-amount // by))
