"""Which columns can be cut into key ranges, and how their values count as numbers."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Mapping

from resources.errors import InputError
from resources.keys.range import Bound, KeyKind
from resources.tables import Column, System

INTEGERS: Mapping[System, Mapping[str, int]] = {
    "postgres": {"smallint": 5, "integer": 10, "bigint": 19},
    "sqlserver": {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19},
    "clickhouse": {
        "Int8": 3,
        "UInt8": 3,
        "Int16": 5,
        "UInt16": 5,
        "Int32": 10,
        "UInt32": 10,
        "Int64": 19,
        "UInt64": 20,
    },
}
"""Decimal digits of each integer type's largest value."""

OTHERS: Mapping[System, Mapping[str, KeyKind]] = {
    "postgres": {
        "date": "date",
        "timestamp without time zone": "timestamp",
        "timestamp with time zone": "timestamp",
        "uuid": "uuid",
    },
    "sqlserver": {
        "date": "date",
        "datetime": "timestamp",
        "smalldatetime": "timestamp",
        "datetime2": "timestamp",
        "datetimeoffset": "timestamp",
        "uniqueidentifier": "uuid",
    },
    "clickhouse": {
        "Date": "date",
        "Date32": "date",
        "DateTime": "timestamp",
        "DateTime64": "timestamp",
        "UUID": "uuid",
    },
}
LARGEST = {3: 255, 5: 2**15 - 1, 10: 2**31 - 1, 19: 2**63 - 1, 20: 2**64 - 1}
"""By digits: the largest bound of a range, so that its literal has the column's own type."""

DEFAULT_DIGITS = 10
_EPOCH = dt.datetime(1, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def key_kind(column: Column, system: System) -> tuple[KeyKind, int]:
    """What kind of key a column is, and to how many digits its integers are padded.

    Raises:
        InputError: its type has no order that all systems agree on, for example text.
    """
    # timestamp(3) with time zone -> timestamp with time zone; DateTime64(6, 'UTC') -> DateTime64
    bare = re.sub(r"\([^)]*\)", "", column.type).strip()
    if bare in INTEGERS[system]:
        return "integer", INTEGERS[system][bare]
    if bare in OTHERS[system]:
        return OTHERS[system][bare], DEFAULT_DIGITS
    raise InputError(
        f"the key {column.name!r} is of type {column.type}; "
        "a key should be an integer, date, timestamp or uuid column"
    )


def to_number(bound: Bound) -> int:
    """A bound as a whole number: itself, days, microseconds since 0001-01-01, or 128 bits."""
    if isinstance(bound, int):
        return bound
    if isinstance(bound, uuid.UUID):
        return bound.int
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
        if kind == "integer":
            if isinstance(value, bool):
                raise ValueError
            return value if isinstance(value, int) else int(str(value))
        if kind == "uuid":
            return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))
        if kind == "timestamp":
            return _naive(value)
        if isinstance(value, dt.datetime):
            value = value.date()
        return value if isinstance(value, dt.date) else dt.date.fromisoformat(str(value)[:10])
    except ValueError:
        raise InputError(f"{value!r} should be a key of kind {kind}") from None


def _naive(value: object) -> dt.datetime:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)
    moment = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(str(value))
    return moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment
