"""The canonical form of a row in PostgreSQL's SQL (12 and later)."""

from __future__ import annotations

from collections.abc import Sequence

from resources.digest.definition import LONG_DECIMAL, NAN_BITS, NULL, SAMPLE, UUID, Algorithm
from resources.digest.fields import Field, declared
from resources.tables import Column

_AT_A_TIME = 16
"""`||` copies what is left of it; so columns are joined in groups, and the groups in turn."""

ENCODINGS = ("plain", "converted")
"""How a text becomes UTF-8 bytes: it is UTF-8 already, or it is converted."""

CONSTANTS = {
    "a large integer": ("bigint", "(-9223372036854775807)"),
    "true": ("boolean", "true"),
    "a long decimal": ("numeric(38,10)", f"({LONG_DECIMAL})::numeric(38,10)"),
    "a short decimal": ("numeric(12,4)", "(-0.5)::numeric(12,4)"),
    "a float": ("double precision", "0.1::float8"),
    "negative zero": ("double precision", "'-0.0'::float8"),
    "NaN": ("real", "'NaN'::real"),
    "a date": ("date", "date '1900-01-01'"),
    "a time": ("time without time zone", "time '23:59:59.999999'"),
    "a timestamp": ("timestamp without time zone", "timestamp '1900-01-01 00:00:00.000001'"),
    "an instant": ("timestamp with time zone", "timestamptz '1970-01-01 01:00:00.000001+02'"),
    "a uuid": ("uuid", f"uuid '{UUID}'"),
    "a text with blanks": ("character(4)", "'~,: '::character(4)"),
    "a text": ("text", f"'{SAMPLE}'::text"),
    "NULL": ("text", "NULL::text"),
    "bytes": ("bytea", "decode('00ff10', 'hex')"),
}
"""What it is tried with: by name of `digest.probe.VALUES`, the declared type and a literal."""


END = {"date": "infinity", "timestamp": "294247-01-01"}
"""Before this, a date or timestamp has a 64-bit count of its units."""

DOUBLE = ("1899-01-01", "2041-01-01")
"""Between these, the seconds since 1970 as a double tell every microsecond: there are fewer than
2^51, and a quotient and a product are each rounded by at most one part in 2^53."""


def whole(field: Field, column: Column, x: str) -> str | None:
    """A bigint that stands for the value and sorts like it; None for kinds that have none."""
    kind = declared("postgres", column.type).kind
    match field.kind:
        case "integer" | "boolean" if kind == "boolean":
            return f"({x})::int::bigint"
        case "integer" | "boolean":
            return f"({x})::bigint"
        case "date":
            return f"({x})::date - date '1970-01-01'"
        case "time":
            micros = f"(date_part('epoch', ({x})::time) * 1000000)::bigint"
            return f"{micros} * 10" if field.scale > 6 else micros
        case "timestamp":
            x = _utc(column, x)
            days = f"(({x})::date - date '1970-01-01')::bigint"
            # a double is exact for the microseconds of one day, and much faster than a numeric
            micros = f"{days} * 86400000000 + (date_part('epoch', ({x})::time) * 1000000)::bigint"
            return f"({micros})::numeric * 10" if field.scale > 6 else micros
    return None


def text(field: Field, column: Column, x: str) -> str:
    """The value's canonical form; of text, the text alone."""
    match field.kind:
        case "integer" if declared("postgres", column.type).kind == "decimal":
            return _decimal(0, f"({x})::numeric")
        case "decimal":
            own = declared("postgres", column.type)
            if own.name != "money" and own.precision is not None and own.scale == field.scale:
                return f"({x})::text"
            return _decimal(field.scale, f"({x})::numeric")
        case "integer" if declared("postgres", column.type).kind == "integer":
            return f"({x})::text"
        case "float":
            x = f"({x})::float8"
            bits = f"('x' || encode(float8send({x}), 'hex'))::bit(64)::bigint"
            return f"(CASE WHEN {x} = 'NaN' THEN {NAN_BITS} ELSE {bits} END)::text"
        case "date" | "timestamp":
            if declared("postgres", column.type).kind == "integer":
                return f"({x})::text"
            # what is infinite, or later than 64 bits of microseconds reach, is written as it is
            value = x if field.kind == "timestamp" else f"({x})::date"
            finite = f"{value} > '-infinity' AND {value} < '{END[field.kind]}'"
            usual = f"WHEN {finite} THEN ({whole(field, column, x)})::text ELSE ({x})::text END"
            return f"CASE {_recent(field, column, x)}{usual}"
        case "integer" | "boolean" | "time":
            return f"({whole(field, column, x)})::text"
        case "uuid":
            return f"({x})::text"
        case "text":
            return _text(field, column, x)
    raise AssertionError(f"{field.kind} has no text of its own")


def _recent(field: Field, column: Column, x: str) -> str:
    """The branch of CASE for the timestamps of these decades, at two thirds of `whole`'s cost."""
    if field.kind != "timestamp":
        return ""
    moment = x if declared("postgres", column.type).zoned else f"({x})::timestamp"
    micros = f"(date_part('epoch', {moment}) * 1000000)::bigint"
    units = f"{micros} * 10" if field.scale > 6 else micros
    first, last = DOUBLE
    return f"WHEN {moment} >= '{first}' AND {moment} < '{last}' THEN ({units})::text "


def framed(field: Field, column: Column, x: str, algorithm: Algorithm, encoding: str) -> str:
    """The canonical form as it stands in a row; NULL for NULL."""
    if field.kind == "text":
        value = text(field, column, x)
        size = f"convert_to({value}, 'UTF8')" if encoding == "converted" else value
        return f"octet_length({size}) || ':' || {value}"
    if field.kind == "bytes":
        hashed = (
            f"left(md5({x}), 16)"
            if algorithm == "md5"
            else f"encode(substr(sha256({x}), 1, 8), 'hex')"
        )
        return f"octet_length({x}) || ':' || ('x' || {hashed})::bit(64)::bigint"
    if field.kind == "array":
        assert field.item is not None
        item = framed(field.item, field.item.source, "ferry__u.e", algorithm, encoding)
        items = (
            f"SELECT count(*) || ':' || coalesce(string_agg(coalesce({item}, '{NULL}'), ',' "
            f"ORDER BY i), '') FROM unnest({x}) WITH ORDINALITY AS ferry__u(e, i)"
        )
        return f"CASE WHEN {x} IS NOT NULL THEN ({items}) END"
    return text(field, column, x)


def sent_exactly(field: Field, column: Column) -> bool:
    """Nothing is taken for exact: the server writes what a client digests."""
    return False


def row(values: Sequence[str]) -> str:
    """The text of a row of framed values."""
    return _joined([f"coalesce({value}, '{NULL}')" for value in values])


def digest(row_text: str, algorithm: Algorithm, encoding: str) -> str:
    """The digest of a row's text, a bigint."""
    if algorithm == "sha256":
        first = f"encode(substr(sha256(convert_to({row_text}, 'UTF8')), 1, 8), 'hex')"
    else:
        utf8 = f"convert_to({row_text}, 'UTF8')" if encoding == "converted" else row_text
        first = f"left(md5({utf8}), 16)"
    return f"('x' || {first})::bit(64)::bigint"


def exact_sum(field: Field, x: str) -> str:
    """The sum of integers or decimals, as text."""
    return _decimal(field.scale, f"sum(({x})::numeric)")


def _joined(values: Sequence[str]) -> str:
    if len(values) <= _AT_A_TIME:
        return " || ',' || ".join(values)
    step = max(_AT_A_TIME, -(-len(values) // _AT_A_TIME))
    groups = [values[start : start + step] for start in range(0, len(values), step)]
    return " || ',' || ".join(f"({_joined(group)})" for group in groups)


def _utc(column: Column, x: str) -> str:
    if declared("postgres", column.type).zoned:
        return f"({x} AT TIME ZONE 'UTC')"
    return f"({x})::timestamp"


def _decimal(scale: int, x: str) -> str:
    # with the target's digits, unless that would round some away
    return f"CASE WHEN {x} = round({x}, {scale}) THEN round({x}, {scale}) ELSE {x} END::text"


def _text(field: Field, column: Column, x: str) -> str:
    """The column as text. The cast cuts the blanks of character(n), which the export keeps."""
    own = declared("postgres", column.type)
    value = x if own.name in ("text", "character varying") else f"({x})::text"
    if field.padded:
        return f"rtrim({value}, ' ')"
    if own.padded and field.rendered is None:
        return f"rpad({value}, {own.precision or 1})"
    return value
