"""SQL Server's catalog: how large a table is, and which of its columns are indexed."""

from __future__ import annotations

from resources.catalog import TableSize
from resources.dialects import string_literal
from resources.endpoint import Endpoint
from resources.tables import TableRef

ROWS_SQL = """
SELECT SUM(p.rows) FROM sys.partitions AS p
INNER JOIN sys.objects AS o ON o.object_id = p.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name = {table} AND p.index_id IN (0, 1)
"""

LEADING_SQL = """
SELECT c.name, i.is_unique FROM sys.indexes AS i
INNER JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
INNER JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
INNER JOIN sys.objects AS o ON o.object_id = i.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name = {table} AND k.key_ordinal = 1
"""


def size(endpoint: Endpoint, table: TableRef) -> TableSize | None:
    """Rows as the catalog has them; None where it has none, as Babelfish's, or of a view."""
    rows = endpoint.query(ROWS_SQL.format(**_names(table)))[0][0]
    return TableSize(int(rows)) if rows else None


def leading(endpoint: Endpoint, table: TableRef) -> tuple[str, ...]:
    """The columns that an index begins with, those of unique ones first."""
    found = endpoint.query(LEADING_SQL.format(**_names(table)))
    return tuple(dict.fromkeys(name for name, _ in sorted(found, key=lambda one: not one[1])))


def _names(table: TableRef) -> dict[str, str]:
    return {
        "schema": string_literal("sqlserver", table.schema),
        "table": string_literal("sqlserver", table.name),
    }
