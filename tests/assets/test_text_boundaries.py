"""Tables with text keys are cut into even ranges, of which every text is in exactly one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.assets.planning.ranges.boundaries import KeyStatistics
from tableferry.assets.planning.ranges.cutting import (
    extend_ranges,
    find_range,
    plan_ranges,
    top_bound,
)
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tests.assets.test_ranges import statistics_of
from tests.resources.test_text_keys import BOUNDS, KEYS

SPECS = st.one_of(
    st.fixed_dictionaries({"rows": st.integers(1, 20)}),
    st.fixed_dictionaries({"count": st.integers(1, 12)}),
    st.fixed_dictionaries({"bounds": st.sets(BOUNDS, min_size=2, max_size=6).map(sorted)}),
)


def assert_partition(ranges: Sequence[KeyRange], keys: Sequence[str]) -> None:
    bounded = sorted((r for r in ranges if not r.null), key=lambda one: str(one.lower or ""))
    assert bounded[0].lower is None and bounded[-1].upper is None
    assert all(below.upper == above.lower for below, above in pairwise(bounded))
    for key in keys:
        assert sum(one.contains(key) for one in ranges) == 1, key


@given(st.lists(KEYS, max_size=60), SPECS, st.booleans(), st.lists(KEYS, max_size=20))
def test_every_text_is_in_exactly_one_range(
    keys: list[str], spec: dict[str, Any], nullable: bool, others: list[str]
) -> None:
    ranges = plan_ranges(statistics_of(keys, nullable), spec, "text")
    assert_partition(ranges, [*keys, *others])
    assert [one.null for one in ranges].count(True) == nullable
    names = {one.name: one for one in ranges}
    for name, one in names.items():
        assert find_range(name, names) == name
        if not one.null:
            assert find_range(f"{one.lower or ''}..{one.upper or ''}", names) is not None
    for key in keys:
        if ".." not in key:
            found = find_range(key, names)
            assert found is not None and (names[found].contains(key) or found == key)


@given(st.lists(KEYS, max_size=30), st.lists(st.lists(KEYS, max_size=30), max_size=3))
def test_growth_keeps_finite_ranges_and_loses_no_key(
    keys: list[str], more: list[list[str]]
) -> None:
    ranges, spec = plan_ranges(statistics_of(keys), {"rows": 5}, "text"), {"rows": 5}
    for added in more:
        keys = [*keys, *added]
        top = top_bound(ranges)
        seen = [key for key in keys if top is None or key >= str(top)]
        grown = extend_ranges(ranges, statistics_of(seen), spec, "text")
        assert all(one.upper is None for one in grown.retire)
        ranges = [*grown.keep, *grown.add]
        assert_partition(ranges, keys)


@pytest.mark.parametrize("spec", [{"rows": 250}, {"count": 4}])
def test_ranges_are_even_and_their_names_short(spec: dict[str, Any]) -> None:
    keys = [f"https://shop.example/orders/{number:08d}" for number in range(1000)]
    ranges = plan_ranges(statistics_of(keys), spec, "text")
    assert [sum(one.contains(key) for key in keys) for one in ranges] == [250] * 4
    assert ranges[1].name == (
        "https://shop.example/orders/0000025 .. https://shop.example/orders/000005"
    )


def test_keys_that_repeat_are_never_parted() -> None:
    keys = ["DE"] * 900 + ["FR"] * 50 + ["IT"] * 50
    ranges = plan_ranges(statistics_of(keys), {"rows": 100}, "text")
    assert [one.name for one in ranges] == [".. F", "F .."]


def test_the_open_range_takes_what_comes_until_it_has_too_many_rows() -> None:
    keys = [f"{number:04d}" for number in range(200)]
    ranges = plan_ranges(statistics_of(keys), {"rows": 100}, "text")
    assert [one.name for one in ranges] == [".. 01", "01 .."]

    def grown(last: int) -> Any:
        above = [f"{number:04d}" for number in range(100, last)]
        return extend_ranges(ranges, statistics_of(above), {"rows": 100}, "text")

    assert not grown(250).add
    assert [one.name for one in grown(251).add] == ["01 .. 02", "02 .."]
    assert [one.name for one in grown(430).add] == ["01 .. 02", "02 .. 03", "03 .. 04", "04 .."]


def test_an_empty_table_has_one_range() -> None:
    assert [one.name for one in plan_ranges(KeyStatistics(0), {"rows": 5}, "text")] == [".."]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"width": 5}, "has no width"),
        ({"count": 2, "bounds": ["a", "b"]}, "no span to divide"),
        ({"bounds": ["b", "a"]}, "strictly ascending"),
        ({"bounds": ["a", 5]}, "5 should be a text; put it in quotes"),
        ({"bounds": ["a", "b "]}, "'b ' ends with a blank"),
        ({"bounds": ["a", "😀"]}, r"holds U\+1F600"),
    ],
)
def test_a_spec_that_texts_cannot_have(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_ranges(KeyStatistics(0), spec, "text")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("AB..AC", "AB .. AC"),
        ("AB .. AC", "AB .. AC"),
        ("..AB", ".. AB"),
        ("AC..", "AC .."),
        ("ABBA", "AB .. AC"),
        ("A", ".. AB"),
        ("a..b", "AC .."),
        ("null", "null"),
    ],
)
def test_a_range_is_found_by_what_one_types(text: str, found: str) -> None:
    ranges = [KeyRange("text", *pair) for pair in pairwise([None, "AB", "AC", None])]
    ranges.append(KeyRange("text", null=True))
    assert find_range(text, {one.name: one for one in ranges}) == found
