"""When the rows of the ranges are all rows of the table."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tableferry.checks.whole_table import ranges_partition
from tableferry.resources.keys.range import KeyRange

KEYS = st.integers(-20, 20)
BOUNDS = st.none() | KEYS
RANGES = st.builds(
    lambda ends: KeyRange("integer", *ends),
    st.tuples(BOUNDS, BOUNDS).filter(lambda ends: None in ends or ends[0] < ends[1]),  # type: ignore[operator]
)
NULL = KeyRange("integer", null=True)


def holds(one: KeyRange, key: int) -> bool:
    above = one.lower is None or one.lower <= key  # type: ignore[operator]
    return above and (one.upper is None or key < one.upper)  # type: ignore[operator]


def cut(*keys: int) -> list[KeyRange]:
    """What a table is planned as."""
    ends = [None, *sorted(keys), None]
    return [KeyRange("integer", lower, upper) for lower, upper in pairwise(ends)]


@given(st.sets(KEYS), st.booleans(), st.randoms())
def test_planned_ranges_have_every_key(keys: set[int], nullable: bool, order: object) -> None:
    ranges = [*cut(*keys), *([NULL] if nullable else [])]
    order.shuffle(ranges)  # type: ignore[attr-defined]
    assert ranges_partition(ranges, nullable=nullable)
    assert not ranges_partition(ranges, nullable=not nullable)
    assert not ranges_partition(ranges[1:], nullable=nullable)


@given(st.lists(RANGES, max_size=5))
def test_no_other_ranges_are_taken_for_it(ranges: list[KeyRange]) -> None:
    if ranges_partition(ranges, nullable=False):
        for key in range(-25, 25):
            assert sum(holds(one, key) for one in ranges) == 1


def test_of_files_there_may_be_others() -> None:
    assert not ranges_partition([KeyRange("file", "a.csv")], nullable=False)
