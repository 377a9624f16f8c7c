"""Atoms in PostgreSQL's SQL (12 and later)."""

from __future__ import annotations

from checks.constants import (
    ITEM_MODULUS,
    MULTIPLIERS,
    NAN_BITS,
    NOT_FINITE,
    NULL_ITEM,
    PLACE_MODULUS,
    PRIME,
    TWO_53,
    WHOLE_DIGITS,
    fraction_chunks,
    mixed,
    text_positions,
)
from checks.fields import Field, declared
from checks.floats import float_parts
from resources.tables import Column


def atoms(
    field: Field, column: Column, expression: str, weight: str, digests: bool
) -> dict[str, str]:
    """Atoms of a column; see `checks.atoms`."""
    x = expression
    match field.kind:
        case "integer":
            return {"sum": f"({x})::bigint"}
        case "boolean":
            return {"true": f"({x})::boolean::int::bigint"}
        case "decimal":
            return _decimal(field, column, f"({x})::numeric")
        case "float":
            if digests:
                return _float_bits(x)
            x = f"({x})::float8"
            infinite = f"{x} IN ('NaN', 'Infinity', '-Infinity')"
            return float_parts(
                x,
                two=f"{TWO_53}::float8",
                whole="({})::bigint".format,
                unusual=f"WHEN {infinite} THEN 9",
            )
        case "bytes":
            digest = f"sha256({x})"
            return {
                "length": f"octet_length({x})::bigint",
                "digest": _first_8_bytes(digest),
            }
        case "date":
            days = f"(({x})::date - date '1970-01-01')::bigint"
            return {"days": _if_finite(f"({x})::date", days)}
        case "time":
            unit, factor = ("ticks", 10_000_000) if field.scale > 6 else ("micros", 1_000_000)
            return {unit: f"(extract(epoch from ({x})::time) * {factor})::bigint"}
        case "timestamp":
            return _timestamp(field, column, x)
        case "uuid":
            return _uuid(x)
        case "array":
            return _array(field, column, x, weight, digests)
        case _:
            text = text_sql(field, column, x)
            return _text_digest(text) if digests else _text_positions(field, text, weight)


def text_sql(field: Field, column: Column, x: str) -> str:
    """The column as text. The cast cuts the blanks of character(n), which the export keeps."""
    text, found = f"({x})::text", declared("postgres", column.type)
    if field.padded:
        return f"rtrim({text}, ' ')"
    if found.padded and field.rendered is None:
        return f"rpad({text}, {found.precision or 1})"
    return text


def _array(field: Field, column: Column, x: str, weight: str, digests: bool) -> dict[str, str]:
    item = field.item
    assert item is not None
    found = atoms(item, item.source, "ferry__u.e", weight, digests)
    value = f"coalesce({mixed(list(found.values()))}, {NULL_ITEM})"
    items = (
        f"SELECT coalesce(sum({value} % {ITEM_MODULUS} * (i % {PLACE_MODULUS})), 0)::bigint "
        f"FROM unnest({x}) WITH ORDINALITY AS ferry__u(e, i)"
    )
    return {
        "items": f"cardinality({x})::bigint",
        "values_by_place": f"CASE WHEN {x} IS NOT NULL THEN ({items}) END",
    }


def _decimal(field: Field, column: Column, x: str) -> dict[str, str]:
    scale = field.scale
    bounded = declared("postgres", column.type).precision is not None
    # NaN - NaN is NaN, which PostgreSQL says equals NaN but not 0; infinity, which only a numeric
    # without a precision holds, likewise
    finite = f"({x}) <> 'NaN'" if bounded else f"({x}) - ({x}) = 0"
    found: dict[str, str] = {}
    if field.precision is not None and field.precision <= WHOLE_DIGITS:
        found["sum"] = f"(({x}) * {10**scale})::bigint"
    else:
        found["whole"] = f"(trunc({x}) % {PRIME})::bigint"
        for index, digits in enumerate(fraction_chunks(scale)):
            shifted = f"({x}) * {10 ** (index * WHOLE_DIGITS)}::numeric"
            found[f"fraction{index + 1}"] = f"trunc(({shifted}) % 1 * {10**digits})::bigint"
    return {
        name: f"CASE WHEN {finite} THEN {sql} WHEN ({x}) IS NOT NULL THEN {NOT_FINITE} END"
        for name, sql in found.items()
    }


def _float_bits(x: str) -> dict[str, str]:
    x = f"({x})::float8"
    bits = f"('x' || encode(float8send({x}), 'hex'))::bit(64)::bigint"
    return {"bits": f"CASE WHEN {x} = 'NaN'::float8 THEN {NAN_BITS} ELSE {bits} END"}


def _timestamp(field: Field, column: Column, x: str) -> dict[str, str]:
    zoned = "with time zone" in column.type or column.type.startswith("timestamptz")
    x = f"({x})" if zoned else f"({x})::timestamp"
    at = f"({x} AT TIME ZONE 'UTC')" if zoned else x
    days = f"({at}::date - date '1970-01-01')::bigint"
    # a double is exact for the microseconds of one day, and several times as fast as a numeric
    micros = f"{days} * 86400000000 + (date_part('epoch', {at}::time) * 1000000)::bigint"
    return (
        {"ticks": _if_finite(x, f"({micros}) * 10")}
        if field.scale > 6
        else {"micros": _if_finite(x, micros)}
    )


def _if_finite(x: str, sql: str) -> str:
    return f"CASE WHEN isfinite({x}) THEN {sql} WHEN ({x}) IS NOT NULL THEN {NOT_FINITE} END"


def _uuid(x: str) -> dict[str, str]:
    """Both halves in Microsoft's byte order: the first three groups have their bytes reversed."""
    raw = f"uuid_send(({x})::uuid)"
    reordered = " | ".join(
        f"(get_byte({raw}, {place})::bigint << {56 - 8 * index})"
        for index, place in enumerate((3, 2, 1, 0, 5, 4, 7, 6))
    )
    return {
        "first_half": f"({reordered})",
        "second_half": f"('x' || encode(substr({raw}, 9), 'hex'))::bit(64)::bigint",
    }


def _text_digest(text: str) -> dict[str, str]:
    digest = f"md5(convert_to({text}, 'UTF8'))"
    return {
        "length": f"char_length({text})::bigint",
        "digest": f"('x' || left({digest}, 16))::bit(64)::bigint",
    }


def _text_positions(field: Field, text: str, weight: str) -> dict[str, str]:
    length = f"char_length({text})"
    places = [str(position) for position in text_positions(field.precision)]
    places += [
        length,
        f"({length} + 1) / 2",
        f"1 + abs({weight}) % greatest({length}, 1)",
    ]
    # a position beyond the end gives '', whose code is 0
    codes = " + ".join(
        f"ascii(substr({text}, ({place})::int, 1))::bigint * {multiplier}"
        for place, multiplier in zip(places, MULTIPLIERS, strict=False)
    )
    return {"length": f"{length}::bigint", "characters": codes}


def _first_8_bytes(digest: str) -> str:
    return f"('x' || encode(substr({digest}, 1, 8), 'hex'))::bit(64)::bigint"
