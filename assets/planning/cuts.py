"""How a key space is cut where several homes load one table: as its target says, if it can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.ranges import RangeGrowth
from tableferry.assets.planning.resolve import Hop
from tableferry.resources.contract.markers import Marker, Published, cover_all, parse_range
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.ranges.key_kind import key_kind


def in_use(
    transfer: Transfer,
    hops: Sequence[Hop],
    known: Sequence[KeyRange],
    published: Mapping[int, Published],
) -> tuple[Sequence[KeyRange], str]:
    """The ranges that growth goes on from, and whose they are, if not the event log's own.

    An event log without ranges takes those over that others have published. One that has some does
    so only where rows of both would stand beside each other; declared bounds are a promise.

    Args:
        transfer: whose.
        hops: its hops.
        known: the ranges of the event log.
        published: the markers of the targets, by number of the hop.
    """
    if _cut_by_source(transfer) or transfer.ranges.bounds is not None:
        return known, ""
    matter = {number for number, one in published.items() if one.cuts_matter}
    for hop in sorted(hops, key=lambda hop: hop.number not in matter):
        others = published.get(hop.number)
        if others is None or (known and not others.cuts_matter):
            continue
        found = _ranges(transfer, hops[0], hop, others)
        if not found or (known and not foreign(hop, known, others)):
            continue
        if cover_all(found):
            names = {one.name for one in known}
            strange = [one for name, one in others.of_target.items() if name not in names]
            newest = max(strange, key=lambda one: one.at)
            return found, f"as {hop.plan.target} was by {newest}"
    return known, ""


def relative_to(
    known: Sequence[KeyRange], cuts: Sequence[KeyRange], growth: RangeGrowth, cut_by: str
) -> RangeGrowth:
    """What has to become of the known ranges, for others to take their place and to grow.

    Args:
        known: the ranges of the event log.
        cuts: those in their place.
        growth: how these change.
        cut_by: whose they are.
    """
    before, after = {one.name for one in known}, {one.name for one in cuts}
    return replace(
        growth,
        keep=tuple(one for one in growth.keep if one.name in before),
        retire=(*(one for one in known if one.name not in after), *growth.retire),
        add=(*(one for one in growth.keep if one.name not in before), *growth.add),
        cut_by=cut_by,
    )


def foreign(hop: Hop, ranges: Sequence[KeyRange], published: Published) -> list[Marker]:
    """What is published of other ranges than these, whose rows it shares."""
    names = {one.name for one in ranges}
    others = [one for name, one in sorted(published.of_target.items()) if name not in names]
    return [one for one in others if any(one.overlaps(hop.plan, own) for own in ranges)]


def require_agreement(
    transfer: Transfer,
    hops: Sequence[Hop],
    growth: RangeGrowth,
    published: Mapping[int, Published],
) -> None:
    """Refuse ranges beside which others stand, whose rows readers would see as well.

    Raises:
        InputError: names them, who published them, and what to do.
    """
    if _cut_by_source(transfer):
        return
    retired = {one.name for one in growth.retire}
    for hop in hops:
        others = published.get(hop.number)
        if others is None or not others.cuts_matter:
            continue
        found = foreign(hop, (*growth.keep, *growth.add), others)
        found = [one for one in found if one.range not in retired]
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise InputError(
                f"{transfer.transfer}: {hop.plan.target} has the range {found[0].range}{more}, "
                f"published by {found[0]}, and this event log cuts its keys otherwise: readers "
                "would see rows twice. Go on with that event log (its DAGSTER_HOME), or give its "
                f"ranges up: ferry clean {transfer.transfer} --markers"
            )


def _cut_by_source(transfer: Transfer) -> bool:
    return source_of(transfer.source.system).own_key is not None


def _ranges(transfer: Transfer, first: Hop, hop: Hop, published: Published) -> list[KeyRange]:
    """The ranges that a target has, in key order; none if they are of another key."""
    kind, digits = key_kind(first.plan.key.source, transfer.source.system)
    found = []
    for name, marker in sorted(published.of_target.items()):
        one = parse_range(name, kind, digits)
        if one is None or marker.key != hop.plan.key.target.name:
            return []
        found.append(one)
    return found
