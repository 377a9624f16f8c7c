"""Values of typed columns: how to generate, write and read them."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable
from decimal import Decimal

from hypothesis import strategies as st

CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
NASTY = (
    *("", " ", "\t", "\r", "\n", "\r\n", "\\", "\\N", "\\n", "\\.", "NULL", "'", '"', "`", "a\tb"),
    *("\x01\x7f\x1f\b\f\v", "\U0001f600", "e\u0301", "\ufeff", "\ufffd", "\u2028", "trailing "),
    "\U0010ffff",
)
"""Texts that some format or tool is known to change."""

EDGES = (
    "1900-01-01 00:00:00.0000000",
    "2299-12-31 23:59:59.9999999",
    "1899-12-31 23:59:59.9999999",
    "2300-01-01 00:00:00.0000000",
    "0001-01-01 00:00:00.0000000",
    "9999-12-31 23:59:59.9999999",
    "1969-12-31 23:59:59.9999999",
)
"""The first and last moments that some type of some target holds."""


def ints(bits: int) -> st.SearchStrategy[int]:
    """All integers of a width."""
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    """All decimals of so many digits, so many of them behind the point."""
    limit = 10**precision - 1

    def decimal(number: int) -> Decimal:
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))

    return st.integers(-limit, limit).map(decimal)


def ticks(low: int, high: int) -> st.SearchStrategy[str]:
    """Timestamps of 100 ns between two years, as ISO text."""
    start = dt.datetime(low, 1, 1)
    seconds = int((dt.datetime(high, 12, 31, 23, 59, 59) - start).total_seconds())
    return st.builds(
        lambda second, tick: f"{start + dt.timedelta(seconds=second)}.{tick:07d}",
        st.integers(0, seconds),
        st.integers(0, 9_999_999),
    )


def exactly(digits: int) -> Callable[[str], str]:
    """ISO timestamps with so many decimals."""
    return lambda value: value[: 19 + (digits + 1 if digits else 0)]


def plain(value: Decimal) -> str:
    """A decimal's literal, without an exponent."""
    return f"{value:f}"


def quoted(value: object) -> str:
    """The literal of what holds no quote."""
    return f"'{value}'"


def unicode_literal(text: str) -> str:
    """A T-SQL literal with its characters and line ends as they are."""
    return "N'" + text.replace("'", "''") + "'"


def float_bits(format_: str) -> Callable[[object], object]:
    """A float's bits out of its shortest text or itself; NaN is NaN."""

    def read(value: object) -> object:
        number = float(value)  # type: ignore[arg-type]
        return "nan" if math.isnan(number) else struct.pack(format_, number)

    return read


def hexed(text: str) -> str:
    """The text's UTF-8 bytes, as ClickHouse's hex() shows them."""
    return text.encode().hex().upper()
