"""The canonical form of a row in T-SQL that SQL Server 2019+ and Babelfish 4.x compute alike.

It uses no styles, and no text function that counts UTF-16 units. A UTF-8 collation (SQL Server
2019+) makes UTF-8 bytes of a text; Babelfish has none, but its HASHBYTES and DATALENGTH see the
UTF-8 bytes of nvarchar. https://learn.microsoft.com/sql/relational-databases/collations
"""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.contract.digest_writer import Algorithm
from tableferry.resources.contract.fields import Field, Valued
from tableferry.resources.digest.definition import LONG_DECIMAL, NULL, SAMPLE, UUID
from tableferry.resources.digest.fields import declared
from tableferry.resources.sqlserver.types import MOST_DIGITS, TYPES
from tableferry.resources.types.type_map import Column

_UTF8 = "Latin1_General_100_BIN2_UTF8"
_HASHES: dict[Algorithm, str] = {"md5": "MD5", "sha256": "SHA2_256"}
_GROUP = 48
"""Columns per CONCAT, which takes 254 arguments, and 100 on Babelfish; each column needs two."""

_EPOCH = "CAST('19700101' AS {})"

VARIANTS = ("collation", "nvarchar")
"""The ways in which a text becomes UTF-8 bytes."""

CONSTANTS = {
    "a large integer": ("bigint", "CAST(-9223372036854775807 AS bigint)"),
    "true": ("bit", "CAST(1 AS bit)"),
    "a long decimal": ("decimal(38,10)", f"CAST({LONG_DECIMAL} AS decimal(38,10))"),
    "a short decimal": ("decimal(12,4)", "CAST(-0.5 AS decimal(12,4))"),
    "a float": ("float(53)", "CAST(0.1E0 AS float(53))"),
    "a date": ("date", "CAST('19000101' AS date)"),
    "a time": ("time(6)", "CAST('23:59:59.999999' AS time(6))"),
    "a timestamp": ("datetime2(6)", "CAST('1900-01-01T00:00:00.000001' AS datetime2(6))"),
    "an instant": (
        "datetimeoffset(6)",
        "CAST('1970-01-01T01:00:00.000001+02:00' AS datetimeoffset(6))",
    ),
    "a uuid": ("uniqueidentifier", f"CAST('{UUID}' AS uniqueidentifier)"),
    "a text with blanks": ("nvarchar(20)", "CAST(N'~,: ' AS nvarchar(20))"),
    "a text": ("nvarchar(20)", f"CAST(N'{SAMPLE}' AS nvarchar(20))"),
    "NULL": ("nvarchar(20)", "CAST(NULL AS nvarchar(20))"),
    "bytes": ("varbinary(20)", "CAST(0x00FF10 AS varbinary(20))"),
}
"""The declared type and a literal of each trial value, by its name in `digest.probe.VALUES`."""


def whole(field: Field, column: Column, x: str) -> str | None:
    """A bigint that represents the value and sorts like it; None for kinds without one."""
    type_ = declared(TYPES, column.type)
    if field.kind in ("integer", "boolean") or (
        type_.kind == "integer" and field.kind in ("date", "time", "timestamp")
    ):
        return f"CAST({x} AS bigint)"
    if field.kind == "date":
        days = x if type_.name == "date" else f"CAST({x} AS date)"
        return f"DATEDIFF(day, {_EPOCH.format('date')}, {days})"
    if field.kind == "time":
        return _ticks(field, f"DATEDIFF_BIG(second, CAST('00:00' AS time(0)), {x})", x)
    if field.kind != "timestamp":
        return None
    if type_.zoned:
        # without its offset, the instant in UTC is the UTC wall clock
        x = f"CAST(SWITCHOFFSET({x}, '+00:00') AS datetime2({min(7, max(6, field.scale))}))"
    elif type_.kind == "date":
        x = f"CAST({x} AS datetime2(0))"
    elif type_.name == "datetime":
        # DATEPART cuts off digits of its 1/300 s; the milliseconds that it shows are copied
        x = f"CAST({x} AS datetime2(3))"
    return _ticks(field, f"DATEDIFF_BIG(second, {_EPOCH.format('datetime2(0)')}, {x})", x)


def text(field: Field, column: Column, x: str) -> str:
    """The value's canonical form; for text, the text alone as nvarchar."""
    type_ = declared(TYPES, column.type)
    match field.kind:
        case "decimal":
            as_is = type_.kind == "decimal" and type_.scale == field.scale
            if not as_is or "money" in type_.name:
                # Babelfish would print no more digits than the column declares
                x = f"ROUND(CAST({x} AS decimal(38,{field.scale})), {field.scale})"
            return f"CAST({x} AS varchar(42))"
        case "float":
            double = x if type_.name == "float" else f"CAST({x} AS float)"
            return f"CAST(CAST(CAST({double} AS binary(8)) AS bigint) AS varchar(20))"
        case "integer" if type_.kind == "integer":
            return f"CAST({x} AS varchar(20))"
        case "boolean" if type_.kind == "boolean":
            return f"CAST(CAST({x} AS int) AS varchar(20))"
        case "integer" | "boolean" | "date" | "time" | "timestamp":
            return f"CAST({whole(field, column, x)} AS varchar(20))"
        case "uuid":
            return f"LOWER(CAST({x} AS varchar(36)))"
        case "text":
            value = x if type_.name == "nvarchar" else f"CAST({x} AS nvarchar(max))"
            return f"RTRIM({value})" if field.padded else value
    raise AssertionError(f"{field.kind} has no text of its own")


def framed(field: Field, column: Column, x: str, algorithm: Algorithm, variant: str) -> str:
    """The canonical form as part of a row; NULL for NULL."""
    if field.kind == "text":
        value = utf8(text(field, column, x), variant)
        return f"CAST(DATALENGTH({value}) AS varchar(20)) + ':' + {value}"
    if field.kind == "bytes":
        value = f"CAST({x} AS varbinary(max))"
        hashed = f"CAST({digest(value, algorithm, 'bytes')} AS varchar(20))"
        return f"CAST(DATALENGTH({x}) AS varchar(20)) + ':' + {hashed}"
    return text(field, column, x)


def sent_exactly(field: Field, column: Column) -> bool:
    """Whether the driver's record batches hold the exact values in the kind that is compared.

    They have microseconds only; the server writes the values of money, datetime, xml and the like;
    and decimals of 38 digits, as Babelfish may have stored digits that the driver cuts off.
    """
    type_ = declared(TYPES, column.type)
    if type_.kind != field.kind:
        return False
    match type_.kind:
        case "text":
            return type_.name in ("char", "varchar", "nchar", "nvarchar")
        case "bytes":
            return type_.name in ("binary", "varbinary")
        case "decimal":
            fits = type_.precision is not None and type_.precision < MOST_DIGITS
            return fits and "money" not in type_.name and type_.scale == field.scale
        case "time" | "timestamp":
            return type_.name != "datetime" and type_.scale <= 6
    return True


def row(values: Sequence[Valued], algorithm: Algorithm, variant: str) -> str:
    """The text of a row: the framed values, and `NULL` for NULL."""
    forms = [f"ISNULL({framed(*value, algorithm, variant)}, '{NULL}')" for value in values]
    separated, groups = ", ',', ", []
    for start in range(0, len(forms), _GROUP):
        group = separated.join(forms[start : start + _GROUP])
        # without a (max) among its arguments, CONCAT truncates at 8000 bytes
        groups.append(f"CONCAT(CAST('' AS varchar(max)), {group})")
    return groups[0] if len(groups) == 1 else f"CONCAT({separated.join(groups)})"


def digest(row_text: str, algorithm: Algorithm, variant: str) -> str:
    """The digest of a row's text, a bigint."""
    whole_text = f"CAST({row_text} AS nvarchar(max))" if variant == "nvarchar" else row_text
    hashed = f"SUBSTRING(HASHBYTES('{_HASHES[algorithm]}', {whole_text}), 1, 8)"
    return f"CAST(CAST({hashed} AS binary(8)) AS bigint)"


def exact_sum(field: Field, x: str) -> str:
    """The sum of integers or decimals, as text."""
    return f"CAST(SUM(CAST({x} AS decimal(38,{field.scale}))) AS varchar(42))"


def _ticks(field: Field, seconds: str, x: str) -> str:
    if field.scale > 6:
        return f"{seconds} * 10000000 + DATEPART(nanosecond, {x}) / 100"
    return f"{seconds} * 1000000 + DATEPART(microsecond, {x})"


def utf8(x: str, variant: str) -> str:
    """A text as UTF-8 bytes, or as the nvarchar that Babelfish's functions read as such."""
    if variant == "nvarchar":
        return f"CAST({x} AS nvarchar(max))"
    return f"CAST({x} COLLATE {_UTF8} AS varchar(max))"
