"""The canonical form of a row in PostgreSQL's SQL (12 and later)."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.contract.digest_writer import Algorithm
from tableferry.resources.contract.fields import Field, Valued
from tableferry.resources.digest.definition import (
    CONVERTED,
    LONG_DECIMAL,
    NAN_BITS,
    NULL,
    RECORD,
    SAMPLE,
    UUID,
)
from tableferry.resources.digest.fields import declared
from tableferry.resources.postgres import record_digest
from tableferry.resources.postgres.types import TYPES
from tableferry.resources.types.type_map import Column

_AT_A_TIME = 49
"""Values in one call, two arguments each, of which a function takes 100 (PostgreSQL manual,
appendix K)."""

VARIANTS = ("cast", "plain", CONVERTED)
"""Ways to turn 8 bytes into a bigint: a cast, which exists from PostgreSQL 18 on and takes a third
of the time, or a bit string. The last way also converts texts to UTF-8, for other encodings."""

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
"""See `DigestWriter.CONSTANTS`."""

END = {"date": "infinity", "timestamp": "294247-01-10 04:00:54.775807"}
"""The first date or timestamp without a 64-bit count of its units: the last count is DuckDB's
infinity."""

_FULL = {
    6: ("294247-01-01", 9_223_371_244_800_000_000, 500),
    7: ("29247-01-01", 8607790080000000000, 0.5),
}
"""By digits: a timestamp near the end of 64 bits, its number, and how many numbers each second from
then on has: up to 294276 no more would fit."""

_DATE_ENDS, _TIMESTAMP_ENDS = (-(2**31) - 1, 2**31), (-9 * 10**18, 2**63 - 1)
"""The numbers of the infinities; below the lower one there is room to round down."""

MICROSECONDS_UNTIL_2000 = 946_684_800_000_000
"""From 1970 to PostgreSQL's epoch."""

DOUBLE = ("1899-01-01", "2041-01-01")
"""Between these, seconds since 1970 as a double are exact to the microsecond: there are fewer than
2^51, and a quotient and a product are each rounded by at most one part in 2^53."""


def whole(field: Field, column: Column, x: str) -> str | None:
    """See `DigestWriter.whole`."""
    number, kind = _finite(field, column, x), declared(TYPES, column.type).kind
    if kind == "integer" or field.kind not in ("date", "timestamp"):
        return number
    moment, late = f"({x})::date", ""
    least, greatest = _DATE_ENDS
    if field.kind == "timestamp":
        least, greatest = _TIMESTAMP_ENDS
        end, at_end, per_second = _FULL[7 if field.scale > 6 else 6]
        moment = x if kind == "date" else _utc(column, x)
        seconds = f"date_part('epoch', {_utc(column, x)} - timestamp '{end}')"
        counted = f"{at_end} + floor({seconds} * {per_second})::bigint"
        # a date may be later than any timestamp
        late = f"WHEN {moment} >= '{end}' THEN {greatest - 1 if kind == 'date' else counted} "
    return (
        f"(CASE WHEN {moment} = 'infinity' THEN {greatest} WHEN {moment} = '-infinity' "
        f"THEN {least} {late}ELSE {number} END)"
    )


def _finite(field: Field, column: Column, x: str) -> str | None:
    """Write the number of a value that is not infinite, nor too late for 64 bits."""
    kind = declared(TYPES, column.type).kind
    match field.kind:
        case "integer" | "boolean" if kind == "boolean":
            return f"({x})::int::bigint"
        case "integer" | "boolean":
            return f"({x})::bigint"
        case "date" | "time" | "timestamp" if kind == "integer":
            return f"({x})::bigint"
        case "date":
            return f"({x})::date - date '1970-01-01'"
        case "time":
            micros = f"(date_part('epoch', ({x})::time) * 1000000)::bigint"
            return f"{micros} * 10" if field.scale > 6 else micros
        case "timestamp":
            x = _utc(column, x)
            days = f"(({x})::date - date '1970-01-01')::bigint"
            # a double is exact within a day, and much faster than a numeric
            micros = f"{days} * 86400000000 + (date_part('epoch', ({x})::time) * 1000000)::bigint"
            return f"({micros})::numeric * 10" if field.scale > 6 else micros
    return None


def text(field: Field, column: Column, x: str, variant: str = "plain") -> str:
    """See `DigestWriter.text`."""
    match field.kind:
        case _ if _is_form(field, column):
            return f"({x})::text"
        case "integer" if declared(TYPES, column.type).kind == "decimal":
            return _decimal(0, f"({x})::numeric")
        case "decimal":
            return _decimal(field.scale, f"({x})::numeric")
        case "float":
            x = f"({x})::float8"
            bits = _bigint(f"float8send({x})", variant)
            return f"(CASE WHEN {x} = 'NaN' THEN {NAN_BITS} ELSE {bits} END)::text"
        case "date" | "timestamp":
            if declared(TYPES, column.type).kind == "integer":
                return f"({x})::text"
            # infinities, and what 64 bits of microseconds do not reach, are written as they are
            value = x if field.kind == "timestamp" else f"({x})::date"
            finite = f"{value} > '-infinity' AND {value} < '{END[field.kind]}'"
            recent, number = _recent(field, column, x), _finite(field, column, x)
            if variant == "cast" and field.kind == "timestamp" and field.scale <= 6:
                send = "timestamptz_send" if _zoned(column) else "timestamp_send"
                sent = _bigint(f"{send}({_moment(column, x)})", variant)
                recent, number = "", f"{sent} + {MICROSECONDS_UNTIL_2000}"
            return f"CASE {recent}WHEN {finite} THEN ({number})::text ELSE ({x})::text END"
        case "integer" | "boolean" | "time":
            return f"({whole(field, column, x)})::text"
        case "uuid":
            return f"({x})::text"
        case "text":
            return _text(field, column, x)
    raise AssertionError(f"{field.kind} has no text of its own")


def _is_form(field: Field, column: Column) -> bool:
    """Whether the value's text is its canonical form."""
    type_ = declared(TYPES, column.type)
    if type_.kind != field.kind:
        return False
    if type_.kind == "decimal":
        bare = type_.name == "money" or type_.precision is None
        return not bare and type_.scale == field.scale
    return type_.kind in ("integer", "uuid")


def _recent(field: Field, column: Column, x: str) -> str:
    """The CASE branch for timestamps of recent decades, at two thirds of the cost of `whole`."""
    if field.kind != "timestamp":
        return ""
    moment = _moment(column, x)
    micros = f"(date_part('epoch', {moment}) * 1000000)::bigint"
    units = f"{micros} * 10" if field.scale > 6 else micros
    first, last = DOUBLE
    return f"WHEN {moment} >= '{first}' AND {moment} < '{last}' THEN ({units})::text "


def framed(field: Field, column: Column, x: str, algorithm: Algorithm, variant: str) -> str:
    """See `DigestWriter.framed`."""
    if algorithm == RECORD:
        native = record_digest.native(field, x)
        return native or f'({framed(field, column, x, "sha256", variant)}) COLLATE "C"'
    if field.kind == "text":
        value = text(field, column, x, variant)
        size = f"convert_to({value}, 'UTF8')" if variant == CONVERTED else value
        return f"octet_length({size}) || ':' || {value}"
    if field.kind == "bytes":
        return f"octet_length({x}) || ':' || {_hashed(x, x, algorithm, variant)}"
    if field.kind == "array":
        assert field.item is not None
        item = framed(field.item, field.item_column(column), "ferry__u.e", algorithm, variant)
        items = (
            f"SELECT count(*) || ':' || coalesce(string_agg(coalesce({item}, '{NULL}'), ',' "
            f"ORDER BY i), '') FROM unnest({x}) WITH ORDINALITY AS ferry__u(e, i)"
        )
        return f"CASE WHEN {x} IS NOT NULL THEN ({items}) END"
    return text(field, column, x, variant)


def sent_exactly(field: Field, column: Column) -> bool:
    """See `DigestWriter.sent_exactly`. The client digests text that the server writes."""
    return False


def row(values: Sequence[Valued], algorithm: Algorithm, variant: str) -> str:
    """See `DigestWriter.row`; for `RECORD`, a record."""
    if algorithm == RECORD:
        return f"ROW({', '.join(framed(*value, algorithm, variant) for value in values)})"
    return _joined([_in_row(value, algorithm, variant) for value in values])


def digest(row_text: str, algorithm: Algorithm, variant: str) -> str:
    """See `DigestWriter.digest`."""
    if algorithm == RECORD:
        return record_digest.digest(row_text)
    utf8 = f"convert_to({row_text}, 'UTF8')"
    return _hashed(row_text if variant != CONVERTED else utf8, utf8, algorithm, variant)


def exact_sum(field: Field, x: str) -> str:
    """See `DigestWriter.exact_sum`."""
    return _decimal(field.scale, f"sum(({x})::numeric)")


def _hashed(x: str, in_bytes: str, algorithm: Algorithm, variant: str) -> str:
    """The first 8 bytes of a hash as a bigint; only MD5 takes a text instead of bytes."""
    if algorithm == "sha256":
        return _bigint(f"substr(sha256({in_bytes}), 1, 8)", variant)
    if variant == "cast":
        return _bigint(f"substr(decode(md5({x}), 'hex'), 1, 8)", variant)
    return f"('x' || left(md5({x}), 16))::bit(64)::bigint"


def _bigint(sent: str, variant: str) -> str:
    """The bigint of 8 bytes, the most significant first."""
    if variant == "cast":
        return f"({sent})::bigint"
    return f"('x' || encode({sent}, 'hex'))::bit(64)::bigint"


def _in_row(value: Valued, algorithm: Algorithm, variant: str) -> str:
    """The arguments of `concat_ws`, which skips NULLs, for one value."""
    field, column, x = value
    if _is_form(field, column):
        # concat_ws writes other types without casting them to text first
        return f"{x}, CASE WHEN {x} IS NULL THEN '{NULL}' END"
    return f"coalesce({framed(field, column, x, algorithm, variant)}, '{NULL}')"


def _joined(values: Sequence[str]) -> str:
    # `||` would copy all that precedes it
    groups = [
        f"concat_ws(',', {', '.join(values[start : start + _AT_A_TIME])})"
        for start in range(0, len(values), _AT_A_TIME)
    ]
    return groups[0] if len(groups) == 1 else _joined(groups)


def _zoned(column: Column) -> bool:
    return declared(TYPES, column.type).zoned


def _moment(column: Column, x: str) -> str:
    return x if _zoned(column) else f"({x})::timestamp"


def _utc(column: Column, x: str) -> str:
    return f"({x} AT TIME ZONE 'UTC')" if _zoned(column) else f"({x})::timestamp"


def _decimal(scale: int, x: str) -> str:
    # with the target's digits, unless they are too few
    return f"CASE WHEN {x} = round({x}, {scale}) THEN round({x}, {scale}) ELSE {x} END::text"


def _text(field: Field, column: Column, x: str) -> str:
    """The column as text. The cast strips the padding of character(n), which the export keeps."""
    type_ = declared(TYPES, column.type)
    value = x if type_.name in ("text", "character varying") else f"({x})::text"
    if field.padded:
        return f"rtrim({value}, ' ')"
    if type_.padded and type_.precision and field.rendered is None:
        return f"rpad({value}, {type_.precision})"
    return value
