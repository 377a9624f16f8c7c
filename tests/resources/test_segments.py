"""The hashes of a range's segments tell which stretches of its keys have other rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources import registry
from tableferry.resources.digest.measure import Grouped
from tableferry.resources.digest.stretches import (
    COUNT,
    FEWEST_ROWS,
    changed_segments,
    put_together,
    segment_width,
    span,
)
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.types.type_map import Column

bounds = st.integers(-(2**62), 2**62 - 10**9)


def hashes(key_range: KeyRange, rows: dict[int, int]) -> str:
    """The hashes of rows, which are digests by key, and of enough others in each segment."""
    width = segment_width(key_range)
    assert width is not None and isinstance(key_range.lower, int)
    measured = {7 * COUNT + at: {"rows": FEWEST_ROWS, "digest": "1"} for at in range(COUNT)}
    for key, digest in rows.items():
        figures = measured[7 * COUNT + (key - key_range.lower) // width]
        figures["rows"] += 1
        figures["digest"] = str(int(str(figures["digest"])) + digest)
    measured[-1] = {"rows": 5, "digest": "9"}
    sums, texts = put_together([key_range] * 8, measured, "md5")
    total = sum(int(str(figures["rows"])) for figures in measured.values()) - 5
    assert sums.keys() == texts.keys() == {7} and sums[7]["rows"] == total
    return texts[7]


@given(
    lower=bounds,
    keys=st.integers(FEWEST_ROWS, 10**9),
    places=st.lists(st.floats(0, 1, exclude_max=True), max_size=5),
)
def test_the_changed_keys_are_in_the_changed_segments(
    lower: int, keys: int, places: list[float]
) -> None:
    key_range = KeyRange("integer", lower, lower + keys)
    changed = {lower + int(place * keys): 1 + at for at, place in enumerate(places)}
    found = changed_segments(key_range, hashes(key_range, {}), hashes(key_range, changed))
    assert found is not None
    assert all(any(part.contains(key) for part in found) for key in changed)
    width = segment_width(key_range)
    assert width is not None and sum(map(span, found)) <= width * len(changed)
    assert all(first.upper != second.lower for first, second in pairwise(found))
    for part in found:
        assert isinstance(part.upper, int) and part.upper <= lower + keys


def test_unknown_hashes_tell_nothing() -> None:
    key_range = KeyRange("integer", 0, 10**6)
    now = hashes(key_range, {3: 5})
    assert changed_segments(key_range, "", now) is None
    assert changed_segments(key_range, now, "") is None
    assert changed_segments(key_range, now[:-4], now) is None, "another number of segments"
    assert changed_segments(key_range, now, now) == []
    assert changed_segments(replace(key_range, upper=None), now, now) is None


@pytest.mark.parametrize(
    "key_range",
    [
        KeyRange("integer", None, 10**6),
        KeyRange("integer", 1, None),
        KeyRange("integer", null=True),
        KeyRange("integer", 1, FEWEST_ROWS),
        KeyRange("integer", -(2**62) - 1, 5),
        KeyRange("integer", 0, 10**30),
        KeyRange("text", "a", "b"),
    ],
)
def test_ranges_without_segments(key_range: KeyRange) -> None:
    assert segment_width(key_range) is None
    grouped = Grouped.by_segment([key_range], Column("id", "bigint"), registry.system("postgres"))
    assert grouped.group == "0"


def test_few_rows_of_a_wide_range_have_no_hashes() -> None:
    figures = {0: {"rows": FEWEST_ROWS - 1, "digest": "1"}}
    sums, texts = put_together([KeyRange("integer", 0, 10**6)], figures, "md5")
    assert sums and not texts
