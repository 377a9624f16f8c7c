"""Which columns can be cut into key ranges, and how their values count as numbers."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid

from tableferry.resources import registry
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import Bound, KeyKind
from tableferry.resources.tables import Column
from tableferry.resources.types.kinds import Date, Decimal, Integer, Text, Timestamp, Uuid
from tableferry.resources.types.type_map import ColumnType

LARGEST = {3: 255, 5: 2**15 - 1, 10: 2**31 - 1, 19: 2**63 - 1, 20: 2**64 - 1}
"""By digits: the largest bound of a range, so that its literal has the column's own type."""

DEFAULT_DIGITS = 10
MOST_DIGITS = 38
"""Of a decimal that is a key: what every system has room for."""
DECIMAL_DIGITS = (18, MOST_DIGITS)
"""To which those of a decimal are rounded up: `LARGEST` has none of them, and a column that gets
more digits keeps the names of its ranges."""
_EPOCH = dt.datetime(1, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def key_kind(column: Column, system: str) -> tuple[KeyKind, int]:
    """What kind of key a column is, and to how many digits its integers are padded.

    The key that a system brings along itself tells the file that a row is of.

    Raises:
        InputError: its type has no order that all systems agree on, for example a float.
    """
    source = registry.system(system).source
    if source is not None and source.own_key == column.name:
        return "file", DEFAULT_DIGITS
    own = registry.system(system)
    match own.types.read(column.type):
        case ColumnType(kind=Integer(high=high)):
            return "integer", len(str(high))
        case ColumnType(kind=Decimal(int() as precision, 0)) if precision <= MOST_DIGITS:
            return "integer", next(digits for digits in DECIMAL_DIGITS if precision <= digits)
        case ColumnType(kind=Decimal() as kind):
            whole = own.types.decimal(MOST_DIGITS, 0)
            raise _no_key(
                f"{column.name!r} is of type {column.type}, {_no_integer(kind)}",
                f", or a decimal of scale 0 and up to {MOST_DIGITS} digits, such as {whole}",
            )
        case ColumnType(kind=Date()):
            return "date", DEFAULT_DIGITS
        case ColumnType(kind=Timestamp()):
            return "timestamp", DEFAULT_DIGITS
        case ColumnType(kind=Uuid()):
            return "uuid", DEFAULT_DIGITS
        case ColumnType(name, Text()) if name in own.dialect.ordered_texts:
            return "text", DEFAULT_DIGITS
    raise _no_key(f"{column.name!r} is of type {column.type}")


def _no_key(what: str, also: str = "") -> InputError:
    return InputError(
        f"the key {what}; a key should be an integer, date, timestamp, uuid or text column{also}"
    )


def _no_integer(kind: Decimal) -> str:
    if kind.precision is None:
        return "which declares no digits, so that it may hold fractions"
    if kind.scale:
        return "which may hold fractions"
    return f"which may have more than {MOST_DIGITS} digits"


def is_text_key(column: Column, system: str) -> bool:
    """Whether a column is cut into ranges by the order of its UTF-8 bytes."""
    try:
        return key_kind(column, system)[0] == "text"
    except InputError:
        return False


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
