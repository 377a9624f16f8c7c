"""Atoms in ClickHouse's SQL. Its functions keep NULL, and its reinterpretations are exact."""

from __future__ import annotations

from checks.constants import (
    ITEM_MODULUS,
    MULTIPLIERS,
    NAN_BITS,
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
        case "integer" | "boolean":
            return {"sum" if field.kind == "integer" else "true": f"toInt64({x})"}
        case "decimal":
            return _decimal(field, column, x)
        case "float":
            x = f"toFloat64({x})"
            if digests:
                return _float_bits(x)
            return float_parts(
                x,
                two=f"toFloat64({TWO_53})",
                whole="toInt64({})".format,
                unusual=f"WHEN NOT isFinite({x}) THEN 9",
            )
        case "bytes":
            return {
                "length": f"toInt64(length({x}))",
                "digest": _first_8_bytes(f"SHA256({x})"),
            }
        case "date":
            return {"days": f"toInt64(toInt32({x}))"}
        case "time":
            return _time(field, column, x)
        case "timestamp":
            unit, scale = ("ticks", 7) if field.scale > 6 else ("micros", 6)
            return {unit: f"reinterpretAsInt64(toDateTime64({x}, {scale}, 'UTC'))"}
        case "uuid":
            # in Microsoft's byte order, like the other systems
            raw = f"UUIDToNum({x}, 2)"
            return {
                "first_half": f"reinterpretAsInt64(reverse(substring({raw}, 1, 8)))",
                "second_half": f"reinterpretAsInt64(reverse(substring({raw}, 9, 8)))",
            }
        case "array":
            return _array(field, x, weight, digests)
        case _:
            text = f"toString({x})"
            if field.padded:
                text = f"trim(TRAILING ' ' FROM {text})"
            return _text_digest(text) if digests else _text_positions(field, text, weight)


def _decimal(field: Field, column: Column, x: str) -> dict[str, str]:
    scale = field.scale
    if field.precision is not None and field.precision <= WHOLE_DIGITS:
        return {"sum": f"reinterpretAsInt64(toDecimal64({x}, {scale}))"}
    units = f"reinterpretAsInt256(toDecimal256({x}, {scale}))"
    if declared("clickhouse", column.type).name.endswith(("Int128", "Int256")):
        units = f"toInt256({x})"
    one = f"toInt256('{10**scale}')"
    found = {"whole": f"toInt64(intDiv({units}, {one}) % toInt256({PRIME}))"}
    below = 10**scale
    for index, digits in enumerate(fraction_chunks(scale)):
        rest = f"({units} % toInt256('{below}'))"
        below //= 10**digits
        found[f"fraction{index + 1}"] = f"toInt64(intDiv({rest}, toInt256('{below}')))"
    return found


def _float_bits(x: str) -> dict[str, str]:
    return {"bits": f"if(isNaN({x}), {NAN_BITS}, reinterpretAsInt64({x}))"}


def _time(field: Field, column: Column, x: str) -> dict[str, str]:
    """Of a Time64, or of the text `HH:MM:SS[.fraction]`; anything else counts as NULL."""
    unit, digits = ("ticks", 7) if field.scale > 6 else ("micros", 6)
    if declared("clickhouse", column.type).kind == "time":
        return {unit: f"toInt64(toDecimal64(toTime64({x}, {digits}), {digits}) * {10**digits})"}
    hours, minutes, seconds = (f"toInt64OrNull(substring({x}, {at}, 2))" for at in (1, 4, 7))
    fraction = f"toInt64OrNull(rightPad(substring({x}, 10), {digits}, '0'))"
    return {unit: f"(({hours} * 60 + {minutes}) * 60 + {seconds}) * {10**digits} + {fraction}"}


def _array(field: Field, x: str, weight: str, digests: bool) -> dict[str, str]:
    item = field.item
    assert item is not None
    found = atoms(item, item.target, "e", weight, digests)
    value = f"ifNull({mixed(list(found.values()))}, {NULL_ITEM})"
    item_sql = f"(e, i) -> {value} % {ITEM_MODULUS} * (i % {PLACE_MODULUS})"
    return {
        "items": f"toInt64(length({x}))",
        "values_by_place": f"toInt64(arraySum({item_sql}, {x}, arrayEnumerate({x})))",
    }


def _text_digest(text: str) -> dict[str, str]:
    return {
        "length": f"toInt64(lengthUTF8({text}))",
        "digest": _first_8_bytes(f"MD5({text})"),
    }


def _text_positions(field: Field, text: str, weight: str) -> dict[str, str]:
    length = f"toInt64(lengthUTF8({text}))"
    places = [str(position) for position in text_positions(field.precision)]
    places += [
        length,
        f"intDiv({length} + 1, 2)",
        f"1 + abs({weight}) % greatest({length}, 1)",
    ]
    codes = " + ".join(
        f"toInt64({_code_point(f'substringUTF8({text}, {place}, 1)')}) * {multiplier}"
        for place, multiplier in zip(places, MULTIPLIERS, strict=False)
    )
    return {"length": length, "characters": codes}


def _code_point(character: str) -> str:
    """The code point of one character, out of its UTF-8 bytes; 0 of ''."""
    raw = f"reinterpretAsUInt32(reverse({character}))"
    size = f"length({character})"

    def six_bits(place: int) -> str:
        return f"bitAnd(bitShiftRight({raw}, {8 * place}), 63) * {64**place}"

    two = f"bitAnd(bitShiftRight({raw}, 8), 31) * 64 + {six_bits(0)}"
    three = f"bitAnd(bitShiftRight({raw}, 16), 15) * 4096 + {six_bits(1)} + {six_bits(0)}"
    four = (
        f"bitAnd(bitShiftRight({raw}, 24), 7) * 262144 + {six_bits(2)} + {six_bits(1)} "
        f"+ {six_bits(0)}"
    )
    return f"multiIf({size} < 2, {raw}, {size} = 2, {two}, {size} = 3, {three}, {four})"


def _first_8_bytes(digest: str) -> str:
    return f"reinterpretAsInt64(reverse(substring({digest}, 1, 8)))"
