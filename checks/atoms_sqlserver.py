"""Atoms in documented T-SQL that SQL Server 2019+ and Babelfish 4.x compute alike.

No CHECKSUM, no styles, no DATALENGTH of texts, no HASHBYTES of texts: see the differences that
https://babelfishpg.org lists. Texts are measured with LEN behind a guard character, because LEN
does not count trailing blanks.
"""

from __future__ import annotations

from checks.constants import (
    MULTIPLIERS,
    PRIME,
    TWO_53,
    WHOLE_DIGITS,
    fraction_chunks,
    text_positions,
)
from checks.fields import Field, declared
from checks.floats import float_parts
from resources.tables import Column

SUPPLEMENTARY = "Latin1_General_100_CI_AS_SC"
"""A collation under which LEN, SUBSTRING and UNICODE count code points, not UTF-16 units.
https://learn.microsoft.com/sql/relational-databases/collations/collation-and-unicode-support"""

CODE_POINTS_PROBE = "SELECT LEN(N'\U0001f600' COLLATE Latin1_General_100_BIN2)"
"""1 where the server counts code points whatever the collation (Babelfish); 2 on SQL Server, which
then knows the collation SUPPLEMENTARY; Babelfish does not."""

# LEN(x + N'.') of a text with 4000 characters would be cut to 4000 again
_ROOM = 3999


def atoms(
    field: Field, column: Column, expression: str, weight: str, code_points: bool
) -> dict[str, str]:
    """Atoms of a column; see `checks.atoms`."""
    x = expression
    match field.kind:
        case "integer" | "boolean":
            name = "sum" if field.kind == "integer" else "true"
            return {name: f"CAST({x} AS bigint)"}
        case "decimal":
            return _decimal(field, x)
        case "float":
            x = f"CAST({x} AS float)"
            return float_parts(x, two=f"{TWO_53}E0", whole="CAST({} AS bigint)".format)
        case "bytes":
            digest = f"SUBSTRING(HASHBYTES('SHA2_256', CAST({x} AS varbinary(max))), 1, 8)"
            return {
                "length": f"CAST(DATALENGTH({x}) AS bigint)",
                "digest": f"CAST(CAST({digest} AS binary(8)) AS bigint)",
            }
        case "date":
            epoch = "CAST('1970-01-01' AS date)"
            return {"days": f"CAST(DATEDIFF(day, {epoch}, CAST({x} AS date)) AS bigint)"}
        case "time":
            seconds = f"DATEDIFF_BIG(second, CAST('00:00:00' AS time(7)), CAST({x} AS time(7)))"
            if field.scale > 6:
                return {"ticks": f"{seconds} * 10000000 + DATEPART(nanosecond, {x}) / 100"}
            return {"micros": f"{seconds} * 1000000 + DATEPART(microsecond, {x})"}
        case "timestamp":
            return _timestamp(field, column, x)
        case "uuid":
            # its binary form has the bytes of the first three groups reversed
            raw = f"CAST({x} AS binary(16))"
            return {
                "first_half": f"CAST(CAST(SUBSTRING({raw}, 1, 8) AS binary(8)) AS bigint)",
                "second_half": f"CAST(CAST(SUBSTRING({raw}, 9, 8) AS binary(8)) AS bigint)",
            }
        case _:
            return _text(field, column, x, weight, code_points)


def _decimal(field: Field, x: str) -> dict[str, str]:
    scale = field.scale
    if field.precision is not None and field.precision <= WHOLE_DIGITS:
        fits = f"CAST({x} AS decimal({WHOLE_DIGITS},{scale}))"
        return {"sum": f"CAST({fits} * {10**scale} AS bigint)" if scale else f"CAST({x} AS bigint)"}
    exact = f"CAST({x} AS decimal(38,{scale}))"
    whole = f"CAST(ROUND({exact}, 0, 1) AS decimal(38,0)) % CAST({PRIME} AS decimal(18,0))"
    found = {"whole": f"CAST({whole} AS bigint)"}
    # arithmetic on 38 digits rounds; the digits behind the point are exact in the text
    digits = f"RIGHT(CAST({exact} AS varchar(42)), {scale})"
    sign = f"CASE WHEN {x} < 0 THEN -1 ELSE 1 END"
    for index, count in enumerate(fraction_chunks(scale)):
        chunk = f"SUBSTRING({digits}, {index * WHOLE_DIGITS + 1}, {count})"
        found[f"fraction{index + 1}"] = f"CAST({chunk} AS bigint) * ({sign})"
    return found


def _timestamp(field: Field, column: Column, x: str) -> dict[str, str]:
    found = declared("sqlserver", column.type)
    if found.zoned:
        # dropping the offset of the instant in UTC leaves the UTC wall clock
        x = f"CAST(SWITCHOFFSET({x}, '+00:00') AS datetime2(7))"
    elif found.kind == "date":
        x = f"CAST({x} AS datetime2(0))"
    whole_seconds = "datetime" if found.name == "datetime" else "datetime2(0)"
    epoch = f"CAST('1970-01-01T00:00:00' AS {whole_seconds})"
    seconds = f"DATEDIFF_BIG(second, {epoch}, {x})"
    if found.name == "datetime":
        # its ticks are thirds of a hundredth: the milliseconds that it shows are what is copied
        return {"micros": f"{seconds} * 1000000 + DATEPART(millisecond, {x}) * 1000"}
    if field.scale > 6:
        return {"ticks": f"{seconds} * 10000000 + DATEPART(nanosecond, {x}) / 100"}
    return {"micros": f"{seconds} * 1000000 + DATEPART(microsecond, {x})"}


def _text(field: Field, column: Column, x: str, weight: str, code_points: bool) -> dict[str, str]:
    found = declared("sqlserver", column.type)
    roomy = found.name == "nvarchar" and found.precision is not None and found.precision <= _ROOM
    text = x if roomy else f"CAST({x} AS nvarchar(max))"
    if field.padded:
        text = f"RTRIM({text})"
    if not code_points:
        text = f"{text} COLLATE {SUPPLEMENTARY}"
    length = f"(LEN({text} + N'.') - 1)"
    places = [str(position) for position in text_positions(field.precision)]
    last = f"1 + ABS({weight}) % CASE WHEN {length} > 0 THEN {length} ELSE 1 END"
    places += [length, f"({length} + 1) / 2", last]
    # UNICODE('') is NULL on SQL Server and 0 on Babelfish
    codes = " + ".join(
        f"CAST(ISNULL(UNICODE(SUBSTRING({text}, {place}, 1)), 0) AS bigint) * {multiplier}"
        for place, multiplier in zip(places, MULTIPLIERS, strict=False)
    )
    return {
        "length": f"CAST({length} AS bigint)",
        "characters": f"CASE WHEN {x} IS NOT NULL THEN {codes} END",
    }
