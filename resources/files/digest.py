"""The canonical form of a row in DuckDB's SQL."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.contract.digest_writer import Algorithm
from tableferry.resources.contract.fields import Field, Valued
from tableferry.resources.digest.definition import LONG_DECIMAL, NAN_BITS, NULL, SAMPLE, UUID
from tableferry.resources.digest.fields import DigestedType, declared
from tableferry.resources.files.types import FROM_TEXT, TYPES, value
from tableferry.resources.types.type_map import Column

CHEAP_DIGITS, MOST_DIGITS = 18, 38
"""Digits of decimals, see `_digits`."""

VARIANTS = ("plain",)

CONSTANTS = {
    "a large integer": ("BIGINT", "(-9223372036854775807)::BIGINT"),
    "true": ("BOOLEAN", "true"),
    "a long decimal": ("DECIMAL(38,10)", f"({LONG_DECIMAL})::DECIMAL(38,10)"),
    "a short decimal": ("DECIMAL(12,4)", "(-0.5)::DECIMAL(12,4)"),
    "a float": ("DOUBLE", "0.1::DOUBLE"),
    "negative zero": ("DOUBLE", "'-0.0'::DOUBLE"),
    "NaN": ("FLOAT", "'NaN'::FLOAT"),
    "a date": ("DATE FROM TEXT", "'1900-01-01'"),
    "a time": ("TIME", "TIME '23:59:59.999999'"),
    "a timestamp": ("TIMESTAMP", "TIMESTAMP '1900-01-01 00:00:00.000001'"),
    "an instant": ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ '1970-01-01 01:00:00.000001+02'"),
    "a uuid": ("UUID", f"'{UUID}'::UUID"),
    "a text with blanks": ("VARCHAR", "'~,: '"),
    "a text": ("VARCHAR", f"'{SAMPLE}'"),
    "NULL": ("VARCHAR", "NULL::VARCHAR"),
    "bytes": ("BLOB", "unhex('00ff10')"),
}
"""The declared types and literals of `digest.probe.VALUES`, by name."""


def whole(field: Field, column: Column, x: str) -> str | None:
    """Write a BIGINT that stands for the value and sorts like it; None if its kind has none."""
    stored_as, x = declared(TYPES, column.type).kind, value(column.type, x)
    match field.kind:
        case "integer" | "boolean":
            return f"CAST({x} AS BIGINT)"
        case "date" | "time" | "timestamp" if stored_as == "integer":
            return f"CAST({x} AS BIGINT)"
        case "date" if stored_as == "date":
            # that of infinity is the greatest that its type has
            return f"({x} - DATE '1970-01-01')"
        case "time" | "timestamp":
            micros = f"epoch_us({x})"
            number = f"{micros} * 10" if field.scale > 6 else micros
            if field.kind == "time":
                return number
            end = f"CASE WHEN {x} > TIMESTAMP 'epoch' THEN {2**63 - 1} ELSE {1 - 2**63} END"
            return f"CASE WHEN isinf({x}) THEN {end} ELSE {number} END"
    return None


def text(field: Field, column: Column, x: str) -> str:
    """Write the value's canonical form; for a text, the text without its length."""
    stored_as = declared(TYPES, column.type)
    match field.kind:
        case "text":
            return f"rtrim({x}, ' ')" if field.padded else x
        case "decimal":
            x, digits = value(column.type, x), stored_as.precision
            if stored_as.kind != "decimal" or digits is None or stored_as.scale != field.scale:
                digits = _digits(stored_as, field.scale)
                x = f"CAST({x} AS DECIMAL({digits},{field.scale}))"
            return _written(x, digits, field.scale)
        case "integer":
            if stored_as.kind == "integer":
                return f"CAST({value(column.type, x)} AS VARCHAR)"
            if stored_as.kind == "decimal":
                return f"CAST(CAST({value(column.type, x)} AS HUGEINT) AS VARCHAR)"
        case "float":
            x = f"CAST({value(column.type, x)} AS DOUBLE)"
            bits = f"CAST(CAST({x} AS BIT) AS BIGINT)"
            return f"CAST(CASE WHEN isnan({x}) THEN {NAN_BITS} ELSE {bits} END AS VARCHAR)"
        case "uuid":
            written = f"CAST({value(column.type, x)} AS VARCHAR)"
            # a UUID is printed in lower case, a text as it is
            return written if stored_as.kind == "uuid" else f"lower({written})"
    number = whole(field, column, x)
    assert number is not None, f"{field.kind} has no canonical form"
    if stored_as.kind in ("date", "timestamp"):
        x = value(column.type, x)
        return f"CASE WHEN isinf({x}) THEN CAST({x} AS VARCHAR) ELSE CAST({number} AS VARCHAR) END"
    return f"CAST({number} AS VARCHAR)"


def framed(field: Field, column: Column, x: str, algorithm: Algorithm, variant: str) -> str:
    """Write the canonical form as it stands in a row; NULL for NULL."""
    if field.kind == "text":
        form = text(field, column, x)
        # a chain of `||` would copy the text at every step
        return f"CASE WHEN {x} IS NOT NULL THEN concat(strlen({form}), ':', {form}) END"
    if field.kind == "bytes":
        return f"octet_length({x}) || ':' || {digest(x, algorithm, variant)}"
    if field.kind == "array":
        assert field.item is not None
        item = framed(field.item, field.item_column(column), "ferry__e", algorithm, variant)
        items = f"list_transform({x}, lambda ferry__e: coalesce({item}, '{NULL}'))"
        return f"len({x}) || ':' || array_to_string({items}, ',')"
    return text(field, column, x)


def _digits(stored_as: DigestedType, scale: int) -> int:
    """The digits of a decimal of a scale that holds all of a column's values: DuckDB prints one
    that fits into 64 bits at a seventh of the cost."""
    if stored_as.kind != "decimal" or stored_as.precision is None or stored_as.scale > scale:
        return MOST_DIGITS
    digits = stored_as.precision - stored_as.scale + scale
    return CHEAP_DIGITS if digits <= CHEAP_DIGITS else MOST_DIGITS


def sent_exactly(field: Field, column: Column) -> bool:
    """False: DuckDB writes the canonical form that a client digests."""
    return False


def row(values: Sequence[Valued], algorithm: Algorithm, variant: str) -> str:
    """Write the text of a row: the framed values, and `NULL` for those that are NULL."""
    forms = (framed(*value, algorithm, variant) for value in values)
    # `concat_ws` takes longer
    listed = ", ',', ".join(f"coalesce({form}, '{NULL}')" for form in forms)
    return f"concat({listed})"


def digest(row_text: str, algorithm: Algorithm, variant: str) -> str:
    """Write the digest of a row's text, a BIGINT."""
    # a slice: `left` counts characters one by one
    return f"CAST(CAST(unhex({algorithm}({row_text})[:16]) AS BIT) AS BIGINT)"


def exact_sum(field: Field, x: str) -> str:
    """Write the sum of integers or decimals, as text."""
    x = value(field.source.type, x) if field.source.type.endswith(FROM_TEXT) else x
    total = f"sum(CAST({x} AS DECIMAL({MOST_DIGITS},{field.scale})))"
    return _written(total, MOST_DIGITS, field.scale)


def _written(number: str, digits: int, scale: int) -> str:
    """Cast a decimal to text. Where all digits are behind the point, DuckDB prints no zero before
    it."""
    text = f"CAST({number} AS VARCHAR)"
    return f"replace({text}, '.', '0.')" if digits == scale else text
