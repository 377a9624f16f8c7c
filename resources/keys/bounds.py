"""Bounds of key ranges: read from servers and files, and counted as numbers."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid

from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import Bound, KeyKind

LARGEST = {3: 255, 5: 2**15 - 1, 10: 2**31 - 1, 19: 2**63 - 1, 20: 2**64 - 1}
"""The largest integer bound by decimal digits: its literal has the type of the column."""

DEFAULT_DIGITS = 10
_EPOCH = dt.datetime(1, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def to_number(bound: Bound) -> int:
    """Return a bound as an integer: itself, days, microseconds since 0001-01-01, or 128 bits."""
    if isinstance(bound, int):
        return bound
    if isinstance(bound, uuid.UUID):
        return bound.int
    assert not isinstance(bound, str), "texts and names of files have no number"
    if isinstance(bound, dt.datetime):
        return (bound - _EPOCH) // _MICROSECOND
    return bound.toordinal()


def from_number(number: int, kind: KeyKind) -> Bound:
    """Return the bound of a number, the inverse of `to_number`."""
    if kind == "integer":
        return number
    if kind == "uuid":
        return uuid.UUID(int=number)
    if kind == "timestamp":
        return _EPOCH + number * _MICROSECOND
    return dt.date.fromordinal(number)


def largest_number(kind: KeyKind, digits: int) -> int:
    """The largest number of a bound."""
    if kind == "integer":
        return LARGEST.get(digits, 10**digits - 1)
    if kind == "uuid":
        return 2**128 - 1
    return to_number(dt.datetime.max if kind == "timestamp" else dt.date.max)


def to_bound(value: object, kind: KeyKind) -> Bound:
    """Convert a value from a server, a driver or a YAML file to a bound.

    Timestamps with a zone become naive UTC.

    Raises:
        InputError: the value is not a key of this kind.
    """
    try:
        if kind == "file":
            return str(value)
        if kind == "text":
            if isinstance(value, str):
                return value
            raise ValueError
        if kind == "integer":
            return _integer(value)
        if kind == "uuid":
            return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))
        if kind == "timestamp":
            return _naive(value)
        if isinstance(value, dt.datetime):
            value = value.date()
        return value if isinstance(value, dt.date) else dt.date.fromisoformat(str(value)[:10])
    except (ValueError, OverflowError):  # in UTC, the first day may be before the first year
        raise InputError(f"{value!r} should be a key of kind {kind}") from None


def _integer(value: object) -> int:
    if isinstance(value, decimal.Decimal) and value.is_finite() and value == int(value):
        return int(value)
    return int(str(value))


def _naive(value: object) -> dt.datetime:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)
    moment = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(str(value))
    return moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment
