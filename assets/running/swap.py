"""`write: swap`: all ranges gather in a shadow table, which then takes the target's place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import dagster as dg

from assets.log.ledger import records
from assets.log.records import Reason, State
from assets.planning.decisions import target_rows
from assets.planning.resolve import Hop, Journey, Servers
from assets.running.work import SETTLED, Outcome, Work
from resources.crash_points import reached
from resources.errors import TableferryError
from resources.retry import retrying


class SwapIncomplete(TableferryError):
    """The shadow table lacks ranges, so it cannot take the target's place yet."""


def swap_reasons(
    journey: Journey,
    hop: Hop,
    servers: Servers,
    instance: dg.DagsterInstance,
    reasons: Mapping[str, Reason],
) -> dict[str, Reason]:
    """What a swap has to do: nothing if no range changed, else every range that is not gathered.

    A run may have died after it had put the shadow in place, before it recorded that. The ranges
    say which table they were gathered in: if that is the target now, they are to be recorded only.

    Args:
        journey: the transfer's plan.
        hop: the hop that swaps.
        servers: where the shadow table is.
        instance: whose event log says which ranges are gathered, and of which data version.
        reasons: why each range would run if it were replaced alone.
    """
    same = {name for name, reason in reasons.items() if reason in SETTLED}
    if same == set(reasons):
        return dict(reasons)
    versions, seen = journey.versions(hop), records(instance, hop.asset, reasons)
    gathered = {
        name: record.shadow
        for name, record in seen.items()
        if record.state is State.SHADOWED
        and record.data_version == str(versions[name])
        and reasons[name] is not Reason.FORCED
    }
    sound = {
        name: table
        for name, table in gathered.items()
        if reasons[name] is not Reason.LAST_CHECK_FAILED
    }
    promoted = _held_by(hop.in_place, sound, journey, servers)
    if same | promoted == set(reasons):
        return {**reasons, **dict.fromkeys(promoted, Reason.PROMOTED)}
    shadowed = _held_by(hop, gathered, journey, servers)
    return {
        name: Reason.SHADOWED if name in shadowed else Reason.SWAP if name in same else reason
        for name, reason in reasons.items()
    }


def _held_by(
    hop: Hop, gathered: Mapping[str, str | None], journey: Journey, servers: Servers
) -> set[str]:
    """Of ranges and the tables they were gathered in, those in the table that the hop writes to."""
    plan = hop.written_plan
    table = servers.target(plan.target).identity(plan.target) if gathered else None
    if table is None or table not in gathered.values():
        return set()
    rows, expected = target_rows(journey, plan, servers) or {}, journey.rows()
    return {
        name
        for name, gathered_in in gathered.items()
        if gathered_in == table and rows.get(name, 0) == expected[name]
    }


def promote(
    work: Work, hop: Hop, known: Sequence[str], outcomes: Sequence[Outcome]
) -> list[Outcome]:
    """Put the shadow in the target's place, and record all its ranges as committed.

    Args:
        work: the run.
        hop: the hop that swaps.
        known: every range of the transfer, also those outside of this run.
        outcomes: what became of the run's ranges.

    Raises:
        SwapIncomplete: a range is not in the shadow, or the shadow went to another run.
    """
    gathered = [outcome for outcome in outcomes if outcome.record.state is State.SHADOWED]
    missing = sorted(set(known) - {outcome.record.range for outcome in gathered})
    if missing:
        raise SwapIncomplete(
            f"{work.journey.transfer.transfer}: {len(missing)} of {len(known)} ranges are not in "
            f"the shadow of {hop.plan.target} yet, e.g. {missing[0]}; a swap needs all of them"
        )
    _put_in_place(work, hop)
    done = []
    for outcome in gathered:
        record = replace(outcome.record, state=State.COMMITTED)
        work.writers[hop.number].commit(record)
        reached("after_event")
        for verdict in reversed(outcome.verdicts):
            work.writers[hop.number].checked(record.range, verdict)
        done.append(replace(outcome, record=record))
    return done


def _put_in_place(work: Work, hop: Hop) -> None:
    """Promote the shadow, and see that the target is now the table that was gathered in."""
    target = work.servers.target(hop.plan.target)
    reached("before_swap")
    for attempt in retrying():
        with attempt:
            target.promote(hop.plan, hop.options)
            found = target.identity(hop.plan.target)
    if found is None or found != work.shadows[hop.number]:
        raise SwapIncomplete(
            f"{hop.plan.target} is not the table that this run gathered ranges in: "
            "another run has swapped meanwhile"
        )
    reached("after_swap")
