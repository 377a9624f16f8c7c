"""Cuts of a key space that several homes share: those that its target has, where possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.ranges.cutting import RangeGrowth
from tableferry.assets.planning.resolve import Hop
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract.markers import Marker, Published
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import CutDifferently
from tableferry.resources.keys.cover import in_key_order, partition
from tableferry.resources.keys.range import KeyRange, parse_range


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
