"""Cuts of a key space by rows, count, width, the distribution of the keys, or as declared.

Between two texts there are always more, so that a cut of texts is the shortest one that separates
two neighbouring keys: `AB-1` rather than `AB-1000017`.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any, Self

from tableferry.assets.declaring.bounds import MAX_RANGES
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.table_sql import filtered, predicate
from tableferry.resources.errors import InputError
from tableferry.resources.keys.cover import from_number, largest_number, to_bound, to_number
from tableferry.resources.keys.range import Bound, KeyKind, KeyRange
from tableferry.resources.keys.text import problem, separator
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column


@dataclass(frozen=True)
class KeyStatistics:
    """The distribution of a table's keys. It may be an estimate: any cut is correct."""

    rows: int
    """The number of rows whose key is in scope, without NULL and infinite keys."""
    minimum: Bound | None = None
    maximum: Bound | None = None
    """Never an estimate, so that the open range above it is empty at first."""
    quantiles: tuple[Bound, ...] = ()
    """Ascending, from minimum to maximum, with about the same number of rows between neighbours."""
    nullable: bool = False

    def __post_init__(self) -> None:
        if self.rows and (self.minimum is None or self.maximum is None or len(self.quantiles) < 2):
            raise ValueError("statistics of rows should have a minimum, a maximum and quantiles")


def key_statistics(
    endpoint: Endpoint,
    table: TableRef,
    column: Column,
    *,
    above: Bound | None = None,
    where: str | None = None,
) -> KeyStatistics:
    """Read the distribution of a key column.

    For what it costs see `Source.quantiles` of the system; no ANALYZE is needed.

    If given, `above` is the least key to read: growth needs no others.

    Raises:
        InputError: the column cannot be a key, or the system is not a source.
    """
    kind = key_kind(column, endpoint.system)[0]
    rows_of = filtered(predicate(column, KeyRange(kind, above), endpoint.system), where)
    source = source_of(endpoint.system)
    rows, quantiles = source.quantiles(endpoint, table, column, kind, rows_of)
    # sorted, because rows may have come or gone between the queries
    order = str if kind == "text" else to_number
    bounds = sorted((to_bound(value, kind) for value in quantiles if value is not None), key=order)
    if not rows or not bounds:
        return KeyStatistics(0, nullable=column.nullable)
    return KeyStatistics(rows, bounds[0], bounds[-1], tuple(bounds), column.nullable)


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


def most_rows(rows: int) -> int:
    """How many rows an open range of rows may have before it is cut into ranges of `rows`."""
    return rows * 3 // 2


def first_cuts(stats: KeyStatistics, rules: CutRules) -> list[int]:
    """The cuts of a table without known ranges; none if one range has all its rows."""
    if rules.declared is not None:
        return rules.declared
    if rules.width is not None:
        if rules.bounds:
            low, high = rules.bounds
            return [low, *_steps(rules, low, max(high, _beyond(stats)))]
        return _steps(rules, to_number(stats.minimum), _beyond(stats)) if stats.rows else []  # type: ignore[arg-type]
    if not stats.rows or (rules.rows is not None and stats.rows <= rules.rows):
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
        fits = rows <= most_rows(rules.rows)
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


NO_SPAN = "a text key has no width, and no span to divide; give rows, count or all bounds"


def text_cuts(stats: KeyStatistics, spec: Mapping[str, Any], floor: Bound | None) -> list[str]:
    """The cuts that the keys from `floor` on need; none if one open range is enough for them.
    `floor` is the lower bound of the open top range; None if there is no range, or one unbounded.

    Raises:
        InputError: the spec is not for texts, or makes too many ranges.
    """
    declared, rows = _declared_texts(spec), spec.get("rows")
    if floor is None:
        return _first_text_cuts(stats, spec) if declared is None else declared
    least = str(floor)
    if declared is not None:
        return [cut for cut in declared if cut > least]
    if rows is None or not stats.rows:
        return []
    points = _text_points(stats)
    start = bisect_left(points, least)
    above = max(1, stats.rows * (len(points) - start) // len(points)) if start else stats.rows
    points = points[start:]
    if above <= most_rows(rows) or len(points) < 2:
        return []
    limit(above // rows)
    buckets = len(points) - 1
    cuts = _separators(
        points, [piece * rows * buckets // above for piece in range(1, above // rows + 1)]
    )
    return [cut for cut in cuts if cut > least]


def _first_text_cuts(stats: KeyStatistics, spec: Mapping[str, Any]) -> list[str]:
    if not stats.rows:
        return []
    points, rows = _text_points(stats), spec.get("rows")
    pieces = (spec.get("count") or 1) if rows is None else ceil_div(stats.rows, rows)
    limit(pieces)
    buckets = len(points) - 1
    return _separators(points, [piece * buckets // pieces for piece in range(1, pieces)])


def _text_points(stats: KeyStatistics) -> list[str]:
    return [str(quantile) for quantile in stats.quantiles]


def _declared_texts(spec: Mapping[str, Any]) -> list[str] | None:
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
