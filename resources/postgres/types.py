"""PostgreSQL's types: their values, and the expressions that select them exactly."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tableferry.resources.postgres.places import CTID, NUMBER
from tableferry.resources.types import kinds
from tableferry.resources.types import type_map as reader
from tableferry.resources.types.export import Export, Refusal, Slot
from tableferry.resources.types.type_map import ColumnType, TypeMap, TypeText

# 4714-11-24 BC and 5874897-12-31 limit `date`; `timestamp` ends on 294276-12-31. The infinities are
# beyond them (datatype/timestamp.h).
FIRST_DAY, LAST_DAY = -2_440_588, 2_145_042_905
LAST_TIMESTAMP_DAY = 106_763_167
DATES = kinds.Date(FIRST_DAY, LAST_DAY)
TIMESTAMPS = kinds.Timestamp(
    6,
    FIRST_DAY * kinds.MICROSECONDS_PER_DAY,
    (LAST_TIMESTAMP_DAY + 1) * kinds.MICROSECONDS_PER_DAY - 1,
)

INTEGERS = {
    "smallint": kinds.signed(16),
    "integer": kinds.signed(32),
    "bigint": kinds.signed(64),
    "oid": kinds.unsigned(32),
}
ALIASES = {
    "int2": "smallint",
    "int": "integer",
    "int4": "integer",
    "int8": "bigint",
    "decimal": "numeric",
    "float4": "real",
    "float8": "double precision",
    "bool": "boolean",
    "char": "character",
    "bpchar": "character",
    "varchar": "character varying",
    "time": "time without time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
# The longest text of a type. An interval: '-178000000 years -11 mons -2147483648 days
# -2562047788:00:54.775808'; an inet: an IPv4-mapped IPv6 address with its mask.
BOUNDED_TEXT = {
    "interval": 80,
    "time with time zone": 24,
    "inet": 49,
    "cidr": 49,
    "macaddr": 17,
    "macaddr8": 23,
    "name": 63,
    '"char"': 4,
    "enum": 63,
    "pg_lsn": 17,
}
TEXT = {"text", "citext", "json", "jsonb", "xml", "bit", "bit varying", *BOUNDED_TEXT}
RANGES = {"int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"}
RANGES |= {name.replace("range", "multirange") for name in RANGES}
EXTENSIONS = {"citext"}
"""Types known by their names, in whatever schema."""
RAW_TEXT = {"text", "name", "json", "jsonb"}
"""Types whose binary form ADBC reads as their text."""

OUTPUT = {"inet": "inet_out", "cidr": "cidr_out"}
"""Types whose cast to text differs from their output: inet::text always has the mask."""

COMPUTED = {CTID: NUMBER}

GEOMETRIC = {"point", "line", "lseg", "box", "path", "polygon", "circle"}
SAME_BYTES = {
    *(*INTEGERS, *TEXT, *RANGES, *GEOMETRIC, "tsvector", "tsquery", "numeric", "money", "real"),
    *("double precision", "boolean", "bytea", "date", "uuid", "character", "character varying"),
    *("time without time zone", "timestamp without time zone", "timestamp with time zone"),
}
SAME_BYTES -= {"citext", "xml"}
"""Types whose binary form all servers read alike; an xml's depends on its declaration."""


def binary_safe(declared: str) -> bool:
    """Whether COPY's binary format carries a column between any two servers.

    Arrays and rows contain type oids, which differ between databases for enums, rows and types of
    extensions.
    """
    type_ = read(declared)
    item = read(type_.item) if type_.item else type_
    name = "interval" if item.name.startswith("interval") else item.name
    return name in SAME_BYTES and not (type_.item and name == "enum")


def read(declared: str) -> ColumnType:
    """Read a declared type as `format_type` prints it; an array's name is all of it."""
    type_ = reader.read(declared)
    name = ALIASES.get(type_.name, type_.name)
    if name.rpartition(".")[2] in EXTENSIONS:
        name = name.rpartition(".")[2]
    kind = _kind(name, type_)
    if not type_.array:
        return ColumnType(name, kind)
    return ColumnType(declared, kinds.Array(kind or kinds.Text()), declared.rpartition("[")[0])


def _kind(name: str, type_: TypeText) -> kinds.Kind | None:
    if name in INTEGERS:
        return INTEGERS[name]
    length = type_.numbers[0] if type_.numbers else None
    match name:
        case _ if name in COMPUTED:
            return INTEGERS["bigint"]
        case "numeric":
            return _numeric(type_)
        case "money":
            return kinds.Decimal(19, 2)
        case "real" | "double precision":
            return kinds.Float(32 if name == "real" else 64)
        case "boolean":
            return kinds.Boolean()
        case "bytea":
            return kinds.Binary()
        case "date":
            return DATES
        case "time without time zone":
            return kinds.Time(type_.number(0, 6), midnight=True)
        case "timestamp without time zone":
            return replace(TIMESTAMPS, digits=type_.number(0, 6))
        case "timestamp with time zone":
            return replace(TIMESTAMPS, digits=type_.number(0, 6), zone="utc")
        case "uuid":
            return kinds.Uuid()
        case "character":
            # bpchar without a length, unlike character, has none
            length = length or (None if type_.name == "bpchar" else 1)
            return kinds.Text(length and 2 * length, length, padded=True)
        case "character varying":
            return kinds.Text(length and 2 * length, length)
        case "text" | "citext":
            return kinds.Text()
        case "name":
            return kinds.Text(BOUNDED_TEXT[name])
    return None


def _numeric(type_: TypeText) -> kinds.Decimal:
    if not type_.numbers:
        return kinds.Decimal(None, None, nan=True)
    precision, scale = type_.numbers[0], type_.number(1, 0)
    # from PostgreSQL 15 on, the scale may be negative or exceed the precision
    return kinds.Decimal(max(precision, precision - scale, scale), max(scale, 0), nan=True)


def export(declared: str) -> Export | Refusal:
    """How a column is selected, and the values that it can hold.

    Args:
        declared: as `PostgresServer.columns` returns it.
    """
    type_ = read(declared)
    return _scalar(declared) if type_.item is None else _array(declared, type_.item)


def _scalar(declared: str) -> Export | Refusal:
    type_ = read(declared)
    name, kind = type_.name, type_.kind
    if name in COMPUTED:
        value = COMPUTED[name]
        return Export(INTEGERS["bigint"], value, value, f"{value}::text")
    match kind:
        case (
            kinds.Integer()
            | kinds.Float()
            | kinds.Boolean()
            | kinds.Date()
            | kinds.Timestamp()
            | kinds.Uuid()
        ):
            # ADBC reads oid as a signed integer, which would wrap from 2^31 on
            return Export(kind, "{}::bigint" if name == "oid" else "{}", "{}", "{}::text")
        case kinds.Decimal() if name == "money":
            return Export(kind, "{}::numeric::text", "{}::numeric", "{}::numeric::text")
        case kinds.Decimal(precision):
            # trailing zeros would count as digits
            text = "{}" if precision else "trim_scale({})"
            return Export(kind, f"{text}::text", text, f"{text}::text")
        case kinds.Binary():
            return Export(kind, "{}", None, "encode({}, 'hex')")
        case kinds.Time(digits):
            # to_char prints 24:00:00, which Arrow's time cannot hold
            pattern = "HH24:MI:SS" + (f".FF{digits}" if digits else "")
            text = f"to_char({{}}, '{pattern}')"
            return Export(kind, "{}", text, text)
        case kinds.Text() if name in ("character", "character varying"):
            # a cast to text would strip char's padding
            return Export(kind, "{}", "{}", "{}")
    if name in TEXT or name.startswith("interval") or name in RANGES:
        return _text(name, reader.read(declared))
    why = "of a composite type" if name in ("composite", "record") else "of an unknown type"
    return Refusal(why, "{}::text", "what psql prints")


def _text(name: str, type_: TypeText) -> Export:
    if name in ("bit", "bit varying"):
        length = type_.numbers[0] if type_.numbers else (1 if name == "bit" else None)
        return Export(kinds.Text(length), "{}::text", "{}::text", "{}::text")
    if name in OUTPUT:
        text = f"{OUTPUT[name]}({{}})::text"
    elif name in RAW_TEXT:
        text = "{}"
    else:
        text = "{}::text"
    units = BOUNDED_TEXT.get("interval" if name.startswith("interval") else name)
    return Export(kinds.Text(units), text, text, text)


def _array(declared: str, item_type: str) -> Export | Refusal:
    item = _scalar(item_type)
    as_json = "array_to_json({})::text"
    if isinstance(item, Refusal):
        return Refusal(f"an array {item.why}", item.as_text, item.note)
    if isinstance(item.kind, kinds.Time):
        return Refusal("an array of times of day", as_json, "JSON")
    declared_name = name = reader.read(declared).name
    if isinstance(item.kind, kinds.Decimal) or (
        isinstance(item.kind, kinds.Text) and item.arrow != "{}"
    ):
        name = "text"
    elif name == "oid":
        name = "bigint"
    return Export(
        kinds.Array(item.kind),
        "{}" if name == declared_name else f"{{}}::{name}[]",
        None,
        as_json,
        # ADBC flattens dimensions, and its error for another lower bound names no column
        refuse="array_ndims({}) > 1 OR array_lower({}, 1) <> 1",
        refuse_text="array_lower({}, 1) <> 1 OR array_lower({}, 2) <> 1",
        refuse_reason="has several dimensions, which a text type takes as JSON, or a lower bound "
        "other than 1, which an expression takes as text",
        refuse_type=f"{name}[]",
    )


MOST_DIGITS = 76
"""Most digits of a decimal in record batches."""

ARROW: dict[str, pa.DataType] = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
}


def slot(declared: str, version: str = "") -> Slot | None:
    """The values of a target column, and the Arrow type that ADBC's ingestion takes; None if only
    PostgreSQL's own formats can fill it."""
    type_ = read(declared)
    match type_.kind:
        case kinds.Integer() | kinds.Float() as kind if type_.name in ARROW:
            return Slot(kind, ARROW[type_.name])
        case kinds.Boolean() as kind:
            return Slot(kind, pa.bool_())
        case kinds.Decimal(precision, scale) as kind if type_.name == "numeric":
            return _decimal(kind, precision, scale)
        case kinds.Text() as kind if type_.name in ("text", "character", "character varying"):
            return Slot(kind, pa.string())
        case kinds.Binary() as kind:
            return Slot(kind, pa.binary())
        case kinds.Date() as kind:
            return Slot(kind, pa.date32())
        case kinds.Time(digits) as kind if 0 <= digits <= 6:
            return Slot(kind, pa.time64("us"))
        case kinds.Timestamp(digits, zone=zone) as kind if 0 <= digits <= 6:
            return Slot(kind, pa.timestamp("us", tz="UTC" if zone == "utc" else None))
        case kinds.Uuid() as kind:
            return Slot(kind, pa.binary(16))
        case kinds.Array():
            item = slot(str(type_.item))
            if item and not isinstance(item.kind, kinds.Uuid):
                return Slot(kinds.Array(item.kind), pa.list_(item.arrow))
    return None


def _decimal(kind: kinds.Decimal, precision: int | None, scale: int | None) -> Slot | None:
    if precision is None:
        # see `resources.columns.conversions`
        return Slot(replace(kind, nan=False), pa.null())
    if not 1 <= precision <= MOST_DIGITS or not 0 <= (scale or 0) <= precision:
        return None
    decimals = pa.decimal128 if precision <= 38 else pa.decimal256
    return Slot(replace(kind, nan=False), decimals(precision, scale or 0))


def default(kind: kinds.Kind) -> str | None:
    """The type that holds a kind of values without loss; None if there is none.

    Values with a seventh decimal of a second are refused one by one: no type holds them.
    """
    match kind:
        case kinds.Boolean():
            return "boolean"
        case kinds.Integer(low, high):
            for name in ARROW:
                if name in INTEGERS and INTEGERS[name].low <= low and high <= INTEGERS[name].high:
                    return name
            return "numeric(20,0)"
        case kinds.Decimal(precision, scale):
            return (
                f"numeric({precision},{scale})" if precision and precision <= MOST_DIGITS else None
            )
        case kinds.Float(bits):
            return "real" if bits == 32 else "double precision"
        case kinds.Text(units, characters):
            length = characters or units
            return f"character varying({length})" if length else "text"
        case kinds.Binary():
            return "bytea"
        case kinds.Date():
            return "date"
        case kinds.Time(digits):
            return f"time({min(digits, 6)}) without time zone"
        case kinds.Timestamp(digits, zone=zone):
            return f"timestamp({min(digits, 6)}) with{'out' if zone == 'none' else ''} time zone"
        case kinds.Uuid():
            return "uuid"
        case kinds.Array(item):
            inner = default(item)
            return inner and f"{inner}[]"
    return None


EPOCH_DAYS = 10_957
"""From 1970-01-01 to 2000-01-01, which ADBC adds to PostgreSQL's count, with wraparound."""


def calendar(number: int, per_day: int, bits: int) -> int | str:
    """See `TypeMap.calendar`."""
    epoch, half = EPOCH_DAYS * per_day, 2 ** (bits - 1)
    count = (number - epoch + half) % 2**bits - half
    if count in (-half, half - 1):
        return "infinity" if count > 0 else "-infinity"
    return count + epoch


TYPES = TypeMap(
    read=read,
    export=export,
    decimals_as_text=True,
    infinities=True,
    epoch_days=EPOCH_DAYS,
    calendar=calendar,
    slot=slot,
    default=default,
    most_digits=MOST_DIGITS,
    decimal="numeric({},{})".format,
    keeps=lambda column: column.own_type or ("bigint" if column.type == CTID else column.type),
    computed=COMPUTED,
    second_digits=6,
    holds_nul=False,
)
