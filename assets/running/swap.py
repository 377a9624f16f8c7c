"""`write: swap`: all ranges gather in a shadow table, which then takes the target's place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tableferry.assets.log.states import State
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.running.work import RangeOutcome, Work
from tableferry.resources.connecting.retry import retrying
from tableferry.resources.contract.target import TargetMoved
from tableferry.resources.crash_points import reached
from tableferry.resources.errors import TableferryError


class SwapIncomplete(TableferryError):
    """The shadow table lacks ranges, so it cannot take the target's place yet."""


def promote(
    work: Work, hop: Hop, all_names: Sequence[str], outcomes: Sequence[RangeOutcome]
) -> list[RangeOutcome]:
    """Put the shadow in the target's place, and record all ranges of the transfer as committed.

    Raises:
        SwapIncomplete: a range is not in the shadow, or has other rows there, or another run has
            taken the shadow.
        SourceMoved: the source was truncated or replaced between the reading of two ranges.
    """
    gathered = [outcome for outcome in outcomes if outcome.record.state is State.SHADOWED]
    missing = sorted(set(all_names) - {outcome.record.range for outcome in gathered})
    if missing:
        raise SwapIncomplete(
            f"{work.plan.transfer.transfer}: {len(missing)} of {len(all_names)} ranges are not in "
            f"the shadow of {hop.plan.target} yet, e.g. {missing[0]}; a swap needs all of them"
        )
    if hop.first:
        work.source.require_one_state()
    _put_in_place(work, hop, gathered)
    done = []
    for outcome in gathered:
        record = replace(outcome.record, state=State.COMMITTED)
        work.writers[hop.number].commit(record)
        reached("after_event")
        work.writers[hop.number].all_checked(record.range, reversed(outcome.verdicts))
        done.append(replace(outcome, record=record))
    return done


def _put_in_place(work: Work, hop: Hop, gathered: Sequence[RangeOutcome]) -> None:
    """Promote the shadow, and verify that the target is now this run's shadow."""
    target, versions = work.loaders[hop.number], {}
    for outcome in gathered:
        versions[outcome.record.range] = str(outcome.record.data_version)
    reached("before_swap")
    for attempt in retrying():
        with attempt:
            try:
                known = work.plan.published.get(hop.number)
                target.promote(hop.plan, hop.options, versions, known)
            except TargetMoved as error:
                # a range would be read again; a swap is not
                raise SwapIncomplete(f"{error}; run it again") from None
            identity = target.identity(hop.plan.target)
            published = target.published(hop.plan, hop.options)
    if identity is None or identity != work.shadows[hop.number]:
        raise SwapIncomplete(
            f"{hop.plan.target} is not the table that this run gathered ranges in: "
            "another run has swapped meanwhile"
        )
    if published is not None:
        marked = {name: marker.version for name, marker in published.of_target.items()}
        if others := sorted(name for name in versions if marked.get(name) != versions[name]):
            raise SwapIncomplete(
                f"{hop.plan.target} range {others[0]} is not what this run gathered: another run "
                "has published it; run it again"
            )
    reached("after_swap")
