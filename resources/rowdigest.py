"""One 64-bit number per row, computed by the source's server, that every change of a value changes.

The digests are compared with earlier ones of the same server only, so they need not agree between
systems, as those of `checks` must; in return they tell every two values of a type apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from resources.dialects import quote
from resources.tables import Column
from resources.types.declared import read

NATIVE = {
    "smallint",
    "integer",
    "bigint",
    "boolean",
    "date",
    "timestamp without time zone",
    "timestamp with time zone",
    "uuid",
    "bytea",
}
"""PostgreSQL types whose own hash differs wherever the values do, and is the quickest."""


def postgres_digest(columns: Sequence[Column]) -> str:
    """SQL of a bigint for the row; needs PostgreSQL 14 for hash_record_extended.

    PostgreSQL's hashes agree with its notion of equality, so 0.0 and -0.0, 1.0 and 1.00, '1 day'
    and '24 hours' hash alike, and so do texts under a nondeterministic collation. Hence all but a
    few types are hashed as the text that they print.

    hash_record_extended adds up its elements' hashes, each times a constant (rowtypes.c), so that
    the sum over two rows stays the same if they exchange values; the outer hash prevents that.
    """
    values = ", ".join(map(_postgres_value, columns))
    return f"hashint8extended(hash_record_extended(ROW({values}), 0), 0)"


def _postgres_value(column: Column) -> str:
    name, declared = quote("postgres", column.name), read(column.type)
    if not declared.array and declared.name in NATIVE:
        return name
    if not declared.array and declared.name in ("text", "character varying"):
        return f'{name} COLLATE "C"'
    if not declared.array and declared.name in ("character", "bpchar"):
        # neither its equality nor its cast to text minds trailing blanks
        return f"bpcharsend({name})"
    return f'{name}::text COLLATE "C"'


def sqlserver_digest(columns: Sequence[Column]) -> str:
    """T-SQL of a bigint for the row: eight bytes of the SHA-256 of all values, printed exactly.

    Only casts without styles, which mean the same on SQL Server 2019+ and on Babelfish 4.x. Each
    value is preceded by its length, so that none can pass for a part of its neighbour.
    """
    values = " + ".join(map(_sqlserver_value, columns))
    return _first_8_bytes(f"CAST({values} AS nvarchar(max))")


def _sqlserver_value(column: Column) -> str:
    name = quote("sqlserver", column.name)
    text = f"CAST({_sqlserver_text(name, column.type)} AS nvarchar(max))"
    # LEN does not count trailing blanks, hence the guard
    length = f"CAST(LEN({text} + N'.') AS nvarchar(20))"
    return f"CASE WHEN {name} IS NULL THEN N'~' ELSE {length} + N':' + {text} END"


def _sqlserver_text(name: str, declared: str) -> str:
    match read(declared).name:
        case "float":
            # its text is rounded; its bytes also tell -0.0 from 0.0
            return f"CAST(CAST({name} AS binary(8)) AS bigint)"
        case "real":
            return f"CAST(CAST({name} AS binary(4)) AS int)"
        case "money" | "smallmoney":
            return f"CAST({name} AS decimal(19,4))"
        case "datetime" | "smalldatetime":
            return f"CAST({name} AS datetime2(7))"
        case "binary" | "varbinary":
            return _first_8_bytes(name)
        case "image":
            return _first_8_bytes(f"CAST({name} AS varbinary(max))")
        case "timestamp" | "rowversion":
            return f"CAST({name} AS bigint)"
        case "uniqueidentifier":
            return f"CAST({name} AS char(36))"
        case _:
            return name


def _first_8_bytes(expression: str) -> str:
    return (
        f"CAST(CAST(SUBSTRING(HASHBYTES('SHA2_256', {expression}), 1, 8) AS binary(8)) AS bigint)"
    )
