"""ClickHouse's types: what their columns hold, and which type we choose for a kind of values."""

from __future__ import annotations

import re

import pyarrow as pa

from tableferry.resources.types import kinds, type_map
from tableferry.resources.types import type_map as reader
from tableferry.resources.types.export import Export, Refusal, Slot
from tableferry.resources.types.type_map import Column

CALENDAR = kinds.days("1900-01-01"), kinds.days("2299-12-31")
"""Date32 and DateTime64 of every release; older releases change dates outside of it."""

LONG_CALENDAR = kinds.days("0001-01-01"), kinds.days("9999-12-31")
LONG_CALENDAR_SINCE = (26, 9)
"""In fact from year 0 on (ClickHouse pull requests 107907 and 111534; measured on 26.9.2)."""

ARROW_UUIDS_SINCE = (26, 5)
"""Earlier releases take 16 bytes for other UUIDs (26.3) or refuse them (24.8 to 26.1); texts do."""

EXACT_FLOATS_SINCE = (26, 7)
"""In earlier releases the last bits may differ, whatever the settings (pull request 109086)."""

INTEGERS = {
    **{f"Int{bits}": kinds.signed(bits) for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": kinds.unsigned(bits) for bits in (8, 16, 32, 64)},
}
ARROW_INTEGERS = {name: pa.type_for_alias(name.lower()) for name in INTEGERS}
ORDER = ("Int16", "Int32", "Int64")
"""The integer types that we choose, narrowest first."""

SHORT_DECIMALS = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}
WIDE_INTEGERS = ("Int128", "Int256", "UInt128", "UInt256")
MOST_DIGITS = 76


def has_long_calendar(version: str) -> bool:
    """Whether a server of a version, for example `26.9.2.1`, holds the years 1 to 9999."""
    return _release(version) >= LONG_CALENDAR_SINCE


def reads_floats_exactly(version: str) -> bool:
    """Whether a server of a version reads the nearest float out of a text format."""
    return _release(version) >= EXACT_FLOATS_SINCE


def _release(version: str) -> tuple[int, int]:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def read(declared: str) -> type_map.ColumnType:
    """Read a declared type, with or without Nullable and LowCardinality."""
    name, arguments = reader.clickhouse(reader.unwrap(declared)[0])
    item = arguments[0] if name == "Array" and len(arguments) == 1 else None
    return type_map.ColumnType(name, _kind(name, arguments), item)


def _kind(name: str, arguments: list[str]) -> kinds.Kind | None:
    numbers = [int(argument) for argument in arguments if argument.isdecimal()]
    first = numbers[0] if numbers else None
    if name in INTEGERS:
        return INTEGERS[name]
    if name in WIDE_INTEGERS:
        return kinds.Decimal(76, 0)
    match name:
        case "Bool":
            return kinds.Boolean()
        case "Float32" | "Float64":
            return kinds.Float(32 if name == "Float32" else 64)
        case "Decimal":
            precision, scale = (numbers + [10, 0][len(numbers) :])[:2]
            return kinds.Decimal(precision, scale)
        case "String" | "Enum8" | "Enum16":
            return kinds.Text()
        case "FixedString":
            return kinds.Binary(first, fixed=True) if first else None
        case "UUID":
            return kinds.Uuid()
        case "Date":
            return kinds.Date(0, 65535)
        case "Date32":
            return kinds.Date(*LONG_CALENDAR)
        case "DateTime":
            return kinds.Timestamp(0, 0, (2**32 - 1) * 1_000_000, "utc")
        case "DateTime64":
            return kinds.Timestamp(
                3 if first is None else first, *kinds.microseconds(*LONG_CALENDAR), "utc"
            )
        case "Time" | "Time64":
            return kinds.Time(first or 0)
        case "Array" if len(arguments) == 1:
            return kinds.Array(read(arguments[0]).kind or kinds.Text())
    return kinds.Decimal(SHORT_DECIMALS[name], first or 0) if name in SHORT_DECIMALS else None


HAVE_NULL = ("Variant", "Dynamic", "Geometry")
"""Types that have a NULL of their own, of which `toString` makes an empty text. Geometry is the
name of a Variant."""


def _null_of_its_own(declared: str) -> bool:
    name, arguments = reader.clickhouse(declared)
    if name == "SimpleAggregateFunction":
        return _null_of_its_own(arguments[-1])
    return name in HAVE_NULL


def split_type(declared: str) -> tuple[str, bool]:
    """The type without `Nullable(...)`, and whether it may have NULL.

    >>> split_type("LowCardinality(Nullable(String))")
    ('LowCardinality(String)', True)
    """
    name, arguments = reader.clickhouse(declared)
    if _null_of_its_own(declared):
        return declared, True
    if name == "SimpleAggregateFunction":
        return declared, split_type(arguments[-1])[1]
    if declared.startswith("Nullable("):
        return declared[len("Nullable(") : -1], True
    if declared.startswith("LowCardinality(Nullable("):
        return f"LowCardinality({declared[len('LowCardinality(Nullable(') : -2]})", True
    return declared, False


def declared_type(column: Column) -> str:
    """The type as in CREATE TABLE; Nullable belongs inside LowCardinality.

    Arrays cannot be Nullable in ClickHouse, so their type stays as it is.
    """
    if not column.nullable or column.type.startswith("Array("):
        return column.type
    if column.type.startswith("LowCardinality("):
        return f"LowCardinality(Nullable({column.type[len('LowCardinality(') : -1]}))"
    return f"Nullable({column.type})"


def export(declared: str) -> Export | Refusal:
    """How a column of a type, with or without Nullable and LowCardinality, is selected."""
    type_ = read(declared)
    kind = type_.kind
    match kind:
        case kinds.Integer() | kinds.Boolean() | kinds.Float():
            return Export(kind, "{}", None, "toString({})")
        case kinds.Uuid():
            # no release before 26.5 writes them to Arrow
            return Export(kind, "UUIDStringToNum(toString({}))", None, "toString({})")
        case kinds.Decimal() if type_.name not in WIDE_INTEGERS:
            return Export(kind, "{}", None, "toString({})")
        case kinds.Decimal():
            return Refusal("an integer of more than 64 bits", "toString({})", "its digits")
        case kinds.Text():
            # the text of an enum is valid UTF-8
            text = "{}" if type_.name == "String" else "toString({})"
            return Export(kinds.Text(unchecked=type_.name == "String"), text, None, text)
        case kinds.Binary():
            return Export(kind, "{}", None, None)
        case kinds.Date():
            return Export(kind, "toDate32({})", None, "toString({})")
        case kinds.Timestamp(digits) if digits <= 6:
            # ArrowStream has integers for DateTime, and a unit for each precision
            instant = "toDateTime64({}, 6, 'UTC')"
            return Export(kind, instant, None, f"toString({instant})")
        case kinds.Timestamp():
            text = "toString(toTimeZone({}, 'UTC'))"
            return Refusal("of more than six decimals of a second", text, "its text in UTC")
        case kinds.Array():
            return Refusal("an array", "toJSONString({})", "JSON")
    text = "toString({})"
    if _null_of_its_own(declared):
        text = f"if(isNull({{}}), NULL, {text})"
    return Refusal("of an unknown type", text, "what ClickHouse prints")


def slot(declared: str, version: str = "") -> Slot | None:
    """What a column of a ClickHouse type holds, and the Arrow type that ArrowStream takes for it.

    None if we cannot store anything exactly in such a column. The server's version determines the
    range of its dates, and how it takes UUIDs.
    """
    type_ = read(declared)
    calendar = LONG_CALENDAR if has_long_calendar(version) else CALENDAR
    match type_.kind:
        case kinds.Integer() as kind:
            return Slot(kind, ARROW_INTEGERS[type_.name])
        case kinds.Boolean() as kind:
            return Slot(kind, pa.bool_())
        case kinds.Float(bits) as kind:
            return Slot(kind, pa.float32() if bits == 32 else pa.float64())
        case kinds.Decimal() as kind if type_.name not in WIDE_INTEGERS:
            return _decimal(kind, _arguments(declared))
        case kinds.Text() as kind if type_.name == "String":
            return Slot(kind, pa.string(), takes_bytes=True)
        case kinds.Binary() as kind:
            return Slot(kind, pa.binary())
        case kinds.Uuid() as kind:
            as_bytes = _release(version) >= ARROW_UUIDS_SINCE
            return Slot(kind, pa.binary(16) if as_bytes else pa.string())
        case kinds.Date() as kind:
            return Slot(kind if type_.name == "Date" else kinds.Date(*calendar), pa.date32())
        case kinds.Timestamp(digits) if type_.name == "DateTime64":
            return _timestamp(digits, _arguments(declared), calendar)
        case kinds.Array():
            item = slot(str(type_.item), version)
            if item and reader.unwrap(str(type_.item))[1]:
                return Slot(kinds.Array(item.kind), pa.list_(item.arrow), nullable=False)
    return None


def _arguments(declared: str) -> list[str]:
    return reader.clickhouse(reader.unwrap(declared)[0])[1]


def _decimal(kind: kinds.Decimal, arguments: list[str]) -> Slot | None:
    precision, scale = kind.precision or 0, kind.scale or 0
    if not all(argument.isdigit() for argument in arguments):
        return None
    if not 1 <= precision <= MOST_DIGITS or not 0 <= scale <= precision:
        return None
    arrow = pa.decimal128 if precision <= 38 else pa.decimal256
    return Slot(kind, arrow(precision, scale))


def _timestamp(digits: int, arguments: list[str], calendar: tuple[int, int]) -> Slot | None:
    if arguments[:1] != [str(digits)] or digits > 7:
        return None
    if arguments[1:] and arguments[1].strip("'") not in ("UTC", "Etc/UTC"):
        return None
    # no Arrow unit covers the range of seven digits; ClickHouse reads them from text
    arrow = pa.timestamp("us") if digits < 7 else pa.string()
    return Slot(kinds.Timestamp(digits, *kinds.microseconds(*calendar), "utc"), arrow)


def default(kind: kinds.Kind) -> str | None:
    """The ClickHouse type that holds values of a kind without loss; None if there is none.

    Wall clocks go to DateTime64(n, 'UTC'), too: a column without a time zone would show them, and
    read text, in the server's.
    """
    match kind:
        case kinds.Boolean():
            return "Bool"
        case kinds.Integer(low, high):
            if (low, high) == (0, 255):
                return "UInt8"
            if (low, high) == (0, 2**32 - 1):
                return "UInt32"
            for name in ORDER:
                if INTEGERS[name].low <= low and high <= INTEGERS[name].high:
                    return name
            return "UInt64"
        case kinds.Decimal(precision, scale):
            return (
                f"Decimal({precision}, {scale})" if precision and precision <= MOST_DIGITS else None
            )
        case kinds.Float(bits):
            return f"Float{bits}"
        case kinds.Text() | kinds.Binary() | kinds.Time():
            return "String"
        case kinds.Date():
            return "Date32"
        case kinds.Timestamp(digits):
            return f"DateTime64({digits}, 'UTC')"
        case kinds.Uuid():
            return "UUID"
        case kinds.Array(item):
            inner = default(item)
            return inner and f"Array(Nullable({inner}))"
    return None


TYPES = type_map.TypeMap(
    read=read,
    export=export,
    slot=slot,
    default=default,
    text="String",
    most_digits=MOST_DIGITS,
    decimal="Decimal({}, {})".format,
    plain=lambda declared: reader.unwrap(declared)[0],
    low_cardinality="LowCardinality({})".format,
    wall_clocks_as_utc=True,
    by_release=True,
    reads_floats=reads_floats_exactly,
)
