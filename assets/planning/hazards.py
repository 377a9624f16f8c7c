"""What the targets of a transfer may do to rows when they are published: found, told, refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tableferry.assets.planning.resolve import Hop, Servers
from tableferry.resources.contract.hazards import Hazard, require_publishable


def with_hazards(hops: Sequence[Hop], servers: Servers) -> tuple[Hop, ...]:
    """The hops with what was found of their tables, those that are there: one query each."""
    return tuple(
        replace(hop, options=replace(hop.options, hazards=tuple(hazards_of(hop, servers))))
        for hop in hops
    )


def hazards_of(hop: Hop, servers: Servers) -> list[Hazard]:
    """Those of a hop's table; none of one that is still to be made."""
    if hop.existing is None:
        return []
    target = servers.target(hop.plan.target)
    return target.hazards(hop.plan, hop.options, [*hop.existing.values()])


def require_harmless(hops: Iterable[Hop]) -> None:
    """Refuse hops whose tables would not show what is published into them.

    Raises:
        InputError: names the tables, what they have, and what to do about it.
    """
    for hop in hops:
        require_publishable(hop.plan.target, hop.options.hazards)


def hazard_notes(hops: Iterable[Hop]) -> Iterator[str]:
    """A line for each hazard: what it is, and what a run does about it."""
    answers = {
        "refused": "a run will be refused",
        "destroys": "a range that has rows there already will be refused",
        "changes": "each range is compared as it is published",
        "noted": "",
    }
    for hop in hops:
        for hazard in hop.options.hazards:
            answer = answers[hazard.effect]
            before = f"{hop.plan.target}: {answer}: " if answer else f"{hop.plan.target}: "
            yield before + (hazard.with_remedy if answer else str(hazard))
