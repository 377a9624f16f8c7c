"""When two series of runs differ, and by how much."""

from __future__ import annotations

import pytest

from tableferry_bench.statistics import growth, judged, ratios, skew, summary


def test_summary() -> None:
    found = summary([3.0, 1.0, 2.0, 10.0])
    assert found is not None
    assert (found.median, found.least, found.most, found.runs) == (2.5, 1.0, 10.0, 4)
    assert found.spread == pytest.approx(3.6)
    assert summary([]) is None


def test_ratios_are_of_the_same_round() -> None:
    assert ratios({0: 4.0, 1: 9.0, 2: 5.0}, {0: 2.0, 1: 3.0, 3: 1.0}) == [2.0, 3.0]
    assert ratios({0: 4.0}, {0: 0.0}) == []


JUDGEMENTS = [
    ([10, 11, 12], [20, 21, 22], "regression"),
    ([20, 21, 22], [10, 11, 12], "improvement"),
    ([10, 11, 12], [11.9, 21, 22], "noise"),
    ([10, 30, 12], [11, 20, 22], "noise"),
    ([10, 10, 10], [10.4, 10.4, 10.4], "same"),
    ([10, 10], [20, 20], "too few runs"),
    ([], [20, 20, 20], "too few runs"),
]


@pytest.mark.parametrize(("before", "after", "expected"), JUDGEMENTS)
def test_a_change_counts_if_the_runs_do_not_overlap(
    before: list[float], after: list[float], expected: str
) -> None:
    assert judged(before, after, better="less", part=0.05) == expected


def test_more_is_better_of_rates() -> None:
    assert judged([10, 11, 12], [20, 21, 22], better="more", part=0.05) == "improvement"
    assert judged([20, 21, 22], [10, 11, 12], better="more", part=0.05) == "regression"


def test_skew_is_the_largest_by_the_mean() -> None:
    assert skew([1, 1, 4]) == 2
    assert skew([5, 5]) == 1
    assert skew([]) is None


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.1, 2.0])
def test_growth_is_found_behind_what_the_start_costs(exponent: float) -> None:
    points = {size: 2.0 + 0.01 * size**exponent for size in (100, 1000, 5000)}
    assert growth({1: 2.0, **points}) == pytest.approx(exponent)
    hidden = growth(points)
    assert hidden is not None and hidden < exponent, "the start would hide it"


def test_growth_needs_two_sizes_that_cost_more_than_one() -> None:
    assert growth({1: 2.0, 100: 3.0}) is None
    assert growth({1: 2.0, 100: 1.9, 1000: 3.0}) is None
    assert growth({}) is None
