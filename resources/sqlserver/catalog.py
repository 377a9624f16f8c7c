"""What the catalog says about many tables of a schema, by a few statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tableferry.resources.contract.catalog import (
    NOT_SHOWN,
    Catalogued,
    Structure,
    TableSize,
    structure_of,
)
from tableferry.resources.sqlserver.dialect import literal
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

Row = tuple[Any, ...]


def about(sql: str, tables: Sequence[TableRef], column: str) -> str:
    """Fill in tables of one schema: `{schema}`, `{names}`, and `{number}`, which of them it is.

    The server compares the names, as its collation decides which are equal.

    Args:
        sql: the query; the first value of its rows should be `{number}`.
        tables: the tables.
        column: the column with the table's name, for the number.
    """
    names = [literal(table.name) for table in tables]
    numbered = " ".join(f"WHEN {name} THEN {number}" for number, name in enumerate(names))
    return sql.format(
        schema=literal(tables[0].schema),
        names=", ".join(names),
        number=f"CASE {column} {numbered} END",
    )


def by_table(
    tables: Sequence[TableRef], rows: Iterable[Sequence[Any]]
) -> dict[TableRef, list[Row]]:
    """Return the rows of each table without their numbers; tables that have none are missing."""
    of_tables: dict[TableRef, list[Row]] = {}
    for number, *row in rows:
        of_tables.setdefault(tables[number], []).append(tuple(row))
    return of_tables


Ask = Callable[[str], Sequence[Sequence[Any]]]
"""Runs a query."""

COLUMNS = """
SELECT {number}, c.COLUMN_NAME, c.DATA_TYPE, c.CHARACTER_MAXIMUM_LENGTH, c.NUMERIC_PRECISION,
       c.NUMERIC_SCALE, c.DATETIME_PRECISION, c.IS_NULLABLE, c.COLLATION_NAME
FROM INFORMATION_SCHEMA.COLUMNS AS c
WHERE c.TABLE_SCHEMA = {schema} AND c.TABLE_NAME IN ({names})
ORDER BY c.ORDINAL_POSITION
"""

FLAGS = """
SELECT {number}, CAST(c.name AS nvarchar(128)), c.is_identity,
    CASE WHEN c.is_computed = 1 OR c.generated_always_type <> 0 THEN 1 ELSE 0 END,
    CASE WHEN c.encryption_type IS NULL THEN 0 ELSE 1 END, c.is_masked
FROM sys.columns AS c
INNER JOIN sys.objects AS o ON o.object_id = c.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name IN ({names}) AND (c.is_identity = 1 OR c.is_computed = 1
    OR c.generated_always_type <> 0 OR c.encryption_type IS NOT NULL OR c.is_masked = 1)
"""
"""What the server itself fills in: computed columns, and those of versions and ledgers; what only
clients with keys can read; and what is shown masked."""

MASKED = """
SELECT {number}, CAST(c.name AS nvarchar(128)) FROM sys.columns AS c
INNER JOIN sys.objects AS o ON o.object_id = c.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name IN ({names}) AND c.is_masked = 1
    AND COALESCE(HAS_PERMS_BY_NAME(NULL, 'DATABASE', 'UNMASK'), 0) = 0
    AND COALESCE(HAS_PERMS_BY_NAME(QUOTENAME(s.name) + N'.' + QUOTENAME(o.name), 'OBJECT',
        'UNMASK', c.name, 'COLUMN'), 0) = 0
"""
"""The columns that this login is shown masked; UNMASK of a column is there from 2022 on.
https://learn.microsoft.com/sql/relational-databases/security/dynamic-data-masking"""

PRIMARY_KEYS = """
SELECT {number}, k.COLUMN_NAME, k.ORDINAL_POSITION
FROM INFORMATION_SCHEMA.TABLE_CONSTRAINTS AS t
INNER JOIN INFORMATION_SCHEMA.KEY_COLUMN_USAGE AS k
    ON k.CONSTRAINT_SCHEMA = t.CONSTRAINT_SCHEMA AND k.CONSTRAINT_NAME = t.CONSTRAINT_NAME
    AND k.TABLE_SCHEMA = t.TABLE_SCHEMA AND k.TABLE_NAME = t.TABLE_NAME
WHERE t.CONSTRAINT_TYPE = 'PRIMARY KEY'
    AND t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME IN ({names})
ORDER BY k.ORDINAL_POSITION
"""

ROWS = """
SELECT {number}, SUM(p.rows) FROM sys.partitions AS p
INNER JOIN sys.objects AS o ON o.object_id = p.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name IN ({names}) AND p.index_id IN (0, 1)
GROUP BY o.name
"""

LEADING = """
SELECT {number}, CAST(c.name AS nvarchar(128)), i.is_unique
FROM sys.indexes AS i
INNER JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
INNER JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
INNER JOIN sys.objects AS o ON o.object_id = i.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name IN ({names}) AND k.key_ordinal = 1
"""


INDEXES = """
SELECT {number}, CAST(i.name AS nvarchar(128)), CAST(c.name AS nvarchar(128)),
       i.is_unique, i.is_primary_key, k.key_ordinal
FROM sys.indexes AS i
INNER JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
INNER JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
INNER JOIN sys.objects AS o ON o.object_id = i.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name IN ({names}) AND k.key_ordinal > 0
"""

DEFAULTS = """
SELECT {number}, c.COLUMN_NAME, c.COLUMN_DEFAULT FROM INFORMATION_SCHEMA.COLUMNS AS c
WHERE c.TABLE_SCHEMA = {schema} AND c.TABLE_NAME IN ({names}) AND c.COLUMN_DEFAULT IS NOT NULL
"""


UNSEEN_DEFAULTS = """
SELECT {number}, CAST(c.name AS nvarchar(128)) FROM sys.columns AS c
INNER JOIN sys.objects AS o ON o.object_id = c.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name IN ({names}) AND c.default_object_id <> 0
"""
"""All columns with a default; the words of one are shown to who may see the table's definition."""


def structures(ask: Ask, tables: Sequence[TableRef]) -> dict[TableRef, Structure]:
    """Return the keys, indexes and defaults of tables of one schema."""
    indexes, shown = _about(ask, INDEXES, tables), _about(ask, DEFAULTS, tables, "c.TABLE_NAME")
    unseen = _about(ask, UNSEEN_DEFAULTS, tables)
    return {
        table: structure_of(
            _indexes(indexes.get(table, ())),
            {name: NOT_SHOWN for (name,) in unseen.get(table, ())} | dict(shown.get(table, ())),
        )
        for table in tables
    }


def _indexes(rows: Sequence[Row]) -> dict[str, tuple[tuple[str, ...], bool, bool]]:
    """Return the columns of a table's indexes by name, and whether they are unique and primary."""
    indexes: dict[str, tuple[tuple[str, ...], bool, bool]] = {}
    for index, column, unique, primary, _ in sorted(rows, key=lambda row: row[-1]):
        columns, *_ = indexes.get(index, ((), False, False))
        indexes[index] = ((*columns, column), bool(unique), bool(primary))
    return indexes


def columns_of(ask: Ask, tables: Sequence[TableRef]) -> dict[TableRef, list[Column]]:
    """Return the columns of tables of one schema, without tables that do not exist."""
    flags, keys = _about(ask, FLAGS, tables), _about(ask, PRIMARY_KEYS, tables, "t.TABLE_NAME")
    any_masked = any(is_masked for rows in flags.values() for *_, is_masked in rows)
    masked = _about(ask, MASKED, tables) if any_masked else {}
    return {
        table: _columns(
            rows,
            {name: of_column for name, *of_column in flags.get(table, ())},
            {name for (name,) in masked.get(table, ())},
            [name for name, _ in keys.get(table, ())],
        )
        for table, rows in _about(ask, COLUMNS, tables, "c.TABLE_NAME").items()
    }


def _columns(
    rows: Sequence[Row], flags: Mapping[str, Sequence[Any]], masked: set[str], key: Sequence[str]
) -> list[Column]:
    spelled, columns = {name for name, *_ in rows}, []
    for name, kind, length, precision, scale, fraction, nullable, collation in rows:
        identity, generated, encrypted, _ = flags.get(name, (0, 0, 0, 0))
        unread = " encrypted" * bool(encrypted) or " masked" * (name in masked)
        # Babelfish names the columns of keys in lower case
        of_key = [name if each not in spelled and each == name.lower() else each for each in key]
        columns.append(
            Column(
                name=name,
                type=_declared(kind.lower(), length, precision, scale, fraction) + unread,
                nullable=nullable == "YES",
                generated=bool(generated),
                identity=bool(identity),
                primary_key=of_key.index(name) + 1 if name in of_key else None,
                collation=collation,
            )
        )
    return columns


def described(ask: Ask, query: str) -> list[Column]:
    """Return the columns of a query's result.

    https://learn.microsoft.com/sql/relational-databases/system-stored-procedures/sp-describe-first-result-set-transact-sql
    """
    columns = []
    for hidden, _, name, nullable, _, type_, length, precision, scale, *_ in ask(
        f"EXEC sp_describe_first_result_set {literal(query)}"
    ):
        # SQL Server names a type with its arguments, Babelfish without them
        kind = str(type_).partition("(")[0].lower()
        units = length // 2 if kind in ("nchar", "nvarchar") and length > 0 else length
        declared = _declared(kind, units, precision, scale, scale)
        if not hidden:
            columns.append(Column(str(name or ""), declared, nullable=bool(nullable)))
    return columns


def catalogued(ask: Ask, tables: Sequence[TableRef]) -> dict[TableRef, Catalogued]:
    """Return the sizes and indexed columns of tables of one schema."""
    sizes, indexes = _about(ask, ROWS, tables), _about(ask, LEADING, tables)
    entries = {}
    for table in {**sizes, **indexes}:
        ((rows,),) = sizes.get(table, ((0,),))
        unique_first = sorted(indexes.get(table, ()), key=lambda index: not index[1])
        leading = [*dict.fromkeys(name for name, _ in unique_first)]
        # Babelfish's catalog has 0 rows for every table
        entries[table] = Catalogued(TableSize(int(rows)) if rows else None, leading)
    return entries


def _about(
    ask: Ask, sql: str, tables: Sequence[TableRef], column: str = "o.name"
) -> dict[TableRef, list[Row]]:
    """Ask about tables of one schema, whose name is in a column; those without rows are missing."""
    return by_table(tables, ask(about(sql, tables, column)))


def _declared(
    kind: str, length: int | None, precision: int | None, scale: int | None, fraction: int | None
) -> str:
    """Write a type as in CREATE TABLE; lengths of text are in its units."""
    if kind in ("char", "varchar", "nchar", "nvarchar", "binary", "varbinary"):
        return f"{kind}({'max' if length == -1 else length})"
    if kind in ("decimal", "numeric"):
        return f"{kind}({precision},{scale})"
    if kind in ("time", "datetime2", "datetimeoffset"):
        return f"{kind}({fraction})"
    return kind
