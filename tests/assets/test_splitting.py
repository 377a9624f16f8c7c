"""Consecutive ranges in parts with about as many rows, for several runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.assets.planning.ranges.known import MOST_RUNS, segments, split_by_rows

NAMES = [f"r{number:03d}" for number in range(100)]


@given(
    count=st.integers(0, 100),
    most=st.integers(1, 70),
    rows=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10**9)),
)
def test_parts_are_even_consecutive_parts(count: int, most: int, rows: dict[str, int]) -> None:
    names = NAMES[:count]
    parts = split_by_rows(names, most, rows)
    assert [name for part in parts for name in part] == names
    assert len(parts) == min(most, count)
    assert all(parts)
    if set(names) <= set(rows) and names:
        weights = {name: max(rows[name], 1) for name in names}
        even = sum(weights.values()) / len(parts)
        heaviest = max(sum(weights[name] for name in part) for part in parts)
        assert heaviest <= even + max(weights.values())


@given(count=st.integers(1, 100), most=st.integers(1, 20))
def test_without_rows_the_ranges_are_counted(count: int, most: int) -> None:
    sizes = [len(part) for part in split_by_rows(NAMES[:count], most)]
    assert max(sizes) - min(sizes) <= 1


def test_a_range_of_unknown_rows_counts_as_the_average() -> None:
    assert split_by_rows(["a", "b", "c", "d"], 2, {"a": 30, "b": 10, "c": 10}) == [
        ["a"],
        ["b", "c", "d"],
    ]


ORDER = [f"r{number:02d}" for number in range(20)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (set(), []),
        ({"r03"}, [("r03", "r03")]),
        (set(ORDER), [("r00", "r19")]),
        ({"r00", "r01", "r05"}, [("r00", "r01"), ("r05", "r05")]),
        ({"r00", "r02", "r04", "r06"}, [("r00",) * 2, ("r02",) * 2, ("r04",) * 2, ("r06",) * 2]),
        ({"r00", "r02", "r04", "r06", "r08"}, [("r00", "r08")]),
    ],
)
def test_segments(wanted: set[str], expected: list[tuple[str, str]]) -> None:
    assert segments(ORDER, wanted) == expected
    assert len(segments(ORDER, wanted)) <= MOST_RUNS


def test_segments_that_must_not_span_others_stay_apart() -> None:
    wanted = set(ORDER[::2])
    assert segments(ORDER, wanted, most=len(ORDER)) == [(name, name) for name in ORDER[::2]]
