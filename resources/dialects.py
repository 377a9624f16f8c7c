"""Quoting, literals and key-range predicates in the SQL of each system."""

from __future__ import annotations

import datetime as dt
import uuid

from resources.errors import InputError
from resources.keys.range import Bound, KeyRange
from resources.tables import Column, System, TableRef


def quote(system: System, identifier: str) -> str:
    """An identifier, quoted so that case, spaces, reserved words and quotes survive.

    On SQL Server by quotation marks, which need QUOTED_IDENTIFIER to be ON, as it is for ODBC and
    OLE DB clients, and as bcp is told to set it. Babelfish has no escape for `]` within brackets.
    https://learn.microsoft.com/sql/t-sql/statements/set-quoted-identifier-transact-sql

    Raises:
        InputError: the identifier is empty or holds NUL, which no server can name.
    """
    if not identifier or "\0" in identifier:
        raise InputError(f"{identifier!r} is not a possible name in {system}")
    if system in ("postgres", "sqlserver"):
        return '"' + identifier.replace('"', '""') + '"'
    return "`" + identifier.replace("\\", "\\\\").replace("`", "\\`") + "`"


def qualified(table: TableRef, name: str | None = None) -> str:
    """The quoted `schema.table`; `name` stands in for the table's own name (a staging table)."""
    return f"{quote(table.system, table.schema)}.{quote(table.system, name or table.name)}"


def string_literal(system: System, text: str) -> str:
    """A text literal; on SQL Server a Unicode one."""
    if system == "clickhouse":
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return ("N'" if system == "sqlserver" else "'") + text.replace("'", "''") + "'"


def predicate(column: Column, key_range: KeyRange, system: System) -> str:
    """The WHERE condition, in the system's SQL, that selects exactly the rows of a key range.

    NULL keys are in no bounded range, because SQL's comparisons with NULL are not true. uuid keys
    compare as text: SQL Server orders uniqueidentifier by its last six bytes first, and ClickHouse
    orders UUID by its second half, whereas the ranges are cut in PostgreSQL's bytewise order.
    """
    name = quote(system, column.name)
    if key_range.null:
        return f"{name} IS NULL"
    conditions = []
    subject = name
    if key_range.kind == "uuid" and system != "postgres":
        subject = (
            f"toString({name})"
            if system == "clickhouse"
            else f"LOWER(CAST({name} AS char(36))) COLLATE Latin1_General_BIN2"
        )
    if key_range.lower is not None:
        conditions.append(f"{subject} >= {_literal(key_range.lower, column, system)}")
    if key_range.upper is not None:
        conditions.append(f"{subject} < {_literal(key_range.upper, column, system)}")
    return " AND ".join(conditions) or f"{name} IS NOT NULL"


def _literal(bound: Bound, column: Column, system: System) -> str:
    if isinstance(bound, int):
        return str(bound)
    if isinstance(bound, uuid.UUID):
        return f"uuid '{bound}'" if system == "postgres" else f"'{bound}'"
    if isinstance(bound, dt.datetime):
        text = bound.isoformat(sep="T" if system == "sqlserver" else " ", timespec="microseconds")
        zoned = column.type.startswith(
            ("timestamp with time zone", "timestamptz", "datetimeoffset")
        )
        if system == "postgres":
            return f"timestamptz '{text}+00'" if zoned else f"timestamp '{text}'"
        if system == "sqlserver":
            return (
                f"CAST('{text}+00:00' AS datetimeoffset(6))"
                if zoned
                else f"CAST('{text}' AS datetime2(6))"
            )
        return f"toDateTime64('{text}', 6, 'UTC')"
    if system == "postgres":
        return f"date '{bound.isoformat()}'"
    if system == "sqlserver":
        return f"CAST('{bound.isoformat()}' AS date)"
    return f"toDate32('{bound.isoformat()}')"
