"""The type map of files, in DuckDB's types.

A column of a text file has the type `<type> FROM TEXT`, as inferred from its texts. A text that is
not how such a value is printed is refused; the empty text is NULL. Where the transfer
declares the type, it is `<type> IN ANY NOTATION FROM TEXT`: then `007` is an integer, and `TRUE` a
boolean, as long as the value is exact.
"""

from __future__ import annotations

import re

import pyarrow as pa

from tableferry.resources.errors import InputError
from tableferry.resources.files.notations import INSTANT, NOTATIONS, is_canonical, is_written
from tableferry.resources.types import kinds, type_map
from tableferry.resources.types import type_map as reader
from tableferry.resources.types.export import Export, Refusal, Slot

FILE = "_file"
"""The column of the file's name below the folder, which every table of files has, besides `ROW`."""

FILE_TYPE = "FILE"
LONGEST_NAME = 400
"""Maximum UTF-16 code units of a file's name, so that any target can index it."""

FROM_TEXT = " FROM TEXT"
ANY_NOTATION = " IN ANY NOTATION"
MIXED = f"VALUES OF SEVERAL KINDS{FROM_TEXT}"
"""JSON values of several kinds, such as strings and numbers, which may have the same text."""
UNREADABLE = " READ AS "
"""Between the type that a Parquet file declares and the one as which DuckDB reads it."""
TEXT = f"VARCHAR{FROM_TEXT}"
LIKE = "VARCHAR LIKE "
"""Before a type whose values the texts write in several forms, which the values would lose."""

INTEGERS = {
    "TINYINT": kinds.signed(8),
    "SMALLINT": kinds.signed(16),
    "INTEGER": kinds.signed(32),
    "BIGINT": kinds.signed(64),
    "UTINYINT": kinds.unsigned(8),
    "USMALLINT": kinds.unsigned(16),
    "UINTEGER": kinds.unsigned(32),
    "UBIGINT": kinds.unsigned(64),
}
ALIASES = {
    "INT": "INTEGER",
    "INT2": "SMALLINT",
    "INT4": "INTEGER",
    "INT8": "BIGINT",
    "BOOL": "BOOLEAN",
    "REAL": "FLOAT",
    "DOUBLE PRECISION": "DOUBLE",
    "NUMERIC": "DECIMAL",
    "TEXT": "VARCHAR",
    "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
}
DATES = kinds.Date(-(2**31), 2**31 - 1)
FIRST_DAY, LAST_DAY = -2_440_588, 2_145_042_905
"""4714-11-24 BC and 5874897-12-31: the range of the servers' calendars, which excludes DuckDB's
infinities and those that wrap around in Arrow."""
LAST_MICROSECOND = 106_751_982 * kinds.MICROSECONDS_PER_DAY - 1
"""The end of 294246, the last whole year in 64 bits; the greatest number is DuckDB's infinity."""
INSTANT_NS = "TIMESTAMP_NS WITH TIME ZONE"
"""A type without a name in DuckDB, which reads it as `INSTANT`, without digits after the sixth."""
NOTHING = "NOTHING"
"""The type of a Parquet column that only has NULL."""


def read(declared: str) -> type_map.ColumnType:
    """Parse a type as DuckDB prints it."""
    if UNREADABLE in declared:
        return type_map.ColumnType(declared, None)
    type_ = bare(declared)
    if type_.endswith("[]"):
        item = type_.removesuffix("[]")
        return type_map.ColumnType(type_, kinds.Array(read(item).kind or kinds.Text()), item)
    parsed = reader.read(type_)
    name = ALIASES.get(parsed.name.upper(), parsed.name.upper())
    if name == "DECIMAL":
        return type_map.ColumnType(name, kinds.Decimal(parsed.number(0, 18), parsed.number(1, 3)))
    return type_map.ColumnType(name, _kind(name))


def _kind(name: str) -> kinds.Kind | None:
    if name in INTEGERS:
        return INTEGERS[name]
    match name:
        case "HUGEINT":
            return kinds.Decimal(38, 0)
        case "FILE":
            return kinds.Text(LONGEST_NAME)
        case "BOOLEAN":
            return kinds.Boolean()
        case "FLOAT" | "DOUBLE":
            return kinds.Float(32 if name == "FLOAT" else 64)
        case "VARCHAR":
            return kinds.Text()
        case "BLOB":
            return kinds.Binary()
        case "DATE":
            return DATES
        case "TIME" | "TIME_NS":
            return kinds.Time(6, midnight=True)
        case "TIMESTAMP" | "TIMESTAMP_S" | "TIMESTAMP_MS" | "TIMESTAMP_NS":
            digits = {"TIMESTAMP_S": 0, "TIMESTAMP_MS": 3}.get(name, 6)
            return kinds.Timestamp(digits, -(2**63), 2**63 - 1)
        case "TIMESTAMP WITH TIME ZONE" | "TIMESTAMP_NS WITH TIME ZONE":
            return kinds.Timestamp(6, -(2**63), 2**63 - 1, "utc")
        case "UUID":
            return kinds.Uuid()
    return None


def bare(declared: str) -> str:
    """A type without the notation of texts."""
    if declared.startswith(LIKE):
        return "VARCHAR"
    return declared.removesuffix(FROM_TEXT).removesuffix(ANY_NOTATION)


def taken_as_text(declared: str) -> bool:
    """Whether the column's texts are its values."""
    return declared.endswith(FROM_TEXT) and bare(declared) == "VARCHAR"


def value(declared: str, x: str) -> str:
    """Cast a field to its type; a file may have it in a narrower type, or as a text."""
    type_ = read(declared)
    if taken_as_text(declared):
        return x
    if declared.endswith(FROM_TEXT):
        return f"CAST(nullif({x}, '') AS {bare(declared)})"
    match type_.kind:
        case kinds.Timestamp() if type_.name == INSTANT_NS:
            return f"CAST(CAST({x} AS TIMESTAMP) AS {INSTANT})"
        case kinds.Time():
            return f"CAST({x} AS TIME)"
        case kinds.Decimal() if type_.name == "HUGEINT":
            return f"CAST({x} AS DECIMAL(38,0))"
        case kinds.Timestamp(zone="none"):
            return f"CAST({x} AS TIMESTAMP)"
        case kinds.Integer() | kinds.Decimal() | kinds.Float():
            return f"CAST({x} AS {declared})"
    return x


def export(declared: str) -> Export | Refusal:
    """Describe how a column is selected, and what it can hold."""
    type_ = read(declared)
    x, kind = value(declared, "{}"), type_.kind
    as_text = f"CAST({x} AS VARCHAR)"
    if type_.item is not None:
        item = export(type_.item)
        json = "CAST(to_json({}) AS VARCHAR)"
        refused = kinds.Time | kinds.Uuid | kinds.Binary | kinds.Array
        if isinstance(item, Refusal) or isinstance(item.kind, refused) or item.refuse:
            return Refusal("an array of such items", json, "JSON")
        return Export(kinds.Array(item.kind), x, None, json)
    if UNREADABLE in declared:
        in_file, _, made = declared.partition(UNREADABLE)
        made, _, file = made.partition(" IN ")
        return Refusal(f"of type {in_file} in {file}, which DuckDB would read as {made}")
    if declared == MIXED:
        return Refusal(
            "of several kinds of JSON values: strings in some objects, and numbers, booleans or "
            "nested values in others",
            "{}",
            "its texts, in which the string '1' and the number 1 are alike",
        )
    if isinstance(kind, kinds.Decimal) and (kind.precision or 0) > MOST_DIGITS:
        return Refusal("of more digits than can be read")
    if kind is None:
        if type_.name.startswith("ENUM") or type_.name == "JSON":
            return Export(kinds.Text(), "CAST({} AS VARCHAR)", None, "CAST({} AS VARCHAR)")
        if type_.name.startswith(("STRUCT", "MAP")):
            json = "CAST(to_json({}) AS VARCHAR)"
            return Refusal("of a composite type", json, "JSON")
        return Refusal("of an unknown type", "CAST({} AS VARCHAR)", "what DuckDB prints")
    if declared.endswith(FROM_TEXT) and not taken_as_text(declared):
        type_text = bare(declared)
        written = is_written if declared.endswith(f"{ANY_NOTATION}{FROM_TEXT}") else is_canonical
        refuse = f"{{}} <> '' AND NOT {written('{}', type_text)}"
        reason, cast = f"is not a valid {type_text}", "VARCHAR"
        if written is is_canonical:
            reason += ", or not in its canonical notation: declare the type to read it as one"
    elif type_.name in ("TIMESTAMP_NS", INSTANT_NS):
        refuse, reason = "epoch_ns({}) % 1000 <> 0", "has more than 6 decimals of a second"
        cast = "TIMESTAMP"
    elif type_.name == "TIME_NS":
        refuse, cast = "CAST(CAST({} AS TIME) AS TIME_NS) <> {}", "TIME"
        reason = "has more than 6 decimals of a second"
    else:
        refuse, reason, cast = "", "", ""
    if isinstance(kind, kinds.Uuid):
        x = f"unhex(replace(CAST({x} AS VARCHAR), '-', ''))"
    if isinstance(kind, kinds.Binary):
        as_text = "lower(hex({}))"
    return Export(
        kind,
        x,
        None,
        x if isinstance(kind, kinds.Text) else as_text,
        refuse=refuse or None,
        refuse_text=refuse or None,
        refuse_reason=reason,
        refuse_type=cast,
    )


def from_text(type_: str) -> str:
    """The type of a text file's column.

    Raises:
        InputError: texts cannot be read as this type.
    """
    parsed = read(type_)
    if parsed.name == "VARCHAR":
        return TEXT
    if parsed.name not in NOTATIONS and parsed.name != "DECIMAL":
        known = ", ".join(["VARCHAR", "DECIMAL(p,s)", *NOTATIONS])
        raise InputError(f"texts cannot be read as {type_!r}; the types are {known}")
    if isinstance(parsed.kind, kinds.Decimal):
        precision, scale = parsed.kind.precision or 0, parsed.kind.scale or 0
        if not 0 <= scale <= precision <= MOST_DIGITS or not precision:
            raise InputError(f"{type_!r} should have 1 to {MOST_DIGITS} digits")
        return f"DECIMAL({precision},{scale}){FROM_TEXT}"
    return f"{parsed.name}{FROM_TEXT}"


def in_any_notation(type_: str) -> str:
    """The type of a text file's column that the transfer declares.

    Raises:
        InputError: texts cannot be read as this type.
    """
    type_ = from_text(type_)
    return type_ if type_ == TEXT else f"{bare(type_)}{ANY_NOTATION}{FROM_TEXT}"


def text_type(kind: kinds.Kind) -> str | None:
    """The type of a text file's column with values of a kind; None if there is none."""
    if isinstance(kind, kinds.Binary | kinds.Array) or (
        isinstance(kind, kinds.Integer) and kind not in INTEGERS.values()
    ):
        return None
    type_ = default(kind)
    return type_ and from_text(type_)


def plain(declared: str) -> str:
    """Write a type on one line."""
    return re.sub(r"\s+", " ", declared.strip())


ARROW: dict[str, pa.DataType] = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "BOOLEAN": pa.bool_(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "TIME": pa.time64("us"),
    "UUID": pa.binary(16),
}
MOST_DIGITS = 38


def slot(declared: str, version: str = "") -> Slot | None:
    """What a Parquet column of a type holds, and how it is written; None if we do not write it."""
    if declared.endswith(FROM_TEXT):
        return None
    type_ = read(declared)
    match type_.kind:
        case kinds.Decimal(precision, scale) as kind if type_.name == "DECIMAL":
            digits, decimals = precision or 0, scale or 0
            fits = 0 <= decimals <= digits and 1 <= digits <= MOST_DIGITS
            return Slot(kind, pa.decimal128(digits, decimals)) if fits else None
        case kinds.Date():
            return Slot(kinds.Date(FIRST_DAY, LAST_DAY), pa.date32())
        case kinds.Timestamp(zone=zone) if type_.name in ("TIMESTAMP", INSTANT):
            low = FIRST_DAY * kinds.MICROSECONDS_PER_DAY
            arrow = pa.timestamp("us", tz="UTC" if zone == "utc" else None)
            return Slot(kinds.Timestamp(6, low, LAST_MICROSECOND, zone), arrow)
        case kinds.Array():
            item = slot(str(type_.item))
            # arrays that are written must be readable, too
            if item is None or isinstance(
                item.kind, kinds.Time | kinds.Uuid | kinds.Binary | kinds.Array
            ):
                return None
            return Slot(kinds.Array(item.kind), pa.list_(item.arrow))
    return Slot(type_.kind, ARROW[type_.name]) if type_.kind and type_.name in ARROW else None


def default(kind: kinds.Kind) -> str | None:
    """The type that holds a kind of values without loss; None if there is none.

    Values with more than 6 decimals of a second are refused one by one.
    """
    match kind:
        case kinds.Integer(low, high):
            equal = [name for name, own in INTEGERS.items() if own == kind]
            wider = [n for n, own in INTEGERS.items() if own.low <= low and high <= own.high]
            return next(iter(equal or wider), "DECIMAL(20,0)")
        case kinds.Decimal(precision, scale):
            fits = precision and precision <= MOST_DIGITS
            return f"DECIMAL({precision},{scale})" if fits else None
        case kinds.Float(bits):
            return "FLOAT" if bits == 32 else "DOUBLE"
        case kinds.Timestamp(zone=zone):
            return "TIMESTAMP" if zone == "none" else INSTANT
        case kinds.Array(item):
            inner = default(item)
            return inner and f"{inner}[]"
    simple = {
        kinds.Boolean: "BOOLEAN",
        kinds.Text: "VARCHAR",
        kinds.Binary: "BLOB",
        kinds.Date: "DATE",
        kinds.Time: "TIME",
        kinds.Uuid: "UUID",
    }
    return simple.get(type(kind))


TYPES = type_map.TypeMap(
    read=read,
    export=export,
    plain=plain,
    slot=slot,
    default=default,
    text="VARCHAR",
    most_digits=MOST_DIGITS,
    decimal="DECIMAL({},{})".format,
    second_digits=6,
)
