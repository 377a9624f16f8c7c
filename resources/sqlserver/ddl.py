"""The statements of the SQL Server target, as text; all of them are valid on Babelfish too."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from resources.dialects import qualified, quote, string_literal
from resources.plan import CopyPlan
from resources.sqlserver.types import MONEY, MOST_DIGITS, index_bytes, read
from resources.tables import Column, TableRef
from resources.target import row_identity
from resources.types.kinds import Decimal, Text

KEY_BYTES = 900
"""Most bytes of a clustered index key (SQL Server's maximum capacity specifications)."""


BINARY_ORDER = "Latin1_General_BIN2"
"""Compares text by code points, so that case and accents tell rows apart."""


def create_schema(table: TableRef) -> str:
    """CREATE SCHEMA if missing; it must be the only statement of its batch, hence EXEC."""
    inner = f"CREATE SCHEMA {quote('sqlserver', table.schema)}"
    return f"IF SCHEMA_ID({_text(table.schema)}) IS NULL EXEC({_text(inner)})"


def create_table(plan: CopyPlan, table: TableRef) -> list[str]:
    """CREATE TABLE of the target or its shadow, and an index on the key column.

    The source's primary key becomes the table's, unless it holds text: SQL Server takes 'a' and 'A'
    for equal under most collations, and 'a' and 'a ' under all, where the source does not. The
    index lets a range be deleted and counted without a scan.
    """
    lines = [_definition(column) for column in plan.target_columns]
    primary_key = _primary_key(plan)
    if primary_key:
        lines.append(f"PRIMARY KEY ({names(primary_key)})")
    statements = [f"CREATE TABLE {qualified(table)} ({', '.join(lines)})"]
    key = plan.key.target
    if primary_key[:1] != [key.name] and index_bytes(key.type) is not None:
        digest = hashlib.blake2b(str(table).encode(), digest_size=6).hexdigest()
        index = quote("sqlserver", f"ix_{digest}_key")
        statements.append(f"CREATE INDEX {index} ON {qualified(table)} ({names([key.name])})")
    return statements


def numbered(plan: CopyPlan) -> CopyPlan:
    """The plan with target columns `c0`, `c1`, ..., for tools that quote names their way."""
    columns = tuple(
        replace(column, target=replace(column.target, name=f"c{number}"))
        for number, column in enumerate(plan.columns)
    )
    return replace(plan, columns=columns)


def create_staging(plan: CopyPlan, staging: TableRef) -> str:
    """A heap without any constraint but NOT NULL: the fastest thing to load.

    Its decimals have 38 digits: Babelfish 4 reads 16 bytes of each in a bulk load, whereas a client
    sends as many as the column's precision needs (MS-TDS, 2.2.5.5.1.6).
    """
    columns = [replace(column, type=_widest(column.type)) for column in plan.target_columns]
    lines = ", ".join(_definition(column) for column in columns)
    return f"CREATE TABLE {qualified(staging)} ({lines})"


def drop_table(table: TableRef) -> str:
    """DROP TABLE, if it exists."""
    return f"DROP TABLE IF EXISTS {qualified(table)}"


def names(columns: Sequence[str]) -> str:
    """Quoted column names, separated by commas."""
    return ", ".join(quote("sqlserver", column) for column in columns)


def copy_columns(plan: CopyPlan) -> str:
    """The plan's columns as a list."""
    return names([column.name for column in plan.target_columns])


def delete_range(plan: CopyPlan, table: TableRef, condition: str) -> str:
    """Remove a key range."""
    return f"DELETE FROM {qualified(table)} WHERE {condition}"


def insert_all(plan: CopyPlan, table: TableRef, rows_of: TableRef, condition: str = "1 = 1") -> str:
    """Copy rows. Without TABLOCK: it would make parallel ranges wait for each other."""
    columns = copy_columns(plan)
    return (
        f"INSERT INTO {qualified(table)} ({columns}) "
        f"SELECT {columns} FROM {qualified(rows_of)} WHERE {condition}"
    )


def insert_new(plan: CopyPlan, table: TableRef, staging: TableRef) -> str:
    """Copy the staged rows whose primary key the table does not have."""
    columns = copy_columns(plan)
    return (
        f"INSERT INTO {qualified(table)} ({columns}) SELECT {columns} "
        f"FROM {qualified(staging)} AS s WHERE NOT EXISTS "
        f"(SELECT 1 FROM {qualified(table)} AS t WHERE {_same_row(plan)})"
    )


def drop_known(plan: CopyPlan, table: TableRef, staging: TableRef) -> str:
    """Remove the staged rows whose primary key the table has."""
    return (
        f"DELETE s FROM {qualified(staging)} AS s WHERE EXISTS "
        f"(SELECT 1 FROM {qualified(table)} AS t WHERE {_same_row(plan)})"
    )


def count_kept(plan: CopyPlan, table: TableRef, staging: TableRef, condition: str) -> str:
    """Count the rows whose primary key was not staged."""
    return (
        f"SELECT COUNT_BIG(*) FROM {qualified(table)} AS t WHERE ({condition}) AND NOT EXISTS "
        f"(SELECT 1 FROM {qualified(staging)} AS s WHERE {_same_row(plan)})"
    )


def update_known(plan: CopyPlan, table: TableRef, staging: TableRef) -> str | None:
    """Overwrite the rows whose primary key was staged; None if there is nothing but the key."""
    identity = row_identity(plan)
    others = [column.name for column in plan.target_columns if column.name not in identity]
    if not others:
        return None
    assignments = ", ".join(f"{names([name])} = s.{names([name])}" for name in others)
    return (
        f"UPDATE t SET {assignments} FROM {qualified(table)} AS t "
        f"INNER JOIN {qualified(staging)} AS s ON {_same_row(plan)}"
    )


def count(table: TableRef, condition: str = "1 = 1") -> str:
    """Count rows; COUNT_BIG is the one that does not overflow."""
    return f"SELECT COUNT_BIG(*) FROM {qualified(table)} WHERE {condition}"


def table_exists(table: TableRef) -> str:
    """A query with one row if the table exists."""
    return (
        "SELECT 1 FROM INFORMATION_SCHEMA.TABLES "
        f"WHERE TABLE_SCHEMA = {_text(table.schema)} AND TABLE_NAME = {_text(table.name)}"
    )


def object_id(table: TableRef) -> str:
    """A query with the table's object id, if it exists."""
    return (
        "SELECT t.object_id FROM sys.tables AS t "
        "INNER JOIN sys.schemas AS s ON s.schema_id = t.schema_id "
        f"WHERE s.name = {_text(table.schema)} AND t.name = {_text(table.name)}"
    )


def tables_like(table: TableRef, prefix: str) -> str:
    """The names in the table's schema that begin with a prefix."""
    return (
        "SELECT TABLE_NAME FROM INFORMATION_SCHEMA.TABLES "
        f"WHERE TABLE_SCHEMA = {_text(table.schema)} "
        f"AND LEFT(TABLE_NAME, {len(prefix)}) = {_text(prefix)} ORDER BY TABLE_NAME"
    )


def required_columns(table: TableRef) -> str:
    """The columns that an INSERT must give: NOT NULL and without a default."""
    return (
        "SELECT COLUMN_NAME FROM INFORMATION_SCHEMA.COLUMNS "
        f"WHERE TABLE_SCHEMA = {_text(table.schema)} AND TABLE_NAME = {_text(table.name)} "
        "AND IS_NULLABLE = 'NO' AND COLUMN_DEFAULT IS NULL"
    )


def rename(table: TableRef, name: str) -> str:
    """Rename a table. Babelfish wants the object type."""
    return f"EXEC sp_rename {_text(qualified(table))}, {_text(name)}, 'OBJECT'"


def get_lock(resource: str, wait_milliseconds: int) -> str:
    """Take the session's application lock; the answer is negative if somebody else holds it."""
    return (
        "DECLARE @result int; "
        f"EXEC @result = sp_getapplock @Resource = {_text(resource)}, @LockMode = 'Exclusive', "
        f"@LockOwner = 'Session', @LockTimeout = {wait_milliseconds}; "
        "SELECT @result AS result;"
    )


def release_lock(resource: str) -> str:
    """Give the session's application lock back."""
    return f"EXEC sp_releaseapplock @Resource = {_text(resource)}, @LockOwner = 'Session'"


def identity_insert(table: TableRef, switch: bool) -> str:
    """Allow or forbid to write the table's identity column in this session."""
    return f"SET IDENTITY_INSERT {qualified(table)} {'ON' if switch else 'OFF'}"


def _same_row(plan: CopyPlan) -> str:
    by_name = {column.name: column for column in plan.target_columns}
    return " AND ".join(_equal(by_name[name]) for name in row_identity(plan))


def _equal(column: Column) -> str:
    name = quote("sqlserver", column.name)
    if not _is_text(column):
        return f"t.{name} = s.{name}"
    # = ignores trailing blanks under every collation; the length in bytes does not
    return (
        f"t.{name} = s.{name} COLLATE {BINARY_ORDER} "
        f"AND DATALENGTH(t.{name}) = DATALENGTH(s.{name})"
    )


def _definition(column: Column) -> str:
    null = "NULL" if column.nullable else "NOT NULL"
    return f"{quote('sqlserver', column.name)} {column.type} {null}"


def _widest(type_: str) -> str:
    found = read(type_)
    if not isinstance(found.kind, Decimal) or found.name in MONEY:
        return type_
    return f"decimal({MOST_DIGITS},{found.kind.scale})"


def _primary_key(plan: CopyPlan) -> list[str]:
    identity = list(row_identity(plan))
    by_name = {column.name: column for column in plan.target_columns}
    columns = [by_name[name] for name in identity]
    sizes = [index_bytes(column.type) for column in columns]
    if any(
        size is None or column.nullable or _is_text(column)
        for column, size in zip(columns, sizes, strict=True)
    ):
        return []
    return identity if sum(size or 0 for size in sizes) <= KEY_BYTES else []


def _is_text(column: Column) -> bool:
    return isinstance(read(column.type).kind, Text)


def _text(value: str) -> str:
    return string_literal("sqlserver", value)
