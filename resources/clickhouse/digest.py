"""The canonical form of a row in ClickHouse's SQL, whose functions return NULL for NULL."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.clickhouse.dialect import DIALECT
from tableferry.resources.clickhouse.types import HAVE_NULL, TYPES
from tableferry.resources.contract.digest_writer import Algorithm
from tableferry.resources.contract.fields import Field, Valued
from tableferry.resources.digest.definition import LONG_DECIMAL, NAN_BITS, NULL, SAMPLE, UUID
from tableferry.resources.digest.fields import declared
from tableferry.resources.types.type_map import Column

_HASHES: dict[Algorithm, str] = {"md5": "MD5", "sha256": "SHA256"}

VARIANTS = ("plain",)

CONSTANTS = {
    "a large integer": ("Int64", "toInt64(-9223372036854775807)"),
    "true": ("Bool", "true"),
    "a long decimal": ("Decimal(38, 10)", f"toDecimal128('{LONG_DECIMAL}', 10)"),
    "a short decimal": ("Decimal(12, 4)", "toDecimal64('-0.5', 4)"),
    "a float": ("Float64", "toFloat64('0.1')"),
    "negative zero": ("Float64", "toFloat64('-0.0')"),
    "NaN": ("Float32", "toFloat32('nan')"),
    "a date": ("Date32", "toDate32('1900-01-01')"),
    "a time": ("String", "'23:59:59.999999'"),
    "a timestamp": (
        "DateTime64(6, 'UTC')",
        "toDateTime64('1900-01-01 00:00:00.000001', 6, 'UTC')",
    ),
    "an instant": ("DateTime64(6, 'UTC')", "toDateTime64('1969-12-31 23:00:00.000001', 6, 'UTC')"),
    "a uuid": ("UUID", f"toUUID('{UUID}')"),
    "a text with blanks": ("String", "'~,: '"),
    "a text": ("String", f"'{SAMPLE}'"),
    "bytes": ("String", "unhex('00ff10')"),
}
"""The declared type and a literal of each trial value, by its name in `digest.probe.VALUES`."""


def whole(field: Field, column: Column, x: str) -> str | None:
    """An Int64 that represents the value and sorts like it; None for kinds without one."""
    kind = declared(TYPES, column.type).kind
    if field.kind in ("integer", "boolean") or (
        kind == "integer" and field.kind in ("date", "time", "timestamp")
    ):
        # `type: Int64` may have been declared for a date: days or microseconds
        return f"toInt64({x})"
    if field.kind == "date":
        return f"toInt64(toInt32({x}))"
    if field.kind == "timestamp":
        return f"reinterpretAsInt64(toDateTime64({x}, {7 if field.scale > 6 else 6}, 'UTC'))"
    if field.kind == "time":
        digits = 7 if field.scale > 6 else 6
        if kind == "time":
            return f"toInt64(toDecimal64(toTime64({x}, {digits}), {digits}) * {10**digits})"
        hours, minutes, seconds = (f"toInt64OrNull(substring({x}, {at}, 2))" for at in (1, 4, 7))
        fraction = f"toInt64OrNull(rightPad(substring({x}, 10), {digits}, '0'))"
        return f"(({hours} * 60 + {minutes}) * 60 + {seconds}) * {10**digits} + {fraction}"
    return None


def text(field: Field, column: Column, x: str) -> str:
    """The value's canonical form; for text, the text alone."""
    type_ = declared(TYPES, column.type)
    match field.kind:
        case "decimal":
            decimal = "Decimal" in type_.name
            return f"toDecimalString({x}, {field.scale})" if decimal else f"toString({x})"
        case "float":
            x = f"toFloat64({x})"
            return f"toString(if(isNaN({x}), {NAN_BITS}, reinterpretAsInt64({x})))"
        case "integer" | "uuid":
            return f"toString({x})"
        case "time" if type_.kind == "text":
            digits = 7 if field.scale > 6 else 6
            usual = f"match({x}, '^[0-2]\\\\d:[0-5]\\\\d:[0-5]\\\\d(\\\\.\\\\d{{1,{digits}}})?$')"
            return f"if({usual}, toString({whole(field, column, x)}), {x})"
        case "boolean" | "date" | "time" | "timestamp":
            return f"toString({whole(field, column, x)})"
        case "text":
            return f"trim(TRAILING ' ' FROM toString({x}))" if field.padded else f"toString({x})"
    raise AssertionError(f"{field.kind} has no text of its own")


def framed(field: Field, column: Column, x: str, algorithm: Algorithm, variant: str) -> str:
    """The canonical form as part of a row; NULL for NULL."""
    if field.kind == "text":
        value = text(field, column, x)
        form = f"concat(toString(length({value})), ':', {value})"
        stored = DIALECT.quote(column.name)
        if declared(TYPES, column.type).name in HAVE_NULL and stored in x:
            # not by what the export makes of it
            return f"if({stored} IS NOT NULL, {form}, NULL)"
        return form
    if field.kind == "bytes":
        hashed = digest(x, algorithm, variant)
        return f"concat(toString(length({x})), ':', toString({hashed}))"
    if field.kind == "array":
        assert field.item is not None
        item = framed(field.item, field.item_column(column), "e", algorithm, variant)
        items = f"arrayMap(e -> ifNull({item}, '{NULL}'), {x})"
        return f"concat(toString(length({x})), ':', arrayStringConcat({items}, ','))"
    return text(field, column, x)


def sent_exactly(field: Field, column: Column) -> bool:
    """Never: the server writes the canonical form that a client digests."""
    return False


def row(values: Sequence[Valued], algorithm: Algorithm, variant: str) -> str:
    """The text of a row: the framed values, and `NULL` for NULL."""
    forms = (framed(*value, algorithm, variant) for value in values)
    joined = ", ',', ".join(f"ifNull({form}, '{NULL}')" for form in forms)
    return f"concat({joined}, '')"


def digest(row_text: str, algorithm: Algorithm, variant: str) -> str:
    """The digest of a row's text, an Int64."""
    return f"reinterpretAsInt64(reverse(substring({_HASHES[algorithm]}({row_text}), 1, 8)))"


def exact_sum(field: Field, x: str) -> str:
    """The sum of integers or decimals, as text."""
    return f"toDecimalString(sum(toDecimal256({x}, {field.scale})), {field.scale})"
