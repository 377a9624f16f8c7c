"""What the targets of a transfer may do to rows when they are published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tableferry.assets.planning.resolve import Hop, Servers
from tableferry.resources.contract.hazards import Hazard, require_publishable


def with_hazards(hops: Sequence[Hop], servers: Servers) -> tuple[Hop, ...]:
    """Return the hops with the hazards of their existing tables; takes one query per hop."""
    return tuple(
        replace(hop, options=replace(hop.options, hazards=tuple(hazards_of(hop, servers))))
        for hop in hops
    )


def hazards_of(hop: Hop, servers: Servers) -> list[Hazard]:
    """Read the hazards of a hop's table; a table that does not exist yet has none."""
    if hop.existing is None:
        return []
    target = servers.target(hop.plan.target)
    return target.hazards(hop.plan, hop.options, [*hop.existing.values()])


def require_harmless(hops: Iterable[Hop]) -> None:
    """Refuse hops whose tables would not show what is published into them.

    Raises:
        InputError: names the tables, their hazards, and the remedies.
    """
    for hop in hops:
        require_publishable(hop.plan.target, hop.options.hazards)


def hazard_notes(hops: Iterable[Hop]) -> Iterator[str]:
    """Describe what a run does about each hazard, in one line; `refusals` names the others."""
    answers = {
        "destroys": "a range that has rows there already will be refused",
        "changes": "each range is compared as it is published",
        "noted": "",
    }
    for hop in hops:
        for hazard in hop.options.hazards:
            if hazard.effect == "refused":
                continue
            answer = answers[hazard.effect]
            told = f"{answer}: {hazard.with_remedy}" if answer else hazard
            yield f"{hop.plan.target}: {told}"
