"""Which columns can be cut into key ranges, and how their values count as numbers."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid

from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import Bound, KeyKind

LARGEST = {3: 255, 5: 2**15 - 1, 10: 2**31 - 1, 19: 2**63 - 1, 20: 2**64 - 1}
"""By digits: the largest bound of a range, so that its literal has the column's own type."""

DEFAULT_DIGITS = 10
_EPOCH = dt.datetime(1, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def to_number(bound: Bound) -> int:
    """A bound as a whole number: itself, days, microseconds since 0001-01-01, or 128 bits."""
    if isinstance(bound, int):
        return bound
    if isinstance(bound, uuid.UUID):
        return bound.int
    assert not isinstance(bound, str), "texts and files are in no numeric order"
    if isinstance(bound, dt.datetime):
        return (bound - _EPOCH) // _MICROSECOND
    return bound.toordinal()


def from_number(number: int, kind: KeyKind) -> Bound:
    """The inverse of `to_number`."""
    if kind == "integer":
        return number
    if kind == "uuid":
        return uuid.UUID(int=number)
    if kind == "timestamp":
        return _EPOCH + number * _MICROSECOND
    return dt.date.fromordinal(number)


def largest_number(kind: KeyKind, digits: int) -> int:
    """The largest number that a bound can have."""
    if kind == "integer":
        return LARGEST.get(digits, 10**digits - 1)
    if kind == "uuid":
        return 2**128 - 1
    return to_number(dt.datetime.max if kind == "timestamp" else dt.date.max)


def to_bound(value: object, kind: KeyKind) -> Bound:
    """Read a bound as a server, a driver or a YAML file gives it.

    Zoned timestamps become naive UTC.

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
            if isinstance(value, bool):
                raise ValueError
            return value if isinstance(value, int) else _whole(value)
        if kind == "uuid":
            return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))
        if kind == "timestamp":
            return _naive(value)
        if isinstance(value, dt.datetime):
            value = value.date()
        return value if isinstance(value, dt.date) else dt.date.fromisoformat(str(value)[:10])
    except (ValueError, OverflowError):  # in UTC, the first day may be before the first year
        raise InputError(f"{value!r} should be a key of kind {kind}") from None


def _whole(value: object) -> int:
    if isinstance(value, decimal.Decimal) and value.is_finite() and value == int(value):
        return int(value)
    return int(str(value))


def _naive(value: object) -> dt.datetime:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)
    moment = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(str(value))
    return moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment
