"""SQL Server's types: how their values are exported, and what its columns can hold."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tableferry.resources.types import kinds, type_map
from tableferry.resources.types import type_map as reader
from tableferry.resources.types.export import Export, Refusal, Slot
from tableferry.resources.types.type_map import TypeText

FIRST_DAY, LAST_DAY = kinds.days("0001-01-01"), kinds.days("9999-12-31")
DATES = kinds.Date(FIRST_DAY, LAST_DAY)
INTEGERS = {
    "tinyint": kinds.unsigned(8),
    "smallint": kinds.signed(16),
    "int": kinds.signed(32),
    "bigint": kinds.signed(64),
}
ARROW_INTEGERS = {
    "tinyint": pa.uint8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
}
MONEY = {"money": kinds.Decimal(19, 4), "smallmoney": kinds.Decimal(10, 4)}
MAX_UNITS = 4000
"""UTF-16 units of the longest nvarchar(n); nvarchar(max) takes more."""
MAX_BYTES = 8000
"""Bytes of the longest binary(n) and varbinary(n)."""
MOST_DIGITS = 38
SENT_DIGITS = 6
"""Decimals of a second in the batches that bulk copy accepts."""
ALIASES = {
    "integer": "int",
    "dec": "decimal",
    "double precision": "float",
    "rowversion": "timestamp",
}
_BASE = "CAST(SQL_VARIANT_PROPERTY({}, 'BaseType') AS nvarchar(128)) IN"
METHODS = {
    # Z and M too, which STAsText leaves out; Babelfish has no AsTextZM
    "geometry": ("CAST({} AS nvarchar(max))", "well-known text, without the SRID"),
    "geography": ("CAST({} AS nvarchar(max))", "well-known text, without the SRID"),
    "hierarchyid": ("{}.ToString()", "its path"),
    # a bare cast cuts off the seconds of a datetime, and digits of floats and money
    "sql_variant": (
        f"CASE WHEN {_BASE} (N'datetime', N'smalldatetime') "
        "THEN CONVERT(nvarchar(4000), CAST({} AS datetime), 121) "
        f"WHEN {_BASE} (N'float', N'real') THEN CONVERT(nvarchar(4000), CAST({{}} AS float), 3) "
        f"WHEN {_BASE} (N'money', N'smallmoney') "
        "THEN CONVERT(nvarchar(4000), CAST({} AS money), 2) ELSE CAST({} AS nvarchar(4000)) END",
        "its text, without the base type",
    ),
    # the counter is an unsigned big-endian number; bigint would print the upper half as negative
    "timestamp": ("CAST(CAST({} AS bigint) AS nvarchar(20))", "the counter as a number"),
}
UNREAD = {
    "encrypted": "encrypted by clients that have the keys (Always Encrypted), and arrives so",
    "masked": "masked for this login, which would be moved instead of the values: GRANT UNMASK, "
    "from SQL Server 2022 on of the column alone",
}
"""Why columns are not read, by the word that the catalog's reader adds to their types."""


def read(declared: str) -> type_map.ColumnType:
    """Read a declared type, for example `nvarchar(max)` or `datetime2(3)`."""
    type_ = reader.read(declared)
    name = ALIASES.get(type_.name, type_.name)
    return type_map.ColumnType(name, _kind(name, type_))


def _kind(name: str, type_: TypeText) -> kinds.Kind | None:
    if name in INTEGERS:
        return INTEGERS[name]
    if name in MONEY:
        return MONEY[name]
    match name:
        case "bit":
            return kinds.Boolean()
        case "decimal" | "numeric":
            return kinds.Decimal(type_.number(0, 18), type_.number(1, 0))
        case "float" | "real":
            single = name == "real" or type_.number(0, 53) <= 24
            return kinds.Float(32 if single else 64, finite=True)
        case "char" | "varchar":
            return kinds.Text(_length(type_), padded=name == "char")
        case "nchar" | "nvarchar":
            return kinds.Text(_length(type_), replaced=True, padded=name == "nchar")
        case "text":
            return kinds.Text()
        case "ntext" | "xml":
            return kinds.Text(replaced=True)
        case "sysname":
            return kinds.Text(128, replaced=True)
        case "binary" | "varbinary":
            return kinds.Binary(_length(type_), fixed=name == "binary")
        case "image":
            return kinds.Binary()
        case "timestamp":
            return kinds.Binary(8, fixed=True)
        case "date":
            return DATES
        case "time":
            return kinds.Time(type_.number(0, 7))
        case "datetime":
            return kinds.Timestamp(3, *kinds.microseconds(kinds.days("1753-01-01"), LAST_DAY))
        case "smalldatetime":
            return kinds.Timestamp(
                0, *kinds.microseconds(kinds.days("1900-01-01"), kinds.days("2079-06-06"))
            )
        case "datetime2":
            return kinds.Timestamp(type_.number(0, 7), *kinds.microseconds(FIRST_DAY, LAST_DAY))
        case "datetimeoffset":
            return kinds.Timestamp(
                type_.number(0, 7), *kinds.microseconds(FIRST_DAY, LAST_DAY), "offset"
            )
        case "uniqueidentifier":
            return kinds.Uuid()
    return None


def _length(type_: TypeText) -> int | None:
    length = type_.number(0, 1)
    return None if length == -1 else length


def index_bytes(declared: str) -> int | None:
    """Maximum bytes of a value in an index; None for floats and types that cannot be indexed.

    https://learn.microsoft.com/sql/t-sql/data-types/data-types-transact-sql
    """
    type_ = read(declared)
    match type_.kind:
        case kinds.Boolean():
            return 1
        case kinds.Integer(low, high):
            return (high - low).bit_length() // 8
        case kinds.Decimal():
            return {"money": 8, "smallmoney": 4}.get(type_.name, 17)
        case kinds.Date():
            return 3
        case kinds.Time():
            return 5
        case kinds.Timestamp(zone=zone):
            return {"smalldatetime": 4}.get(type_.name, 8 if zone == "none" else 10)
        case kinds.Uuid():
            return 16
        case kinds.Text(units, replaced=wide) if units is not None:
            return units * (2 if wide else 1)
        case kinds.Binary(length):
            return length
    return None


def export(declared: str) -> Export | Refusal:
    """How a column of a SQL Server type is selected, and which values it has.

    mssql-python's Arrow reader has microseconds for datetime2 and datetimeoffset, and drops the
    offset of the latter: they travel as text where that would lose something. A cast to nvarchar
    without a style prints ISO 8601 (CAST and CONVERT, style 121).
    """
    type_ = read(declared)
    name, kind = type_.name, type_.kind
    if why := UNREAD.get(name.rpartition(" ")[2]):
        return Refusal(why)
    if name in METHODS or kind is None:
        why = "of a type whose values other systems cannot hold"
        return Refusal(why, *METHODS[name]) if name in METHODS else Refusal(why)
    match kind:
        case kinds.Decimal() if name in MONEY:
            # a cast of money to text rounds to two decimals
            as_text = f"CAST(CAST({{}} AS decimal({kind.precision},4)) AS nvarchar(41))"
            return Export(kind, "{}", None, as_text, kinds.Text(41))
        case kinds.Float() | kinds.Binary():
            # no cast of a float is exact without a style; for wire text see `tsv_text`
            return Export(kind, "{}", None, None)
        case kinds.Text():
            return Export(kind, "{}", None, "{}", kind)
        case kinds.Time(digits):
            as_text = _decimals("CAST({} AS nvarchar(16))", len("hh:mm:ss"), digits)
            return Export(kind, "{}", as_text, as_text, kinds.Text(16), text_of_arrow=True)
        case kinds.Timestamp():
            return _timestamp(name, kind)
    units = {
        kinds.Integer: 20,
        kinds.Boolean: 1,
        kinds.Decimal: 41,
        kinds.Date: 10,
        kinds.Uuid: 36,
    }[type(kind)]
    return Export(kind, "{}", None, f"CAST({{}} AS nvarchar({units}))", kinds.Text(units))


def _timestamp(name: str, kind: kinds.Timestamp) -> Export:
    text = "CAST({} AS nvarchar(27))"
    if name != "datetime2":
        # the wall clock of datetimeoffset; the older types print English words, without seconds
        text = f"CAST(CAST({{}} AS datetime2({kind.digits})) AS nvarchar(27))"
    as_text = _decimals(text, len("yyyy-mm-dd hh:mm:ss"), kind.digits)
    if kind.zone == "offset":
        as_text = f"{as_text} + RIGHT(CAST({{}} AS nvarchar(34)), {len(' +hh:mm')})"
        return Export(kind, as_text, text, as_text, kinds.Text(34))
    return Export(kind, as_text if kind.digits == 7 else "{}", text, as_text, kinds.Text(27))


def _decimals(text: str, whole: int, digits: int) -> str:
    """An expression of a time's text with `digits` decimals: Babelfish drops trailing zeros.

    `whole` is the length of the text without decimals.
    """
    if not digits:
        return text
    point = f"CASE WHEN LEN({text}) = {whole} THEN N'.' ELSE N'' END"
    return f"LEFT({text} + {point} + N'{'0' * digits}', {whole + 1 + digits})"


def slot(declared: str, version: str = "") -> Slot | None:
    """What a column of a SQL Server type holds, and the Arrow type that bulk copy takes for it.

    None if we cannot store anything in such a column.
    """
    type_ = read(declared)
    match type_.kind:
        case kinds.Integer() as kind:
            return Slot(kind, ARROW_INTEGERS[type_.name])
        case kinds.Boolean() as kind:
            return Slot(kind, pa.bool_())
        case kinds.Decimal() as kind if type_.name not in MONEY:
            # money does not hold all numbers of 19 digits: it ends at +-922337203685477.5807
            precision, scale = kind.precision or 0, kind.scale or 0
            valid = 1 <= precision <= MOST_DIGITS and 0 <= scale <= precision
            return Slot(kind, pa.decimal128(precision, scale)) if valid else None
        case kinds.Float(bits) as kind:
            return Slot(kind, pa.float32() if bits == 32 else pa.float64())
        case kinds.Text(units) as kind if type_.name in ("nvarchar", "nchar"):
            kind = replace(kind, replaced=False)
            fixed = type_.name == "nchar"
            valid = not fixed if units is None else 1 <= units <= MAX_UNITS
            return Slot(kind, pa.string()) if valid else None
        case kinds.Binary(length, fixed) as kind if type_.name in ("varbinary", "binary"):
            valid = not fixed if length is None else 1 <= length <= MAX_BYTES
            return Slot(kind, pa.binary()) if valid else None
        case kinds.Date() as kind:
            return Slot(kind, pa.date32())
        case kinds.Time(digits) as kind if 0 <= digits <= 7:
            return Slot(replace(kind, digits=min(digits, SENT_DIGITS)), pa.time64("us"))
        case kinds.Timestamp(digits) as kind if type_.name == "datetime2" and 0 <= digits <= 7:
            return Slot(replace(kind, digits=min(digits, SENT_DIGITS)), pa.timestamp("us"))
        case kinds.Timestamp(digits) as kind if type_.name == "datetimeoffset" and 0 <= digits <= 7:
            kind = replace(kind, zone="utc", digits=min(digits, SENT_DIGITS))
            return Slot(kind, pa.timestamp("us", tz="UTC"))
        case kinds.Uuid() as kind:
            return Slot(kind, pa.binary(16))
    return None


def default(kind: kinds.Kind) -> str | None:
    """The SQL Server type that holds values of a kind without loss; None if there is none."""
    match kind:
        case kinds.Boolean():
            return "bit"
        case kinds.Integer(low, high):
            for name, holds in INTEGERS.items():
                # tinyint only for unsigned bytes
                if holds.low <= low and high <= holds.high and (name != "tinyint" or low == 0):
                    return name
            return "decimal(20,0)"
        case kinds.Decimal(precision, scale):
            return (
                f"decimal({precision},{scale})" if precision and precision <= MOST_DIGITS else None
            )
        case kinds.Float(bits):
            return "real" if bits == 32 else "float(53)"
        case kinds.Text(units, characters):
            length = characters or units
            return f"nvarchar({length})" if length and length <= MAX_UNITS else "nvarchar(max)"
        case kinds.Binary(length):
            return f"varbinary({length})" if length and length <= MAX_BYTES else "varbinary(max)"
        case kinds.Date():
            return "date"
        case kinds.Time(digits):
            return f"time({digits})"
        case kinds.Timestamp(digits, zone=zone):
            return f"datetime2({digits})" if zone == "none" else f"datetimeoffset({digits})"
        case kinds.Uuid():
            return "uniqueidentifier"
        case kinds.Array():
            return "nvarchar(max)"
    return None


def _arrives_as(wanted: pa.DataType, sent: kinds.Kind) -> pa.DataType:
    """The driver sends the large types, because a column of a batch may exceed 2 GB."""
    if isinstance(sent, kinds.Uuid) or wanted == pa.string():
        return pa.large_string()
    return pa.large_binary() if wanted == pa.binary() else wanted


TYPES = type_map.TypeMap(
    read=read,
    export=export,
    arrives_as=_arrives_as,
    slot=slot,
    default=default,
    text="nvarchar(max)",
    most_digits=MOST_DIGITS,
    second_digits=SENT_DIGITS,
)
