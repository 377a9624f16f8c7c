"""What leaves PostgreSQL for each of its types, and the expressions that select it exactly."""

from __future__ import annotations

from dataclasses import replace

from resources.types.declared import Declared, read
from resources.types.export import Export, Refusal
from resources.types.kinds import (
    MICROSECONDS_PER_DAY,
    Array,
    Binary,
    Boolean,
    Date,
    Decimal,
    Float,
    Text,
    Time,
    Timestamp,
    Uuid,
    signed,
    unsigned,
)

# 4713-11-24 BC and 5874897-12-31, the ends of `date`; 294276-12-31 ends `timestamp`. The infinities
# are outside of them. (datatype/timestamp.h)
FIRST_DAY, LAST_DAY = -2_440_588, 2_145_042_905
LAST_TIMESTAMP_DAY = 106_763_167
DATES = Date(FIRST_DAY, LAST_DAY)
TIMESTAMPS = Timestamp(
    6, FIRST_DAY * MICROSECONDS_PER_DAY, (LAST_TIMESTAMP_DAY + 1) * MICROSECONDS_PER_DAY - 1
)

INTEGERS = {
    "smallint": signed(16),
    "integer": signed(32),
    "int": signed(32),
    "bigint": signed(64),
    "oid": unsigned(32),
}
# The longest text of a type, where it has one. An interval: '-178000000 years -11 mons
# -2147483648 days -2562047788:00:54.775808'; an inet: an IPv4-mapped IPv6 address with its mask.
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
RAW_TEXT = {"text", "name", "json", "jsonb"}
"""Types whose own binary form ADBC reads as the text that the server would print."""

OUTPUT = {"inet": "inet_out", "cidr": "cidr_out"}
"""Types whose cast to text differs from what they print: inet::text always shows the mask."""


def export(declared: str) -> Export | Refusal:
    """How a column of a PostgreSQL type is selected, and what it can hold.

    Args:
        declared: as `format_type` prints it, a domain resolved to its base type; `enum` and
            `composite` stand for themselves.
    """
    read_type = read(declared)
    if read_type.array:
        return _array(declared, read_type)
    return _scalar(declared, read_type)


def _scalar(declared: str, type_: Declared) -> Export | Refusal:
    name = type_.name
    if name in INTEGERS:
        # ADBC reads oid as a signed integer, so that it would wrap from 2^31 on
        return Export(INTEGERS[name], "{}::bigint" if name == "oid" else "{}", "{}", "{}::text")
    if name == "numeric":
        return _numeric(type_)
    if name in ("real", "double precision"):
        bits = 32 if name == "real" else 64
        return Export(Float(bits), "{}", "{}", "{}::text")  # type: ignore[arg-type]
    if name == "money":
        return Export(Decimal(19, 2), "{}::numeric::text", "{}::numeric", "{}::numeric::text")
    if name == "boolean":
        return Export(Boolean(), "{}", "{}", "{}::text")
    if name == "bytea":
        return Export(Binary(), "{}", None, "encode({}, 'hex')")
    if name == "date":
        return Export(DATES, "{}", "{}", "{}::text")
    if name == "time without time zone":
        digits = type_.number(0, 6)
        # to_char prints 24:00:00 as such, where Arrow's time cannot
        pattern = "HH24:MI:SS" + (f".FF{digits}" if digits else "")
        text = f"to_char({{}}, '{pattern}')"
        return Export(Time(digits, midnight=True), "{}", text, text)
    if name in ("timestamp without time zone", "timestamp with time zone"):
        kind = replace(TIMESTAMPS, digits=type_.number(0, 6))
        zoned = name.endswith("with time zone")
        return Export(replace(kind, zone="utc") if zoned else kind, "{}", "{}", "{}::text")
    if name == "uuid":
        return Export(Uuid(), "{}", "{}", "{}::text")
    if name in ("character", "character varying"):
        # not ::text, which would cut char's padding
        if not type_.numbers:
            return Export(Text(), "{}", "{}", "{}")
        length = type_.numbers[0]
        return Export(Text(2 * length, length), "{}", "{}", "{}")
    if name in TEXT or name.startswith("interval") or name in RANGES:
        return _text(type_)
    return _refused(declared, name)


def _numeric(type_: Declared) -> Export:
    if not type_.numbers:
        # trailing zeros carry no value, but would count as digits
        text = "trim_scale({})"
        return Export(Decimal(None, None, nan=True), f"{text}::text", text, f"{text}::text")
    precision, scale = type_.numbers[0], type_.number(1, 0)
    # from version 15 on the scale may be negative (left of the point) or exceed the precision
    kind = Decimal(max(precision, precision - scale, scale), max(scale, 0), nan=True)
    return Export(kind, "{}::text", "{}", "{}::text")


def _text(type_: Declared) -> Export:
    name = type_.name
    if name in ("bit", "bit varying"):
        length = type_.numbers[0] if type_.numbers else (1 if name == "bit" else None)
        return Export(Text(length), "{}::text", "{}::text", "{}::text")
    if name in OUTPUT:
        text = f"{OUTPUT[name]}({{}})::text"
    elif name in RAW_TEXT:
        text = "{}"
    else:
        text = "{}::text"
    units = BOUNDED_TEXT.get("interval" if name.startswith("interval") else name)
    return Export(Text(units), text, text, text)


def _array(declared: str, type_: Declared) -> Export | Refusal:
    item = _scalar(declared, replace(type_, array=False))
    as_json = "array_to_json({})::text"
    if isinstance(item, Refusal):
        return Refusal(f"an array {item.why}", item.as_text)
    if isinstance(item.kind, Time):
        return Refusal("an array of times of day", as_json, "JSON")
    name = type_.name
    if isinstance(item.kind, Decimal) or (isinstance(item.kind, Text) and item.arrow != "{}"):
        name = "text"
    elif type_.name == "oid":
        name = "bigint"
    return Export(
        Array(item.kind),
        "{}" if name == type_.name else f"{{}}::{name}[]",
        None,
        as_json,
        # ADBC flattens the dimensions, and refuses another lower bound without a name
        refuse="array_ndims({}) > 1 OR array_lower({}, 1) <> 1",
        refuse_text="array_lower({}, 1) <> 1 OR array_lower({}, 2) <> 1",
        refuse_reason="has several dimensions or a lower bound other than 1",
        refuse_type=f"{name}[]",
    )


def _refused(declared: str, name: str) -> Refusal:
    why = "of a composite type" if name in ("composite", "record") else "of a type we do not know"
    return Refusal(why, "{}::text", "what psql prints")
