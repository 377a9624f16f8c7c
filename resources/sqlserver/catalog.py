"""What the catalog says about many tables of a schema, by a few statements.

The collation of a database decides which names are the same, so a table may be declared by a name
that the catalog writes otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tableferry.resources.contract.catalog import Catalogued, TableSize
from tableferry.resources.contract.structure import NOT_SHOWN, Structure, structure_of
from tableferry.resources.sqlserver.dialect import literal
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

Ask = Callable[[str], Sequence[Sequence[Any]]]
"""Runs a query."""
Said = TypeVar("Said")

MOST_NAMES = 1_000
"""The maximum names of an IN list, https://learn.microsoft.com/sql/t-sql/language-elements/in-transact-sql"""

COLUMNS = """
SELECT c.TABLE_NAME, c.COLUMN_NAME, c.DATA_TYPE, c.CHARACTER_MAXIMUM_LENGTH, c.NUMERIC_PRECISION,
       c.NUMERIC_SCALE, c.DATETIME_PRECISION, c.IS_NULLABLE, c.COLLATION_NAME
FROM INFORMATION_SCHEMA.COLUMNS AS c
WHERE c.TABLE_SCHEMA = {schema} AND c.TABLE_NAME IN ({names})
ORDER BY c.TABLE_NAME, c.ORDINAL_POSITION
"""

FLAGS = """
SELECT CAST(o.name AS nvarchar(128)), CAST(c.name AS nvarchar(128)), c.is_identity,
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
SELECT CAST(o.name AS nvarchar(128)), CAST(c.name AS nvarchar(128)) FROM sys.columns AS c
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
SELECT t.TABLE_NAME, k.COLUMN_NAME, k.ORDINAL_POSITION
FROM INFORMATION_SCHEMA.TABLE_CONSTRAINTS AS t
INNER JOIN INFORMATION_SCHEMA.KEY_COLUMN_USAGE AS k
    ON k.CONSTRAINT_SCHEMA = t.CONSTRAINT_SCHEMA AND k.CONSTRAINT_NAME = t.CONSTRAINT_NAME
    AND k.TABLE_SCHEMA = t.TABLE_SCHEMA AND k.TABLE_NAME = t.TABLE_NAME
WHERE t.CONSTRAINT_TYPE = 'PRIMARY KEY'
    AND t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME IN ({names})
ORDER BY t.TABLE_NAME, k.ORDINAL_POSITION
"""

ROWS = """
SELECT CAST(o.name AS nvarchar(128)), SUM(p.rows) FROM sys.partitions AS p
INNER JOIN sys.objects AS o ON o.object_id = p.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name IN ({names}) AND p.index_id IN (0, 1)
GROUP BY o.name
"""

LEADING = """
SELECT CAST(o.name AS nvarchar(128)), CAST(c.name AS nvarchar(128)), i.is_unique
FROM sys.indexes AS i
INNER JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
INNER JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
INNER JOIN sys.objects AS o ON o.object_id = i.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name IN ({names}) AND k.key_ordinal = 1
"""


INDEXES = """
SELECT CAST(o.name AS nvarchar(128)), CAST(i.name AS nvarchar(128)), CAST(c.name AS nvarchar(128)),
       i.is_unique, i.is_primary_key, k.key_ordinal
FROM sys.indexes AS i
INNER JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
INNER JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
INNER JOIN sys.objects AS o ON o.object_id = i.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name IN ({names}) AND k.key_ordinal > 0
"""

DEFAULTS = """
SELECT c.TABLE_NAME, c.COLUMN_NAME, c.COLUMN_DEFAULT FROM INFORMATION_SCHEMA.COLUMNS AS c
WHERE c.TABLE_SCHEMA = {schema} AND c.TABLE_NAME IN ({names}) AND c.COLUMN_DEFAULT IS NOT NULL
"""


UNSEEN_DEFAULTS = """
SELECT CAST(o.name AS nvarchar(128)), CAST(c.name AS nvarchar(128)) FROM sys.columns AS c
INNER JOIN sys.objects AS o ON o.object_id = c.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name IN ({names}) AND c.default_object_id <> 0
"""
"""All columns with a default; the words of one are shown to who may see the table's definition."""


def structures(ask: Ask, tables: Sequence[TableRef]) -> dict[TableRef, Structure]:
    """Return the keys, indexes and defaults of tables of one schema."""
    found: dict[str, dict[str, list[tuple[int, str, bool, bool]]]] = {}
    for table, index, column, unique, primary, position in _about(ask, INDEXES, tables):
        columns = found.setdefault(table, {}).setdefault(index, [])
        columns.append((position, column, bool(unique), bool(primary)))
    defaults: dict[str, dict[str, str]] = {}
    for table, name, default in _about(ask, DEFAULTS, tables):
        defaults.setdefault(table, {})[name] = default
    for table, name in _about(ask, UNSEEN_DEFAULTS, tables):
        defaults.setdefault(table, {}).setdefault(name, NOT_SHOWN)
    entries = {}
    for table in {**found, **defaults}:
        indexes = {}
        for index, columns in found.get(table, {}).items():
            _, _, unique, primary = columns[0]
            names = tuple(name for _, name, _, _ in sorted(columns))
            indexes[index] = (names, unique, primary)
        entries[table] = structure_of(indexes, defaults.get(table, {}))
    by_table, unnamed = _by_table(entries, tables)
    for table in unnamed:
        by_table |= structures(ask, [table])
    return {table: by_table.get(table, Structure()) for table in tables}


def columns_of(ask: Ask, tables: Sequence[TableRef]) -> dict[TableRef, list[Column]]:
    """Return the columns of tables of one schema, without tables that do not exist."""
    flags = {(table, name): flags for table, name, *flags in _about(ask, FLAGS, tables)}
    masked = set[tuple[str, str]]()
    if any(is_masked for *_, is_masked in flags.values()):
        masked = {(table, name) for table, name in _about(ask, MASKED, tables)}
    keys: dict[str, list[str]] = {}
    for table, name, _ in _about(ask, PRIMARY_KEYS, tables):
        keys.setdefault(table, []).append(name)
    columns: dict[str, list[Column]] = {}
    rows = _about(ask, COLUMNS, tables)
    spelled = {(table, name) for table, name, *_ in rows}
    for table, name, kind, length, precision, scale, fraction, nullable, collation in rows:
        identity, generated, encrypted, _ = flags.get((table, name), (0, 0, 0, 0))
        unread = " encrypted" * bool(encrypted) or " masked" * ((table, name) in masked)
        # Babelfish names the columns of keys in lower case
        key = [
            name if (table, each) not in spelled and each == name.lower() else each
            for each in keys.get(table, [])
        ]
        columns.setdefault(table, []).append(
            Column(
                name=name,
                type=_declared(kind.lower(), length, precision, scale, fraction) + unread,
                nullable=nullable == "YES",
                generated=bool(generated),
                identity=bool(identity),
                primary_key=key.index(name) + 1 if name in key else None,
                collation=collation,
            )
        )
    by_table, unnamed = _by_table(columns, tables)
    for table in unnamed:
        by_table |= columns_of(ask, [table])
    return by_table


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
    # Babelfish's catalog has 0 rows for every table
    sizes = {name: TableSize(int(rows)) for name, rows in _about(ask, ROWS, tables) if rows}
    indexes: dict[str, list[tuple[str, bool]]] = {}
    for table, name, unique in _about(ask, LEADING, tables):
        indexes.setdefault(table, []).append((name, bool(unique)))
    entries = {
        table: Catalogued(
            sizes.get(table),
            list(
                dict.fromkeys(
                    name
                    for name, _ in sorted(indexes.get(table, []), key=lambda index: not index[1])
                )
            ),
        )
        for table in {**sizes, **indexes}
    }
    by_table, unnamed = _by_table(entries, tables)
    for table in unnamed:
        by_table |= catalogued(ask, [table])
    return by_table


def _about(ask: Ask, sql: str, tables: Sequence[TableRef]) -> list[Sequence[Any]]:
    """Ask a statement about tables of one schema."""
    schema, rows = literal(tables[0].schema), list[Sequence[Any]]()
    for start in range(0, len(tables), MOST_NAMES):
        names = ", ".join(literal(table.name) for table in tables[start : start + MOST_NAMES])
        rows += ask(sql.format(schema=schema, names=names))
    return rows


def _by_table(
    by_name: Mapping[str, Said], tables: Sequence[TableRef]
) -> tuple[dict[TableRef, Said], list[TableRef]]:
    """Assign what the catalog says to the tables, by names that may differ in case.

    The second item has the tables that may be meant by other names of the catalog.
    """
    if len(tables) == 1:
        return ({tables[0]: next(iter(by_name.values()))} if by_name else {}), []
    said = {table: by_name[table.name] for table in tables if table.name in by_name}
    names = {table.name for table in tables}
    others = {name.casefold(): name for name in by_name if name not in names}
    for table in tables:
        if table not in said and table.name.casefold() in others:
            said[table] = by_name[others.pop(table.name.casefold())]
    folded = {name.casefold() for name in by_name}
    return said, [
        table
        for table in tables
        if table not in said and (others or table.name.casefold() in folded)
    ]


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
