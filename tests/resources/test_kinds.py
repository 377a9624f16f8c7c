"""Counts of days and microseconds, as dates and timestamps."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.types.kinds import EPOCH, civil, days, iso, microseconds


@given(st.dates())
def test_days_of_python_have_its_dates(date: dt.date) -> None:
    number = (date - EPOCH).days
    assert days(date.isoformat()) == number
    assert civil(number) == (date.year, f"{date:%m-%d}")
    first, last = microseconds(number, number)
    assert iso(first) == f"{date} 00:00:00.000000"
    assert iso(last) == f"{date} 23:59:59.999999"


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (-2440588 - 1, (-4713, "11-23")),
        (2145042905, (5874897, "12-31")),
        (-719163, (0, "12-31")),
        (2932897, (10000, "01-01")),
    ],
)
def test_days_beyond_pythons_dates(number: int, expected: tuple[int, str]) -> None:
    assert civil(number) == expected
