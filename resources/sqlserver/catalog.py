"""SQL Server's catalog: how large a table is, which of its columns are indexed, what hides rows."""

from __future__ import annotations

from tableferry.resources.contract.catalog import TableSize
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.sqlserver.dialect import DIALECT
from tableferry.resources.tables import TableRef

ROWS_SQL = """
SELECT SUM(p.rows) FROM sys.partitions AS p
INNER JOIN sys.objects AS o ON o.object_id = p.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name = {table} AND p.index_id IN (0, 1)
"""

LEADING_SQL = """
SELECT CAST(c.name AS nvarchar(128)), i.is_unique FROM sys.indexes AS i
INNER JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
INNER JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
INNER JOIN sys.objects AS o ON o.object_id = i.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name = {table} AND k.key_ordinal = 1
"""

BABELFISH = "SELECT CAST(SERVERPROPERTY('babelfish') AS int)"
"""1 on Babelfish, which has no security policies, and shows none of PostgreSQL's."""

POLICIES_SQL = """
SELECT p.name FROM sys.security_predicates AS f
INNER JOIN sys.security_policies AS p ON p.object_id = f.object_id
INNER JOIN sys.objects AS o ON o.object_id = f.target_object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name = {table} AND p.is_enabled = 1 AND f.predicate_type = 0
"""
"""Of filters that are on: what else a policy has refuses rows, and says so."""


def size(endpoint: Endpoint, table: TableRef) -> TableSize | None:
    """Rows as the catalog has them; None where it has none, as Babelfish's, or of a view."""
    rows = endpoint.query(ROWS_SQL.format(**_names(table)))[0][0]
    return TableSize(int(rows)) if rows else None


def leading(endpoint: Endpoint, table: TableRef) -> tuple[str, ...]:
    """The columns that an index begins with, those of unique ones first."""
    found = endpoint.query(LEADING_SQL.format(**_names(table)))
    return tuple(dict.fromkeys(name for name, _ in sorted(found, key=lambda one: not one[1])))


def is_babelfish(endpoint: Endpoint) -> bool:
    """Whether the server is one."""
    return endpoint.query(BABELFISH) == [(1,)]


def hidden(endpoint: Endpoint, table: TableRef) -> str | None:
    """What is said of a table with a security policy that filters its rows, for everybody."""
    if is_babelfish(endpoint):
        return None
    found = endpoint.query(POLICIES_SQL.format(**_names(table)))
    if not found:
        return None
    policy = DIALECT.quote(str(found[0][0]))
    return (
        f"the security policy {policy} filters its rows; have an administrator let this login see "
        f"all of them and switch the filter off (ALTER SECURITY POLICY {policy} WITH (STATE = "
        "OFF)), or declare 'row_security: apply' to take the rows that are shown for all"
    )


def _names(table: TableRef) -> dict[str, str]:
    return {
        "schema": DIALECT.literal(table.schema),
        "table": DIALECT.literal(table.name),
    }
