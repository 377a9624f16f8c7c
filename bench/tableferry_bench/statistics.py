"""Figures of a few noisy measurements: medians, paired ratios, and whether two differ at all."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Judgement = Literal["regression", "improvement", "same", "noise", "too few runs"]

LEAST_RUNS = 3
"""With three runs each, that all of one side lie beyond all of the other has a probability of 1 in
20 if nothing has changed (the exact test of Mann and Whitney); with two runs, of 1 in 6."""


@dataclass(frozen=True)
class Summary:
    """What a figure was in all counted runs of one case."""

    median: float
    least: float
    most: float
    runs: int

    @property
    def spread(self) -> float:
        """From the least to the most, as a part of the median."""
        return (self.most - self.least) / self.median if self.median else 0.0


def summary(values: Sequence[float]) -> Summary | None:
    """Summarise values; None without any."""
    if not values:
        return None
    return Summary(statistics.median(values), min(values), max(values), len(values))


def ratios(one: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    """One figure by the other, of each round that has both.

    What ran next to each other saw the same machine; that drifts by more than most changes.

    Args:
        one: by number of the round.
        other: the same.
    """
    return [one[number] / other[number] for number in sorted(one) if other.get(number)]


def judged(
    before: Sequence[float], after: Sequence[float], *, better: Literal["less", "more"], part: float
) -> Judgement:
    """Whether a figure has changed, and for the worse.

    It has if its median moved by more than `part`, and no run of the one side is among those of the
    other: else the runs overlap, and the difference is noise.

    Args:
        before: of all counted runs.
        after: the same.
        better: which way is better.
        part: change of the median that nobody minds, e.g. 0.05.
    """
    old, new = summary(before), summary(after)
    if old is None or new is None:
        return "too few runs"
    change = new.median / old.median - 1 if old.median else 0.0
    if abs(change) <= part:
        return "same"
    if min(old.runs, new.runs) < LEAST_RUNS:
        return "too few runs"
    if new.least <= old.most and old.least <= new.most:
        return "noise"
    return "regression" if (change > 0) == (better == "less") else "improvement"


def growth(points: Mapping[int, float]) -> float | None:
    """The exponent of a cost's growth: 1 if it doubles with the size, 2 if it quadruples.

    What size 1 costs is taken off first, so that the start of a program does not hide the growth.
    The exponent is the slope of the straight line that has the least squares of distances from
    the logarithms.

    Args:
        points: the cost by size.

    Returns:
        None if fewer than two sizes cost more than size 1.
    """
    base = points.get(1, 0.0)
    more = {size: cost - base for size, cost in points.items() if size > 1 and cost > base}
    if len(more) < 2:
        return None
    logs = [(math.log(size), math.log(cost)) for size, cost in more.items()]
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def skew(values: Sequence[float]) -> float | None:
    """How much larger the largest is than their mean; 1 if all are alike, None of none."""
    mean = statistics.fmean(values) if values else 0.0
    return max(values) / mean if mean else None
