"""How often rows that differ are compared again, as users write it."""

from __future__ import annotations

import pytest

from tableferry.checks.recheck import Recheck
from tableferry.resources.errors import InputError


@pytest.mark.parametrize(
    ("text", "times", "seconds"), [("3x10s", 3, 10), ("1x0s", 1, 0), ("2x1.5m", 2, 90)]
)
def test_looks_and_pauses_are_read(text: str, times: int, seconds: float) -> None:
    recheck = Recheck.parse(text)
    assert (recheck.times, recheck.seconds) == (times, seconds)
    assert Recheck.parse(str(recheck)) == recheck


@pytest.mark.parametrize("text", ["", "3", "3x", "x10s", "3x10", "0x1s", "101x1s", "1x61m"])
def test_other_texts_are_refused_with_the_value(text: str) -> None:
    with pytest.raises(InputError, match=f"recheck: '{text}' should be a number of retries"):
        Recheck.parse(text)
