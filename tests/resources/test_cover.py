"""Whether ranges hold each key once, and which lack where they do not."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.keys.cover import (
    filled,
    gaps,
    in_key_order,
    lacking,
    overlapping,
    partition,
)
from tableferry.resources.keys.range import KeyRange

KEYS = st.integers(-20, 20)
BOUNDS = st.none() | KEYS
RANGES = st.builds(
    lambda ends: KeyRange("integer", *ends),
    st.tuples(BOUNDS, BOUNDS).filter(lambda ends: None in ends or ends[0] < ends[1]),  # type: ignore[operator]
)
NULL = KeyRange("integer", null=True)
ONE = "00000001-0000-0000-0000-000000000000"


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
    assert partition(ranges, nullable=nullable)
    assert not partition(ranges, nullable=not nullable)
    assert not partition(ranges[1:], nullable=nullable)


@given(st.lists(RANGES, max_size=5))
def test_no_other_ranges_are_taken_for_it(ranges: list[KeyRange]) -> None:
    if partition(ranges, nullable=False):
        for key in range(-25, 25):
            assert sum(holds(one, key) for one in ranges) == 1


def test_of_files_there_may_be_others() -> None:
    assert not partition([KeyRange("file", "a.csv")], nullable=False)


@given(st.lists(RANGES, min_size=1, max_size=5))
def test_what_lacks_has_the_keys_that_no_range_has(ranges: list[KeyRange]) -> None:
    missing = gaps([*ranges, NULL])
    for key in range(-25, 25):
        held = any(holds(one, key) for one in ranges)
        assert sum(holds(one, key) for one in missing) == (not held)
    assert missing == in_key_order(missing)
    assert overlapping([*missing, *ranges]) == overlapping(ranges)


@given(st.lists(RANGES, max_size=6), st.sets(KEYS, min_size=1), st.randoms())
def test_what_lacks_is_cut_as_it_was(others: list[KeyRange], keys: set[int], order: object) -> None:
    ranges = cut(*keys)
    left = [one for one in ranges if order.random() < 0.5]  # type: ignore[attr-defined]
    assert set(left) | {p for gap in gaps(left) for p in filled(gap, ranges)} == (
        set(ranges) if left else set()
    )
    again = [*left, *(part for gap in gaps(left) for part in filled(gap, others))]
    assert not left or partition(again, nullable=False)


def test_of_null_alone_all_else_lacks() -> None:
    assert gaps([NULL]) == [KeyRange("integer")]
    assert gaps([KeyRange("file", "a.csv")]) == gaps([]) == []


def test_two_ranges_that_share_keys_are_found() -> None:
    one, two = KeyRange("integer", 1, 9), KeyRange("integer", 5, 12)
    assert overlapping([two, KeyRange("integer", None, 1), one]) == (one, two)
    assert overlapping([NULL, NULL]) == (NULL, NULL)
    whole, part = KeyRange("file", "a"), KeyRange("file", "a", rows=(1, 9))
    assert overlapping([part, KeyRange("file", "b"), whole]) == (whole, part)


def part(first: int, past: int | None, file: str = "a") -> KeyRange:
    return KeyRange("file", file, rows=(first, past))


def test_parts_of_files_that_lack_are_found() -> None:
    left = [part(1, 5, "b"), part(9, None, "b"), part(5, 9), KeyRange("file", "c")]
    missing = [part(1, 5), part(9, None), part(5, 9, "b")]
    assert gaps(left) == missing
    assert [filled(gap, left) for gap in missing] == [[gap] for gap in missing]


@pytest.mark.parametrize(
    ("names", "moved", "missing"),
    [
        (["0000000005.."], [], ["..0000000005"]),
        (["..0000000005", "0000000009.."], ["0000000005..0000000009"], ["0000000005..0000000009"]),
        (["..", "null"], ["null"], []),
        ([".."], ["null"], ["null"]),
        (["null"], ["null"], [".."]),
        ([], ["..", "null"], [".."]),
        ([], [], []),
        (["..2024-01-01", "2025-01-01.."], [], ["2024-01-01..2025-01-01"]),
        (["2024-01-01T00:00:00.."], [], ["..2024-01-01T00:00:00"]),
        ([".. a", "b .."], [], ["a .. b"]),
        ([f"..{ONE}"], [], [f"{ONE}.."]),
        (
            ["..0000000005", "0000000009.."],
            ["..2024-01-01", "2024-01-01..2025-01-01", "2025-01-01.."],
            ["0000000005..0000000009"],
        ),
        # one that somebody has added by hand tells nothing of the others
        (["..0000000005", "mine", "0000000005.."], [], []),
    ],
)
def test_names_alone_tell_what_lacks(
    names: list[str], moved: list[str], missing: list[str]
) -> None:
    assert lacking(names, moved, of_files=False) == missing


def test_names_of_files_tell_what_lacks() -> None:
    known, moved = ["a.csv", "b#0000000005.."], ["a.csv", "b#0000000001..0000000005", "c.csv", "b"]
    assert lacking(known, moved, of_files=True) == ["b#0000000001..0000000005", "c.csv"]
