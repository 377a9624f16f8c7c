"""Plans a table's key ranges, and extends them as the table grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise
from statistics import median_low
from typing import Any

from tableferry.assets.declaring.bounds import (
    MAX_RANGES,
)
from tableferry.assets.planning.boundaries import (
    CutRules,
    first_cuts,
    growth_cuts,
    limit,
)
from tableferry.assets.planning.text_boundaries import first_text_cuts, growth_text_cuts
from tableferry.resources.errors import InputError
from tableferry.resources.keys.bounds import from_number, to_bound, to_number
from tableferry.resources.keys.range import NULL_NAME, Bound, KeyKind, KeyRange
from tableferry.resources.ranges.key_kind import key_kind
from tableferry.resources.ranges.statistics import KeyStatistics

__all__ = ["MAX_RANGES", "RangeGrowth", "extend_ranges", "key_kind", "plan_ranges", "top_bound"]


@dataclass(frozen=True)
class RangeGrowth:
    """How the known ranges change; finite ranges always stay.

    What a target holds of a retired range has to be dropped: the added ranges bring those rows.
    """

    keep: tuple[KeyRange, ...]
    retire: tuple[KeyRange, ...]
    add: tuple[KeyRange, ...]
    gone: tuple[KeyRange, ...] = ()
    """What the source has no more, though its rows stay in the targets."""
    remove: tuple[KeyRange, ...] = ()
    """What it has no more, and whose rows go from the targets, too."""
    cut_by: str = ""
    """Who has cut the ranges, where they were taken over."""


def plan_ranges(
    stats: KeyStatistics, spec: Mapping[str, Any], kind: KeyKind, digits: int = 10
) -> list[KeyRange]:
    """The first ranges of a table, in key order; every possible key is in exactly one of them.

    The first range is open below. The last one is open above and starts beyond the largest key, so
    that it is empty until the table grows; where no larger key is possible, there is no such
    range. Of texts, of which nobody can tell what comes next, it holds the largest keys instead. A
    range for NULL follows if the key may be NULL. An empty table has the single range `..`, unless
    its cuts are declared.

    Args:
        stats: The keys' distribution; poor estimates cost balance only.
        spec: `{"rows": n}`: ranges of up to n rows. `{"count": n}`: n ranges of even row counts.
            `{"width": w}`: even key intervals of w, in days for dates and seconds for timestamps,
            or `"day"`, `"month"`, `"year"`. `{"bounds": [...]}`: the cuts themselves, or with
            `width` or `count` the two ends of a span that is divided evenly by key.
        kind: The key's kind, of `key_kind`.
        digits: Digits of integer keys, of `key_kind`.

    Raises:
        InputError: the spec does not fit the key's kind, or makes more than `MAX_RANGES` ranges.
    """
    cuts: Sequence[Bound | int]
    if kind == "text":
        cuts = first_text_cuts(stats, spec)
    else:
        cuts = first_cuts(stats, CutRules.read(spec, kind, digits))
    ranges = _between([None, *cuts, None], KeyRange(kind, digits=digits))
    if stats.nullable:
        ranges.append(KeyRange(kind, null=True, digits=digits))
    return ranges


def extend_ranges(
    existing: Sequence[KeyRange],
    stats: KeyStatistics,
    spec: Mapping[str, Any],
    kind: KeyKind,
    digits: int = 10,
) -> RangeGrowth:
    """The ranges that new keys need.

    If there are keys in the open top range, it is retired, and finite ranges and a new, empty open
    top take its place. The last finite one is as wide as a full range should need, so that further
    small growth falls into it. Texts are cut only when the open range has more rows than a range
    should have. Declared cuts are a promise, which only a changed declaration
    extends.

    Args:
        existing: All ranges known so far, in any order.
        stats: Of the whole table, or, cheaper and finer, of the keys from `top_bound` on.
        spec: As of `plan_ranges`; it may have changed since the existing ranges were cut.
        kind: The key's kind.
        digits: Digits of integer keys.

    Raises:
        InputError: as of `plan_ranges`, or no existing range is open above.
    """
    if not existing:
        return RangeGrowth((), (), tuple(plan_ranges(stats, spec, kind, digits)))
    top = _top(existing)
    finite = [r for r in existing if not r.null and r.upper is not None]
    cuts: Sequence[Bound | int]
    if kind == "text":
        cuts = growth_text_cuts(stats, spec, top.lower)
    elif top.lower is None:
        cuts = first_cuts(stats, CutRules.read(spec, kind, digits))
    else:
        rules = CutRules.read(spec, kind, digits)
        cuts = growth_cuts(stats, rules, to_number(top.lower), _typical_width(finite))
    limit(len(existing) + len(cuts))
    retire = (top,) if cuts else ()
    add = _between([top.lower, *cuts, None], top) if cuts else []
    if stats.nullable and not any(key_range.null for key_range in existing):
        add.append(KeyRange(kind, null=True, digits=digits))
    keep = tuple(key_range for key_range in existing if key_range not in retire)
    return RangeGrowth(keep, retire, tuple(add))


def own_growth(
    existing: Sequence[KeyRange], found: Sequence[KeyRange], *, delete: bool
) -> RangeGrowth:
    """How the known ranges change where the source itself has them, as a folder has files.

    Args:
        existing: all ranges known so far.
        found: those that there are.
        delete: what is not there any more goes from the targets, too.
    """
    names, known = {one.name for one in found}, {one.name for one in existing}
    files = {one.lower for one in found}
    gone = tuple(one for one in existing if one.lower not in files)
    return RangeGrowth(
        keep=tuple(one for one in existing if one.name in names),
        # of a file that is cut otherwise now
        retire=tuple(one for one in existing if one.lower in files and one.name not in names),
        add=tuple(one for one in found if one.name not in known),
        gone=() if delete else gone,
        remove=gone if delete else (),
    )


def block_growth(
    existing: Sequence[KeyRange], blocks: int, count: int, per_block: int, digits: int
) -> RangeGrowth:
    """How the known ranges change where they are stretches of a table's blocks.

    First they are `count` stretches of as many blocks, and an open one above that is empty. When
    the table has grown into that, more stretches of the usual length take its place, longer ones
    if there would be more than `count`.

    Args:
        existing: all ranges known so far.
        blocks: how many the table has.
        count: how many stretches there are to be at first; fewer of a table with fewer blocks.
        per_block: how many numbers a block has in the ranges' bounds.
        digits: of the numbers.

    Raises:
        InputError: there would be more than `MAX_RANGES` ranges.
    """
    if not existing:
        ends = sorted({blocks * part // count for part in range(1, count + 1)} - {0})
        cuts: list[Bound | int | None] = [end * per_block for end in ends]
        added = _between([None, *cuts, None], KeyRange("integer", digits=digits))
        return RangeGrowth((), (), tuple(added))
    top = _top(existing)
    floor, end = to_number(top.lower or 0), blocks * per_block
    if end <= floor:
        return RangeGrowth(tuple(existing), (), ())
    usual = _typical_width([one for one in existing if one.upper is not None]) or floor
    width = max(usual, -(-(end - floor) // (count * per_block)) * per_block)
    steps = range(floor + width, end + width, width)
    limit(len(existing) + len(steps))
    keep = tuple(one for one in existing if one is not top)
    return RangeGrowth(keep, (top,), tuple(_between([top.lower, *steps, None], top)))


def find_ranges(text: str, ranges: Mapping[str, KeyRange]) -> list[str]:
    """The names of the ranges that a user means: one, or all of a file that is cut.

    Args:
        text: as of `find_range`.
        ranges: all ranges of a table, by name.
    """
    one = find_range(text, ranges)
    if one is None or one == text or ranges[one].kind != "file":
        return [] if one is None else [one]
    return [name for name, key_range in ranges.items() if key_range.lower == ranges[one].lower]


def find_range(text: str, ranges: Mapping[str, KeyRange]) -> str | None:
    """The name of the range that a user means, or None.

    Args:
        text: a name; or bounds as in `1..250001`, without the padding or marks of a name; or one
            key, which stands for the range that holds it. Digits may be grouped by `_` or `,`.
            The bound that an open range has not may be any that is beyond its other one.
        ranges: all ranges of a table, by name.
    """
    if text in ranges or not ranges:
        return text if text in ranges else None
    kind = next(iter(ranges.values())).kind
    if kind == "text":
        plain = {f"{_shown(one.lower)}..{_shown(one.upper)}": name for name, one in ranges.items()}
        if text.replace(" .. ", "..") in plain:
            return plain[text.replace(" .. ", "..")]
    if kind in ("text", "file"):
        return next((name for name, one in ranges.items() if one.contains(text)), None)
    text = text.strip()
    if text in ranges or text.lower() == NULL_NAME:
        return next((name for name in ranges if name in (text, text.lower())), None)
    try:
        meant = _meant(text, kind)
    except InputError:
        return None
    held = {name: one for name, one in ranges.items() if not one.null}
    if not isinstance(meant, KeyRange):
        return next((name for name, one in held.items() if one.contains(meant)), None)
    bounds = (meant.lower, meant.upper)
    same = next((name for name, one in held.items() if (one.lower, one.upper) == bounds), None)
    return same or next((name for name, one in held.items() if _means_open(meant, one)), None)


def like_range(text: str, ranges: Mapping[str, KeyRange]) -> list[str]:
    """The names of the ranges that somebody may have meant who typed what `find_range` rejects.

    Args:
        text: bounds that are those of no range, for which it is the ranges that hold keys between
            them; or a name that is nearly one.
        ranges: all ranges of a table, by name.
    """
    kinds = {one.kind for one in ranges.values()}
    for kind in kinds - {"text", "file"}:
        with suppress(InputError):
            meant = _meant(text.strip(), kind)
            if isinstance(meant, KeyRange):
                return [name for name, one in ranges.items() if meant.overlaps(one)]
    return get_close_matches(text, ranges, cutoff=0.5)


def _meant(text: str, kind: KeyKind) -> KeyRange | Bound:
    """The bounds that somebody has typed, or the key.

    Raises:
        InputError: it is neither, of this kind of keys.
    """
    written = text.rpartition(":")[2].replace(",", "") if kind == "integer" else text
    lower, dots, upper = (part.strip() for part in written.partition(".."))
    if not dots:
        return to_bound(lower, kind)
    bounds = [to_bound(part, kind) if part else None for part in (lower, upper)]
    return KeyRange(kind, bounds[0], bounds[1])


def _means_open(meant: KeyRange, found: KeyRange) -> bool:
    """Whether the bounds are those of an open range, with one for its open end."""
    below = found.lower is None and meant.upper == found.upper and found.contains(meant.lower)
    above = found.upper is None and meant.lower == found.lower and found.contains(meant.upper)
    return below or above


def _shown(bound: Bound | None) -> str:
    return "" if bound is None else str(bound)


def top_bound(existing: Sequence[KeyRange]) -> Bound | None:
    """Lower bound of the open top range: growth is what lies at or above it. None is everything."""
    return _top(existing).lower


def _top(existing: Sequence[KeyRange]) -> KeyRange:
    for key_range in existing:
        if not key_range.null and key_range.upper is None:
            return key_range
    names = ", ".join(key_range.name for key_range in existing[:3])
    raise InputError(f"one of the known key ranges should be open above, found only {names}")


def _typical_width(finite: Sequence[KeyRange]) -> int | None:
    widths = [
        to_number(key_range.upper) - to_number(key_range.lower)
        for key_range in finite
        if key_range.lower is not None and key_range.upper is not None
    ]
    return median_low(widths) if widths else None


def _between(cuts: Sequence[Bound | int | None], style: KeyRange) -> list[KeyRange]:
    """The ranges between the cuts, named as `style` is."""
    bounds = [from_number(cut, style.kind) if isinstance(cut, int) else cut for cut in cuts]
    return [replace(style, lower=lower, upper=upper) for lower, upper in pairwise(bounds)]
