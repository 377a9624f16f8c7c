"""`write: swap`: all ranges gather in a shadow table, which then takes the target's place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import dagster as dg

from assets.journey import Hop, Journey, Servers, target_rows
from assets.ledger import Reason, State, records
from assets.worker import Outcome, Work
from resources.errors import TableferryError


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

    Args:
        journey: the transfer's plan.
        hop: the hop that swaps.
        servers: where the shadow table is.
        instance: whose event log says which ranges are gathered, and of which data version.
        reasons: why each range would run if it were replaced alone.
    """
    same = (Reason.UNCHANGED, Reason.UNCHECKED)
    if all(reason in same for reason in reasons.values()):
        return dict(reasons)
    rows = target_rows(journey, hop.written_plan, servers) or {}
    seen = records(instance, hop.asset, reasons)
    versions, expected = journey.versions(hop), journey.rows()
    found: dict[str, Reason] = {}
    for name, reason in reasons.items():
        before = seen.get(name)
        if (
            before is not None
            and before.state is State.SHADOWED
            and before.data_version == str(versions[name])
            and rows.get(name) == expected[name]
        ):
            found[name] = Reason.SHADOWED
        else:
            found[name] = Reason.SWAP if reason in same else reason
    return found


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
        SwapIncomplete: a range is not in the shadow.
    """
    gathered = [outcome for outcome in outcomes if outcome.record.state is State.SHADOWED]
    missing = sorted(set(known) - {outcome.record.range for outcome in gathered})
    if missing:
        raise SwapIncomplete(
            f"{work.journey.transfer.transfer}: {len(missing)} of {len(known)} ranges are not in "
            f"the shadow of {hop.plan.target} yet, e.g. {missing[0]}; a swap needs all of them"
        )
    work.servers.target(hop.plan.target.system).promote(hop.plan, hop.options)
    done = []
    for outcome in gathered:
        record = replace(outcome.record, state=State.COMMITTED)
        work.writers[hop.number].commit(record)
        for verdict in reversed(outcome.verdicts):
            work.writers[hop.number].checked(record.range, verdict)
        done.append(replace(outcome, record=record))
    return done
