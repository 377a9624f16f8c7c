"""What ClickHouse columns hold."""

from __future__ import annotations

import re

import pyarrow as pa

from resources.types import declared as reader
from resources.types.kinds import (
    Array,
    Binary,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Kind,
    Text,
    Time,
    Timestamp,
    Uuid,
    days,
    microseconds,
    signed,
    unsigned,
)
from resources.types.slot import Slot

CALENDAR = days("1900-01-01"), days("2299-12-31")
"""Date32 and DateTime64 of every release; an older one shows another date for a value outside."""

LONG_CALENDAR = days("0001-01-01"), days("9999-12-31")
LONG_CALENDAR_SINCE = (26, 9)
"""From year 0 on, in fact (ClickHouse pull requests 107907 and 111534; measured on 26.9.2)."""

EXACT_FLOATS_SINCE = (26, 7)
"""Before, the last bits may differ, whatever the settings (ClickHouse pull request 109086)."""

INTEGERS = {
    **{f"Int{bits}": signed(bits) for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": unsigned(bits) for bits in (8, 16, 32, 64)},
}
ARROW_INTEGERS: dict[str, pa.DataType] = {
    "Int8": pa.int8(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "UInt8": pa.uint8(),
    "UInt16": pa.uint16(),
    "UInt32": pa.uint32(),
    "UInt64": pa.uint64(),
}
ORDER = ("Int16", "Int32", "Int64")
"""The integers that we choose by ourselves, narrowest first."""

SHORT_DECIMALS = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}


def has_long_calendar(version: str) -> bool:
    """Whether a server of a version, for example `26.9.2.1`, holds the years 1 to 9999."""
    return _release(version) >= LONG_CALENDAR_SINCE


def reads_floats_exactly(version: str) -> bool:
    """Whether a server of a version reads the nearest float out of a text format."""
    return _release(version) >= EXACT_FLOATS_SINCE


def _release(version: str) -> tuple[int, int]:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def slot(declared: str, long_calendar: bool = False) -> Slot | None:
    """What a ClickHouse column of a type holds, and the Arrow type that ArrowStream takes for it.

    Args:
        declared: with or without Nullable and LowCardinality.
        long_calendar: the server's dates reach from 0001 to 9999.

    Returns:
        None if nothing of ours can be stored in such a column exactly.
    """
    inner, _, _ = reader.unwrap(declared)
    name, arguments = reader.clickhouse(inner)
    if name in INTEGERS:
        return Slot(INTEGERS[name], ARROW_INTEGERS[name])
    if name == "Bool":
        return Slot(Boolean(), pa.bool_())
    if name in ("Float32", "Float64"):
        single = name == "Float32"
        return Slot(Float(32 if single else 64), pa.float32() if single else pa.float64())
    if name == "Decimal" or name in SHORT_DECIMALS:
        return _decimal(name, arguments)
    if name == "String":
        return Slot(Text(), pa.string())
    if name == "FixedString" and _number(arguments):
        return Slot(Binary(_number(arguments), fixed=True), pa.binary())
    if name == "UUID":
        return Slot(Uuid(), pa.binary(16))
    if name == "Date":
        return Slot(Date(0, 65535), pa.date32())
    if name == "Date32":
        return Slot(Date(*(LONG_CALENDAR if long_calendar else CALENDAR)), pa.date32())
    if name == "DateTime64" and arguments and arguments[0] in set("01234567"):
        return _timestamp(int(arguments[0]), arguments[1:], long_calendar)
    if name == "Array" and len(arguments) == 1:
        item = slot(arguments[0], long_calendar)
        if item and reader.unwrap(arguments[0])[1]:
            return Slot(Array(item.kind), pa.list_(item.arrow))
    return None


def _number(arguments: list[str]) -> int | None:
    return int(arguments[0]) if len(arguments) == 1 and re.fullmatch(r"\d+", arguments[0]) else None


def _decimal(name: str, arguments: list[str]) -> Slot | None:
    if not all(argument.isdigit() for argument in arguments):
        return None
    numbers = [int(argument) for argument in arguments]
    if name == "Decimal":
        precision, scale = (numbers + [10, 0][len(numbers) :])[:2]
    else:
        precision, scale = SHORT_DECIMALS[name], (numbers or [0])[0]
    if not 1 <= precision <= 76 or not 0 <= scale <= precision:
        return None
    arrow = pa.decimal128 if precision <= 38 else pa.decimal256
    return Slot(Decimal(precision, scale), arrow(precision, scale))


def _timestamp(digits: int, zone: list[str], long_calendar: bool) -> Slot | None:
    if zone and zone[0].strip("'") not in ("UTC", "Etc/UTC"):
        return None
    # seven digits have no Arrow unit of their own range; ClickHouse reads them from text
    arrow = pa.timestamp("us") if digits < 7 else pa.string()
    low, high = microseconds(*(LONG_CALENDAR if long_calendar else CALENDAR))
    return Slot(Timestamp(digits, low, high, "utc"), arrow)


def default(kind: Kind) -> str | None:
    """The ClickHouse type that holds a kind of values without loss, None if there is none.

    Wall clocks go to DateTime64(n, 'UTC') too: without a time zone of its own the column would
    show them by the server's, and text would be read by it.
    """
    match kind:
        case Boolean():
            return "Bool"
        case Integer(low, high):
            if (low, high) == (0, 255):
                return "UInt8"
            if (low, high) == (0, 2**32 - 1):
                return "UInt32"
            for name in ORDER:
                if INTEGERS[name].low <= low and high <= INTEGERS[name].high:
                    return name
            return "UInt64"
        case Decimal(precision, scale):
            return f"Decimal({precision}, {scale})" if precision and precision <= 76 else None
        case Float(bits):
            return f"Float{bits}"
        case Text() | Binary() | Time():
            return "String"
        case Date():
            return "Date32"
        case Timestamp(digits):
            return f"DateTime64({digits}, 'UTC')"
        case Uuid():
            return "UUID"
        case Array(item):
            inner = default(item)
            return inner and f"Array(Nullable({inner}))"
    return None
