"""The canonical form of a row in T-SQL that SQL Server 2019+ and Babelfish 4.x compute alike.

No styles, and no function on texts that counts UTF-16 units. A text becomes UTF-8 bytes by a UTF-8
collation (SQL Server 2019+); Babelfish has none, but its HASHBYTES and DATALENGTH see the UTF-8
bytes of nvarchar. https://learn.microsoft.com/sql/relational-databases/collations
"""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.contract.digest_writer import Algorithm
from tableferry.resources.contract.fields import Field, Valued
from tableferry.resources.digest.definition import LONG_DECIMAL, NULL, SAMPLE, UUID
from tableferry.resources.digest.fields import declared
from tableferry.resources.sqlserver.types import TYPES
from tableferry.resources.types.column import Column

_UTF8 = "Latin1_General_100_BIN2_UTF8"
_HASHES: dict[Algorithm, str] = {"md5": "MD5", "sha256": "SHA2_256"}
_AT_A_TIME = 48
"""CONCAT takes 254 arguments, Babelfish's 100; each column needs two of them."""

_EPOCH = "CAST('19700101' AS {})"

VARIANTS = ("collation", "nvarchar")
"""How a text becomes UTF-8 bytes."""

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
"""What it is tried with: by name of `digest.probe.VALUES`, the declared type and a literal."""


def whole(field: Field, column: Column, x: str) -> str | None:
    """A bigint that stands for the value and sorts like it; None for kinds that have none."""
    own = declared(TYPES, column.type)
    if field.kind in ("integer", "boolean") or (
        own.kind == "integer" and field.kind in ("date", "time", "timestamp")
    ):
        return f"CAST({x} AS bigint)"
    if field.kind == "date":
        days = x if own.name == "date" else f"CAST({x} AS date)"
        return f"DATEDIFF(day, {_EPOCH.format('date')}, {days})"
    if field.kind == "time":
        return _ticks(field, f"DATEDIFF_BIG(second, CAST('00:00' AS time(0)), {x})", x)
    if field.kind != "timestamp":
        return None
    if own.zoned:
        # dropping the offset of the instant in UTC leaves the UTC wall clock
        x = f"CAST(SWITCHOFFSET({x}, '+00:00') AS datetime2({min(7, max(6, field.scale))}))"
    elif own.kind == "date":
        x = f"CAST({x} AS datetime2(0))"
    if own.name == "datetime":
        # its ticks are thirds of a hundredth: the milliseconds that it shows are what is copied
        seconds = f"DATEDIFF_BIG(second, {_EPOCH.format('datetime')}, {x})"
        return f"{seconds} * 1000000 + DATEPART(millisecond, {x}) * 1000"
    return _ticks(field, f"DATEDIFF_BIG(second, {_EPOCH.format('datetime2(0)')}, {x})", x)


def text(field: Field, column: Column, x: str) -> str:
    """The value's canonical form; of text, the text alone as nvarchar."""
    own = declared(TYPES, column.type)
    match field.kind:
        case "decimal":
            fits = own.kind == "decimal" and own.scale == field.scale and "money" not in own.name
            x = x if fits else f"CAST({x} AS decimal(38,{field.scale}))"
            return f"CAST({x} AS varchar(42))"
        case "float":
            double = x if own.name == "float" else f"CAST({x} AS float)"
            return f"CAST(CAST(CAST({double} AS binary(8)) AS bigint) AS varchar(20))"
        case "integer" if own.kind == "integer":
            return f"CAST({x} AS varchar(20))"
        case "boolean" if own.kind == "boolean":
            return f"CAST(CAST({x} AS int) AS varchar(20))"
        case "integer" | "boolean" | "date" | "time" | "timestamp":
            return f"CAST({whole(field, column, x)} AS varchar(20))"
        case "uuid":
            return f"LOWER(CAST({x} AS varchar(36)))"
        case "text":
            value = x if own.name == "nvarchar" else f"CAST({x} AS nvarchar(max))"
            return f"RTRIM({value})" if field.padded else value
    raise AssertionError(f"{field.kind} has no text of its own")


def framed(field: Field, column: Column, x: str, algorithm: Algorithm, variant: str) -> str:
    """The canonical form as it stands in a row; NULL for NULL."""
    if field.kind == "text":
        value = utf8(text(field, column, x), variant)
        return f"CAST(DATALENGTH({value}) AS varchar(20)) + ':' + {value}"
    if field.kind == "bytes":
        value = f"CAST({x} AS varbinary(max))"
        hashed = f"CAST({digest(value, algorithm, 'bytes')} AS varchar(20))"
        return f"CAST(DATALENGTH({x}) AS varchar(20)) + ':' + {hashed}"
    return text(field, column, x)


def sent_exactly(field: Field, column: Column) -> bool:
    """Whether the driver's record batches hold the very values, in the kind that is compared.

    They have microseconds only, and what they make of money, datetime, xml and the like is left to
    the server to write.
    """
    own = declared(TYPES, column.type)
    if own.kind != field.kind:
        return False
    match own.kind:
        case "text":
            return own.name in ("char", "varchar", "nchar", "nvarchar")
        case "bytes":
            return own.name in ("binary", "varbinary")
        case "decimal":
            return "money" not in own.name and own.scale == field.scale
        case "time" | "timestamp":
            return own.name != "datetime" and own.scale <= 6
    return True


def row(values: Sequence[Valued], algorithm: Algorithm, variant: str) -> str:
    """The text of a row: the framed values, and `NULL` for those that are NULL."""
    forms = [f"ISNULL({framed(*value, algorithm, variant)}, '{NULL}')" for value in values]
    separated, groups = ", ',', ", []
    for start in range(0, len(forms), _AT_A_TIME):
        some = forms[start : start + _AT_A_TIME]
        # without a (max) among its arguments, CONCAT cuts at 8000 bytes
        groups.append(f"CONCAT(CAST('' AS varchar(max)), {separated.join(some)})")
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
    """A text as UTF-8 bytes, or as what Babelfish's functions take for them."""
    if variant == "nvarchar":
        return f"CAST({x} AS nvarchar(max))"
    return f"CAST({x} COLLATE {_UTF8} AS varchar(max))"
