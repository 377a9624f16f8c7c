"""Forecasts how long a run takes, and the bytes and room it needs, by what earlier runs took.

Dagster is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tableferry.assets.log.forecasts import Forecast, Parts, Span, other_runs, own_runs
from tableferry.assets.log.queries import Log
from tableferry.assets.planning.expected import (
    BYTES_PER_SECOND,
    ROWS_PER_SECOND,
    SECONDS_PER_HOP,
)
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.decision import Action
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.resources.words import counted

RANGE_SECONDS = 0.06
ROWS_COMPARED_AS = 0.3
"""To compare a row on both sides takes about this share of what it takes to move it."""

SPREADS = {"own": (0.8, 1.3), "few": (0.6, 1.7), "others": (0.5, 2.0), "typical": (0.3, 3.0)}
"""The least spread of a forecast around its likeliest value, by what it is made of."""
FEW = 3
"""Fewer runs than these say little about the spread of a transfer's runs."""
FADING = 0.8
"""The weight of a run, in comparison with the one after it."""
USUAL = 0.01
"""The weight of what is usual, in comparison with that of the newest run."""
DESCENTS = 50


@dataclass(frozen=True)
class Workload:
    """What a run is about to do, over all of its hops."""

    ranges: int = 0
    """Ranges that are moved or compared."""
    rows: int = 0
    """Rows of the ranges that are moved."""
    rows_compared: int = 0
    """Rows of the ranges whose sides are compared first, or only; of these few move."""

    def typical_seconds(self, row_bytes: float) -> Parts:
        """Return what it takes on a typical machine: the run, its ranges, and its rows."""
        rows = self.rows + ROWS_COMPARED_AS * self.rows_compared
        moving = max(rows / ROWS_PER_SECOND, rows * row_bytes / BYTES_PER_SECOND)
        return SECONDS_PER_HOP, self.ranges * RANGE_SECONDS, moving


def workload(plan: TransferPlan, hops: Sequence[Hop]) -> Workload:
    """Sum up what was decided about the ranges of a run in the hops that it goes through."""
    ranges = rows = compared = 0
    for hop in hops:
        due = [name for name, decision in plan.decided[hop.number].items() if decision.runs]
        whole = moved_whole(plan, hop)
        ranges += len(due)
        rows += sum(whole.values())
        compared += sum(plan.fingerprints[name].rows for name in due if name not in whole)
    return Workload(ranges, rows, compared)


def moved_whole(plan: TransferPlan, hop: Hop) -> dict[str, int]:
    """Return the rows of those ranges of a hop that move as a whole, by range.

    The others are compared first, or only, or have only newer rows moved.
    """
    return {
        name: plan.fingerprints[name].rows
        for name, decision in plan.decided[hop.number].items()
        if decision.action is Action.MOVE_ALL
    }


def forecast(
    work: Workload, own: Sequence[Forecast], others: Sequence[Forecast], row_bytes: float | None
) -> Forecast:
    """Forecast a run by the newest runs that succeeded.

    What the run, its ranges and its rows take on a typical machine is scaled, each by a factor of
    its own, to what earlier runs took.

    Args:
        work: what the run is about to do.
        own: how earlier runs of the transfer went, the newest first.
        others: how runs of other transfers went, the newest first.
        row_bytes: the bytes of a row on the wire; None if unknown.
    """
    typical = work.typical_seconds(row_bytes or 0)
    factors = _fitted(own, _fitted(others, (1.0, 1.0, 1.0)))
    if own:
        spread = SPREADS["own" if len(own) >= FEW else "few"]
        basis = f"by its last {counted(len(own), 'run')}"
    elif others:
        spread, basis = SPREADS["others"], "by runs of other transfers here"
    else:
        spread, basis = SPREADS["typical"], "by a typical machine, as nothing has run here yet"
    likely = _scaled(typical, factors)
    off = sorted(run.took / _scaled(run.typical, factors) for run in own or others if run.took)
    tenth = len(off) // 10
    low, high = (off[tenth], off[-1 - tenth]) if off else spread
    seconds = Span(likely * min(low, spread[0]), likely, likely * max(high, spread[1]))
    total = int(work.rows * row_bytes) if row_bytes is not None else None
    return Forecast(seconds, typical, work.rows, total, basis)


def _scaled(typical: Parts, factors: Parts) -> float:
    return sum(seconds * factor for seconds, factor in zip(typical, factors, strict=True))


def _fitted(past: Sequence[Forecast], usual: Parts) -> Parts:
    """Return the factors by which typical seconds come nearest to what earlier runs took.

    They minimise the squares of the relative errors, later runs counting more, none being
    negative, by coordinate descent. `usual` holds where the runs say little.
    """
    products = [[USUAL * (row == column) for column in range(3)] for row in range(3)]
    sums = [USUAL * before for before in usual]
    for age, run in enumerate(past):
        if run.took:
            shares = [seconds / run.took for seconds in run.typical]
            for row, share in enumerate(shares):
                sums[row] += FADING**age * share
                for column, other in enumerate(shares):
                    products[row][column] += FADING**age * share * other
    factors = [*usual]
    for _ in range(DESCENTS):
        for part in range(3):
            rest = sum(products[part][i] * factors[i] for i in range(3) if i != part)
            factors[part] = max(0.0, (sums[part] - rest) / products[part][part])
    return factors[0], factors[1], factors[2]


def expect(
    log: Log,
    transfer: str,
    work: Workload,
    sample: Callable[[], float | None] = lambda: None,
) -> Forecast:
    """Forecast a run of a transfer by the event log.

    Args:
        log: the event log.
        transfer: its name.
        work: what the run is about to do.
        sample: returns the bytes of a row on the wire; called if no earlier run has moved any.
    """
    own = own_runs(log, transfer)
    moved = next((run for run in own if run.rows_moved and run.bytes_moved), None)
    row_bytes = moved.bytes_moved / moved.rows_moved if moved else sample() if work.rows else None
    return forecast(work, own, other_runs(log, transfer), row_bytes)
