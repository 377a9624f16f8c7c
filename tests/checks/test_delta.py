"""How many rows differ, by the buckets that do."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.checks.delta import least_differing

BUCKETS = 1024


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 20_000))
def test_no_more_rows_than_differ_are_taken_for_sure(seed: int, rows: int) -> None:
    chance = random.Random(seed)
    unequal = len({chance.randrange(BUCKETS) for _ in range(rows)})
    assert unequal <= least_differing(unequal, BUCKETS, 10**6) <= rows


@pytest.mark.parametrize(
    ("unequal", "rows", "least"),
    [(1, 10**6, 1), (BUCKETS, 10**6, 2839), (BUCKETS, 1500, 1500), (512, 10**6, 589)],
)
def test_many_unequal_buckets_tell_of_many_rows(unequal: int, rows: int, least: int) -> None:
    assert least_differing(unequal, BUCKETS, rows) == least
