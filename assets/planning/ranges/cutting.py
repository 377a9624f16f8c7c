"""Plans a table's key ranges, extends them as it grows, and agrees with those its target has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise
from statistics import median_low
from typing import Any

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.ranges import boundaries
from tableferry.assets.planning.ranges.boundaries import KeyStatistics
from tableferry.assets.planning.resolve import Hop
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract.markers import Marker, Published
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import CutDifferently, InputError
from tableferry.resources.keys.cover import (
    from_number,
    in_key_order,
    partition,
    to_bound,
    to_number,
)
from tableferry.resources.keys.range import NULL_NAME, Bound, KeyKind, KeyRange, parse_range


@dataclass(frozen=True)
class RangeGrowth:
    """How the known ranges change; finite ranges always stay.

    Targets have to drop the rows of retired ranges, which the added ranges bring again.
    """

    keep: tuple[KeyRange, ...]
    retire: tuple[KeyRange, ...]
    add: tuple[KeyRange, ...]
    gone: tuple[KeyRange, ...] = ()
    """Ranges that the source no longer has, whose rows stay in the targets."""
    remove: tuple[KeyRange, ...] = ()
    """Ranges that the source no longer has, whose rows leave the targets too."""
    cut_by: str = ""
    """Who has cut the ranges, if they were taken over."""
    again: tuple[KeyRange, ...] = ()
    """Ranges that lacked among the known ones, and are added again."""

    @property
    def added(self) -> tuple[KeyRange, ...]:
        """The ranges that get a partition, also those whose rows stay without being moved."""
        return (*self.add, *(range_ for range_ in self.gone if range_ in self.again))


def plan_ranges(
    stats: KeyStatistics, spec: Mapping[str, Any], kind: KeyKind, digits: int = 10
) -> list[KeyRange]:
    """Plan the first ranges of a table, in key order; each possible key is in exactly one of them.

    A table of no more rows than a range should have is one range without bounds, `..`, and so is an
    empty one, unless its cuts are declared. Else the first range is open below. The last one is
    open above and starts beyond the largest key, so that it is empty until the table grows; there
    is none where no larger key is possible. For texts, whose next value nobody can predict, it
    holds the largest keys instead. A range for NULL follows if the key is nullable.

    Args:
        stats: the distribution of the keys; poor estimates only cost balance.
        spec: `{"rows": n}`: ranges of up to n rows. `{"count": n}`: n ranges with equal numbers of
            rows. `{"width": w}`: key intervals of w, in days for dates and seconds for timestamps,
            or `"day"`, `"month"`, `"year"`. `{"bounds": [...]}`: the cuts themselves, or with
            `width` or `count` the two ends of a span that is divided evenly by key.
        kind: the key's kind, of `key_kind`.
        digits: digits of integer keys, of `key_kind`.

    Raises:
        InputError: the spec does not fit the key's kind, or makes more than `MAX_RANGES` ranges.
    """
    cuts = _cuts(stats, spec, kind, digits)
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
    """Plan the ranges that new keys need.

    If there are keys in the open top range, it is retired, and finite ranges and a new, empty open
    one take its place. The last finite one is as wide as a full range should need, so that further
    small growth falls into it. Texts, and a range without bounds, are cut only when the open range
    has more rows than a range should have. Declared cuts are a promise: only a changed declaration
    adds to them. `stats` is of the whole table or, cheaper and finer, of the keys from `top_bound`
    on. `spec` may have changed since the existing ranges were cut.

    Raises:
        InputError: as `plan_ranges`.
    """
    if not existing:
        return RangeGrowth((), (), tuple(plan_ranges(stats, spec, kind, digits)))
    top = _top(existing)
    cuts = _cuts(stats, spec, kind, digits, top.lower, existing)
    boundaries.limit(len(existing) + len(cuts))
    retire = (top,) if cuts else ()
    add = _between([top.lower, *cuts, None], top) if cuts else []
    if stats.nullable and not any(key_range.null for key_range in existing):
        add.append(KeyRange(kind, null=True, digits=digits))
    keep = tuple(key_range for key_range in existing if key_range not in retire)
    return RangeGrowth(keep, retire, tuple(add))


def _cuts(
    stats: KeyStatistics,
    spec: Mapping[str, Any],
    kind: KeyKind,
    digits: int,
    floor: Bound | None = None,
    existing: Sequence[KeyRange] = (),
) -> Sequence[Bound | int]:
    rows = spec.get("rows")
    if existing and floor is None and rows is not None and stats.rows <= boundaries.most_rows(rows):
        return []
    if kind == "text":
        return boundaries.text_cuts(stats, spec, floor)
    rules = boundaries.CutRules.read(spec, kind, digits)
    if floor is None:
        return boundaries.first_cuts(stats, rules)
    return boundaries.growth_cuts(stats, rules, to_number(floor), _typical_width(existing))


def file_growth(
    existing: Sequence[KeyRange], present: Sequence[KeyRange], *, delete: bool
) -> RangeGrowth:
    """How the known ranges change where each is a file, or a part of one.

    `present` has the ranges of the files that exist now. With `delete`, the rows of other files
    leave the targets.
    """
    names, known = {range_.name for range_ in present}, {range_.name for range_ in existing}
    files = {range_.lower for range_ in present}
    gone = tuple(range_ for range_ in existing if range_.lower not in files)
    return RangeGrowth(
        keep=tuple(range_ for range_ in existing if range_.name in names),
        # of files that are cut otherwise now
        retire=tuple(
            range_ for range_ in existing if range_.lower in files and range_.name not in names
        ),
        add=tuple(range_ for range_ in present if range_.name not in known),
        gone=() if delete else gone,
        remove=gone if delete else (),
    )


def block_growth(
    existing: Sequence[KeyRange], blocks: int, count: int, per_block: int, digits: int
) -> RangeGrowth:
    """How the known ranges change where they are spans of a table's blocks.

    At first there are `count` spans of about equal length, and an empty open one above. When the
    table has grown into that one, spans of the usual length take its place, or longer ones if there
    would be more than `count`.

    Args:
        existing: all known ranges.
        blocks: how many blocks the table has.
        count: how many spans to begin with, at most one per block.
        per_block: by how much the bounds of one block differ.
        digits: digits of the bounds.

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
    usual = _typical_width(existing) or floor
    width = max(usual, -(-(end - floor) // (count * per_block)) * per_block)
    steps = range(floor + width, end + width, width)
    boundaries.limit(len(existing) + len(steps))
    keep = tuple(range_ for range_ in existing if range_ is not top)
    return RangeGrowth(keep, (top,), tuple(_between([top.lower, *steps, None], top)))


def find_ranges(text: str, ranges: Mapping[str, KeyRange]) -> list[str]:
    """Names of the ranges that a user means: as `find_range`, or all of a file that is cut."""
    name = find_range(text, ranges)
    if name is None or name == text or ranges[name].kind != "file":
        return [] if name is None else [name]
    return [other for other, range_ in ranges.items() if range_.lower == ranges[name].lower]


def find_range(text: str, ranges: Mapping[str, KeyRange]) -> str | None:
    """Name of the range that a user means, of all ranges of a table; None if there is none.

    The text is a name; or bounds as in `1..250001`, without the padding or marks of a name; or a
    key, which stands for the range that holds it. Digits may be grouped by `_` or `,`. The end of
    an open range may be given as any bound beyond its other one.
    """
    if text in ranges or not ranges:
        return text if text in ranges else None
    kind = next(iter(ranges.values())).kind
    if kind == "text":
        by_bounds = {
            f"{_shown(each.lower)}..{_shown(each.upper)}": name for name, each in ranges.items()
        }
        if text.replace(" .. ", "..") in by_bounds:
            return by_bounds[text.replace(" .. ", "..")]
    if kind in ("text", "file"):
        return next((name for name, range_ in ranges.items() if range_.contains(text)), None)
    text = text.strip()
    if text in ranges or text.lower() == NULL_NAME:
        return next((name for name in ranges if name in (text, text.lower())), None)
    try:
        meant = _parsed(text, kind)
    except InputError:
        return None
    keyed = {name: range_ for name, range_ in ranges.items() if not range_.null}
    if not isinstance(meant, KeyRange):
        return next((name for name, range_ in keyed.items() if range_.contains(meant)), None)
    bounds = (meant.lower, meant.upper)
    names = [name for name, range_ in keyed.items() if (range_.lower, range_.upper) == bounds]
    names += [name for name, range_ in keyed.items() if _same_open_range(meant, range_)]
    return names[0] if names else None


def like_range(text: str, ranges: Mapping[str, KeyRange]) -> list[str]:
    """Names of the ranges that a user may mean by a text that `find_range` rejects.

    These are all ranges with keys between the bounds that the text gives, or similar names.
    """
    kinds = {range_.kind for range_ in ranges.values()}
    for kind in kinds - {"text", "file"}:
        with suppress(InputError):
            meant = _parsed(text.strip(), kind)
            if isinstance(meant, KeyRange):
                return [name for name, range_ in ranges.items() if meant.overlaps(range_)]
    return get_close_matches(text, ranges, cutoff=0.5)


def _parsed(text: str, kind: KeyKind) -> KeyRange | Bound:
    """The bounds, or the key, that a user has typed.

    Raises:
        InputError: the text is neither, for keys of this kind.
    """
    written = text.rpartition(":")[2].replace(",", "") if kind == "integer" else text
    lower, dots, upper = (part.strip() for part in written.partition(".."))
    if not dots:
        return to_bound(lower, kind)
    bounds = [to_bound(part, kind) if part else None for part in (lower, upper)]
    return KeyRange(kind, bounds[0], bounds[1])


def _same_open_range(meant: KeyRange, range_: KeyRange) -> bool:
    """Whether the bounds are those of an open range, with some bound for its open end."""
    below = range_.lower is None and meant.upper == range_.upper and range_.contains(meant.lower)
    above = range_.upper is None and meant.lower == range_.lower and range_.contains(meant.upper)
    return below or above


def _shown(bound: Bound | None) -> str:
    return "" if bound is None else str(bound)


def top_bound(existing: Sequence[KeyRange]) -> Bound | None:
    """Lower bound of the open top range, from which on keys are new; None if all keys are."""
    return _top(existing).lower


def _top(existing: Sequence[KeyRange]) -> KeyRange:
    return next(range_ for range_ in existing if not range_.null and range_.upper is None)


def _typical_width(ranges: Sequence[KeyRange]) -> int | None:
    widths = [
        to_number(range_.upper) - to_number(range_.lower)
        for range_ in ranges
        if range_.lower is not None and range_.upper is not None
    ]
    return median_low(widths) if widths else None


def _between(cuts: Sequence[Bound | int | None], style: KeyRange) -> list[KeyRange]:
    """The ranges between the cuts, with the kind and digits of `style`."""
    bounds = [from_number(cut, style.kind) if isinstance(cut, int) else cut for cut in cuts]
    return [replace(style, lower=lower, upper=upper) for lower, upper in pairwise(bounds)]


def in_use(
    transfer: Transfer,
    hops: Sequence[Hop],
    known: Sequence[KeyRange],
    published: Mapping[int, Published],
) -> tuple[Sequence[KeyRange], str]:
    """Return the ranges to extend, and who has cut them if not this event log.

    An event log without ranges takes over those that others have published. One with ranges does
    so only where rows of both would exist side by side. Declared bounds are never replaced.
    `published` has the targets' markers by number of the hop.
    """
    if _cut_by_source(transfer) or transfer.ranges.bounds is not None:
        return known, ""
    decisive = {number for number, markers in published.items() if markers.cuts_matter}
    for hop in sorted(hops, key=lambda hop: hop.number not in decisive):
        markers = published.get(hop.number)
        if markers is None or (known and not markers.cuts_matter):
            continue
        ranges = _ranges(transfer, hops[0], hop, markers)
        if not ranges or (known and not foreign(hop, known, markers)):
            continue
        if partition(ranges, nullable=any(range_.null for range_ in ranges)):
            names = {range_.name for range_ in known}
            unknown = [marker for name, marker in markers.of_target.items() if name not in names]
            newest = max(unknown, key=lambda marker: marker.at)
            return ranges, f"as {hop.plan.target} was by {newest}"
    return known, ""


def relative_to(
    known: Sequence[KeyRange], cuts: Sequence[KeyRange], growth: RangeGrowth, cut_by: str
) -> RangeGrowth:
    """Express the growth of others' ranges (`cuts`) as that of the known ones they replace."""
    before, after = {range_.name for range_ in known}, {range_.name for range_ in cuts}
    return replace(
        growth,
        keep=tuple(range_ for range_ in growth.keep if range_.name in before),
        retire=(*(range_ for range_ in known if range_.name not in after), *growth.retire),
        add=(*(range_ for range_ in growth.keep if range_.name not in before), *growth.add),
        cut_by=cut_by,
    )


def foreign(hop: Hop, ranges: Sequence[KeyRange], published: Published) -> list[Marker]:
    """Markers of published ranges that are not among these, but share rows with them."""
    names = {range_.name for range_ in ranges}
    others = [marker for name, marker in sorted(published.of_target.items()) if name not in names]
    return [
        marker for marker in others if any(marker.overlaps(hop.plan, range_) for range_ in ranges)
    ]


def require_agreement(
    transfer: Transfer,
    hops: Sequence[Hop],
    growth: RangeGrowth,
    published: Mapping[int, Published],
) -> None:
    """Refuse ranges that share rows with others' ranges: readers would see those rows twice.

    Raises:
        CutDifferently: names the others' ranges, who published them, and what to do.
    """
    if _cut_by_source(transfer):
        return
    retired = {range_.name for range_ in growth.retire}
    for hop in hops:
        markers = published.get(hop.number)
        if markers is None or not markers.cuts_matter:
            continue
        others = foreign(hop, (*growth.keep, *growth.add), markers)
        others = [marker for marker in others if marker.range not in retired]
        if others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            raise CutDifferently(
                f"{transfer.transfer}: {hop.plan.target} has the range {others[0].range}{more}, "
                f"published by {others[0]}, but this event log divides the keys differently: "
                "readers would see rows twice. Continue with that event log (its DAGSTER_HOME), or "
                f"give its ranges up: ferry clean {transfer.transfer} --markers"
            )


def _cut_by_source(transfer: Transfer) -> bool:
    return source_of(transfer.source.system).file_key is not None


def _ranges(transfer: Transfer, first: Hop, hop: Hop, published: Published) -> list[KeyRange]:
    """The published ranges of a target, in key order; none if they are of another key."""
    kind, digits = key_kind(first.plan.key.source, transfer.source.system)
    ranges = []
    for name, marker in published.of_target.items():
        range_ = parse_range(name, kind, digits)
        if range_ is None or marker.key != hop.plan.key.target.name:
            return []
        ranges.append(range_)
    return in_key_order(ranges)
