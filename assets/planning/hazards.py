"""What the targets of a transfer may do to rows when they are published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tableferry.assets.planning.columns.hop_columns import target_columns
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.resources.contract.hazards import Hazard, require_publishable
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_columns import unfilled
from tableferry.resources.contract.target_options import WriteMode


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
    hazards = target.hazards(hop.plan, hop.options, [*hop.existing.values()])
    if hop.options.recreate is None:
        return hazards
    lost = target.lost(hop.plan, hop.options)
    return [*hazards, *lost, *_lost_rows_and_columns(hop, servers, hop.options.recreate)]


def _lost_rows_and_columns(hop: Hop, servers: Servers, mode: WriteMode) -> Iterator[Hazard]:
    """What a table that is recreated out of the source would lack of the present one."""
    plan, says = hop.plan, "would not be in the table that is recreated"
    present = target_columns(servers.endpoint(plan.target), plan.target) or {}
    if names := [repr(column.name) for column in unfilled(plan, present.values())]:
        remedy = "Drop what nobody needs, or alter the table by hand"
        yield Hazard("columns", ", ".join(names), "refused", f"{says}, with their values", remedy)
    if replace(hop.options, mode=mode).keeps_rows(plan):
        first, last = plan.target.system.dialect.limited(1)
        any_row = f"SELECT {first}1 FROM {qualified(plan.target)}{last}"
        if servers.endpoint(plan.target).query(any_row):
            kept = f"{says}: those that 'write: {mode}' keeps, though the source has them no more"
            remedy = "If the source has all that are to stay, declare 'write: replace' for this run"
            yield Hazard("rows", "of earlier runs", "refused", kept, remedy)


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
