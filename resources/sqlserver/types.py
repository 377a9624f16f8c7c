"""What leaves SQL Server for each of its types, and what its columns hold as a target."""

from __future__ import annotations

import pyarrow as pa

from resources.types.declared import Declared, read
from resources.types.export import Export, Refusal
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

FIRST_DAY, LAST_DAY = days("0001-01-01"), days("9999-12-31")
DATES = Date(FIRST_DAY, LAST_DAY)
INTEGERS = {
    "tinyint": unsigned(8),
    "smallint": signed(16),
    "int": signed(32),
    "bigint": signed(64),
}
ARROW_INTEGERS = {
    "tinyint": pa.uint8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
}
MONEY = {"money": Decimal(19, 4), "smallmoney": Decimal(10, 4)}
MAX_UNITS = 4000
"""UTF-16 units of the longest nvarchar(n); nvarchar(max) takes more."""
MAX_BYTES = 8000
"""Bytes of the longest binary(n) and varbinary(n)."""
ALIASES = {
    "integer": "int",
    "dec": "decimal",
    "double precision": "float",
    "rowversion": "timestamp",
}
METHODS = {
    "geometry": ("{}.STAsText()", "well-known text, without the SRID"),
    "geography": ("{}.STAsText()", "well-known text, without the SRID"),
    "hierarchyid": ("{}.ToString()", "its path"),
    "sql_variant": ("CAST({} AS nvarchar(4000))", "its text, without the base type"),
    # the counter is an unsigned big-endian number; bigint would print the upper half as negative
    "timestamp": ("CAST(CAST({} AS bigint) AS nvarchar(20))", "the counter as a number"),
}


def _name(type_: Declared) -> str:
    return ALIASES.get(type_.name, type_.name)


def export(declared: str) -> Export | Refusal:
    """How a column of a SQL Server type is selected, and what it can hold.

    mssql-python's Arrow reader has microseconds for datetime2 and datetimeoffset and drops the
    latter's offset, so that those travel as text where that would lose something. A cast to
    nvarchar without a style prints ISO (CAST and CONVERT, style 121).
    """
    type_ = read(declared)
    name = _name(type_)
    if name in INTEGERS:
        return _export(INTEGERS[name], "{}", 20)
    if name == "bit":
        return _export(Boolean(), "{}", 1)
    if name in MONEY:
        # money's own cast to text rounds to two decimals
        as_text = f"CAST(CAST({{}} AS decimal({MONEY[name].precision},4)) AS nvarchar(41))"
        return Export(MONEY[name], "{}", None, as_text, Text(41))
    if name in ("decimal", "numeric"):
        return _export(Decimal(type_.number(0, 18), type_.number(1, 0)), "{}", 41)
    if name in ("float", "real"):
        bits = 32 if name == "real" or type_.number(0, 53) <= 24 else 64
        # no cast to text is exact without a style; for wire text see resources.sqlserver.tsv_text
        return Export(Float(bits, finite=True), "{}", None, None)  # type: ignore[arg-type]
    if name in ("char", "varchar", "text"):
        return _text(Text(_units(type_, name)))
    if name in ("nchar", "nvarchar", "ntext", "xml", "sysname"):
        return _text(Text(_units(type_, name), replaced=True))
    if name in ("binary", "varbinary", "image"):
        length = None if name == "image" or type_.number(0, 1) == -1 else type_.number(0, 1)
        return Export(Binary(length, fixed=name == "binary"), "{}", None, None)
    if name == "date":
        return _export(DATES, "{}", 10)
    if name == "time":
        digits = type_.number(0, 7)
        as_text = _decimals("CAST({} AS nvarchar(16))", len("hh:mm:ss"), digits)
        return Export(Time(digits), "{}", as_text, as_text, Text(16))
    if name in ("datetime2", "datetimeoffset", "datetime", "smalldatetime"):
        return _timestamp(name, type_)
    if name == "uniqueidentifier":
        return _export(Uuid(), "{}", 36)
    why = "of a type whose values other systems cannot hold"
    return Refusal(why, *METHODS[name]) if name in METHODS else Refusal(why)


def _export(kind: Kind, arrow: str, units: int) -> Export:
    return Export(kind, arrow, None, f"CAST({{}} AS nvarchar({units}))", Text(units))


def _text(kind: Text) -> Export:
    return Export(kind, "{}", None, "{}", kind)


def _units(type_: Declared, name: str) -> int | None:
    if name in ("text", "ntext", "xml") or type_.number(0, 1) == -1:
        return None
    return 128 if name == "sysname" else type_.number(0, 1)


def _timestamp(name: str, type_: Declared) -> Export:
    digits = {"datetime": 3, "smalldatetime": 0}.get(name, type_.number(0, 7))
    first = {"datetime": "1753-01-01", "smalldatetime": "1900-01-01"}.get(name, "0001-01-01")
    last = "2079-06-06" if name == "smalldatetime" else "9999-12-31"
    low, high = microseconds(days(first), days(last))
    text = "CAST({} AS nvarchar(27))"
    if name != "datetime2":
        # the wall clock of an offset; the older types' text is in English words, without seconds
        text = f"CAST(CAST({{}} AS datetime2({digits})) AS nvarchar(27))"
    as_text = _decimals(text, len("yyyy-mm-dd hh:mm:ss"), digits)
    if name == "datetimeoffset":
        as_text = f"{as_text} + RIGHT(CAST({{}} AS nvarchar(34)), {len(' +hh:mm')})"
        return Export(Timestamp(digits, low, high, "offset"), as_text, text, as_text, Text(34))
    arrow = as_text if digits == 7 else "{}"
    return Export(Timestamp(digits, low, high), arrow, text, as_text, Text(27))


def _decimals(text: str, whole: int, digits: int) -> str:
    """A time's text with all its decimals: Babelfish leaves zeros out at its end.

    Args:
        text: expression of the text.
        whole: length of the text without decimals.
        digits: how many decimals there are to be.
    """
    if not digits:
        return text
    point = f"CASE WHEN LEN({text}) = {whole} THEN N'.' ELSE N'' END"
    return f"LEFT({text} + {point} + N'{'0' * digits}', {whole + 1 + digits})"


def slot(declared: str) -> Slot | None:
    """What a SQL Server column of a type holds, and the Arrow type that bulk copy takes for it.

    Returns:
        None if nothing of ours can be stored in such a column.
    """
    type_ = read(declared)
    name = _name(type_)
    if name in INTEGERS:
        return Slot(INTEGERS[name], ARROW_INTEGERS[name])
    if name == "bit":
        return Slot(Boolean(), pa.bool_())
    if name in ("decimal", "numeric"):
        return _decimal(Decimal(type_.number(0, 18), type_.number(1, 0)))
    if name in MONEY:
        # the range ends before 19 digits do: +-922337203685477.5807
        return None
    if name in ("float", "real"):
        single = name == "real" or type_.number(0, 53) <= 24
        floats = pa.float32() if single else pa.float64()
        return Slot(Float(32 if single else 64, finite=True), floats)
    if name in ("nvarchar", "nchar"):
        fixed = name == "nchar"
        length = type_.number(0, 1)
        if length == -1:
            return Slot(Text(), pa.string())
        if not 1 <= length <= MAX_UNITS:
            return None
        return Slot(Text(length), pa.string(), padded=fixed)
    if name in ("varbinary", "binary"):
        length = type_.number(0, 1)
        if name == "varbinary" and length == -1:
            return Slot(Binary(), pa.binary())
        if not 1 <= length <= MAX_BYTES:
            return None
        return Slot(Binary(length, fixed=name == "binary"), pa.binary())
    if name == "date":
        return Slot(DATES, pa.date32())
    if name in ("time", "datetime2", "datetimeoffset") and not 0 <= type_.number(0, 7) <= 7:
        return None
    if name == "time":
        return Slot(Time(type_.number(0, 7)), pa.time64("us"))
    if name in ("datetime2", "datetimeoffset"):
        low, high = microseconds(FIRST_DAY, LAST_DAY)
        if name == "datetime2":
            return Slot(Timestamp(type_.number(0, 7), low, high), pa.timestamp("us"))
        kind = Timestamp(type_.number(0, 7), low, high, "utc")
        return Slot(kind, pa.timestamp("us", tz="UTC"))
    if name == "uniqueidentifier":
        return Slot(Uuid(), pa.binary(16))
    return None


def _decimal(kind: Decimal) -> Slot | None:
    precision, scale = kind.precision or 0, kind.scale or 0
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        return None
    return Slot(kind, pa.decimal128(precision, scale))


def default(kind: Kind) -> str | None:
    """The SQL Server type that holds a kind of values without loss, None if there is none."""
    match kind:
        case Boolean():
            return "bit"
        case Integer(low, high):
            for name, holds in INTEGERS.items():
                # tinyint only for what was tinyint: an unsigned byte
                if holds.low <= low and high <= holds.high and (name != "tinyint" or low == 0):
                    return name
            return "decimal(20,0)"
        case Decimal(precision, scale):
            return f"decimal({precision},{scale})" if precision and precision <= 38 else None
        case Float(bits):
            return "real" if bits == 32 else "float(53)"
        case Text(units, characters):
            length = characters or units
            return f"nvarchar({length})" if length and length <= MAX_UNITS else "nvarchar(max)"
        case Binary(length):
            return f"varbinary({length})" if length and length <= MAX_BYTES else "varbinary(max)"
        case Date():
            return "date"
        case Time(digits):
            return f"time({digits})"
        case Timestamp(digits, zone=zone):
            return f"datetime2({digits})" if zone == "none" else f"datetimeoffset({digits})"
        case Uuid():
            return "uniqueidentifier"
        case Array():
            return "nvarchar(max)"
    return None
