"""PostgreSQL's catalog: which tables there are, how large they are, which columns are indexed."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.contract.catalog import Listed, TableSize
from tableferry.resources.contract.dialects import qualified
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.postgres.dialect import DIALECT, PostgresDialect
from tableferry.resources.postgres.errors import rows_hidden
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

TABLES_SQL = """
SELECT n.nspname, c.relname, c.relkind IN ('v', 'm'),
    has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
    AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
ORDER BY 1, 2
"""

SIZE_SQL = """
SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint, sum(pg_table_size(c.oid))::bigint,
    bool_or(c.reltuples < 0 AND pg_relation_size(c.oid) > 0)
FROM (SELECT {table}::regclass::oid AS root) r
LEFT JOIN LATERAL (SELECT relid FROM pg_partition_tree(r.root) UNION SELECT r.root) parts ON true
JOIN pg_class c ON c.oid = parts.relid AND c.relkind IN ('r', 'm')
"""

LEADING_SQL = """
SELECT a.attname
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = {table}::regclass AND i.indisvalid AND i.indpred IS NULL
ORDER BY i.indisprimary DESC, i.indisunique DESC, a.attnum
"""

HIDDEN_SQL = """
SELECT current_user::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relname = {name} AND row_security_active(c.oid)
"""

# a primary key does not reach into the tables that inherit from its own
UNIQUE_SQL = """
SELECT x.relname
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_class x ON x.oid = i.indexrelid
WHERE i.indrelid = {table}::regclass AND i.indisprimary AND i.indisvalid
    AND (c.relkind = 'p' OR NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid))
    AND (SELECT bool_and(a.attname::text = ANY(ARRAY[{columns}]::text[])) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1]))
"""

CHILDREN_SQL = """
WITH RECURSIVE children AS (
    SELECT i.inhrelid AS oid FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent
    WHERE i.inhparent = {table}::regclass AND c.relkind <> 'p'
    UNION SELECT i.inhrelid FROM pg_inherits i JOIN children c ON c.oid = i.inhparent
)
SELECT oid::regclass::text FROM children ORDER BY 1
"""

ORDERED_SQL = """
SELECT c.relkind IN ('v', 'f') OR EXISTS (
    SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
    JOIN pg_am a ON a.oid = x.relam AND a.amname = 'btree'
    WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL
        AND pg_get_indexdef(i.indexrelid, 1, true) = {key} AND i.indcollation[0] = {collation}
)
FROM pg_class c WHERE c.oid = {table}::regclass
"""

SAMPLE_BYTES = 32 << 20
"""How much is read of a table that was never analysed, to tell how many rows it has."""


def listed(endpoint: Endpoint, connection: str) -> list[Listed]:
    """The tables and views, without the partitions of others."""
    return [
        Listed(TableRef(endpoint.system_name, schema, name, connection), view, readable)
        for schema, name, view, readable in endpoint.query(TABLES_SQL)
    ]


def size(endpoint: Endpoint, table: TableRef) -> TableSize | None:
    """Rows as ANALYZE or a sample counted them, and bytes; None of a view or foreign table."""
    rows, stored, unknown = endpoint.query(SIZE_SQL.format(table=_literal(table)))[0]
    if stored is None:
        return None
    if unknown:
        percent = min(100.0, 100 * SAMPLE_BYTES / max(stored, 1))
        sample = f"TABLESAMPLE SYSTEM ({percent:.6f}) REPEATABLE (0)"
        found = endpoint.query(f"SELECT count(*) FROM {qualified(table)} {sample}")[0][0]
        rows = round(found * 100 / percent)
    return TableSize(int(rows), int(stored))


def leading(endpoint: Endpoint, table: TableRef) -> tuple[str, ...]:
    """The columns that an index begins with: of the primary key first, then of unique ones."""
    found = endpoint.query(LEADING_SQL.format(table=_literal(table)))
    return tuple(dict.fromkeys(name for (name,) in found))


def unique_by(endpoint: Endpoint, table: TableRef, columns: Sequence[str]) -> str | None:
    """The table's primary key, where it is made of some of the columns."""
    listed = ", ".join(DIALECT.literal(name) for name in columns)
    found = endpoint.query(UNIQUE_SQL.format(table=_literal(table), columns=listed))
    return str(found[0][0]) if found else None


def hidden(endpoint: Endpoint, table: TableRef) -> str | None:
    """What is said of a table whose policies hold for the login; those below a view are found when
    it is read."""
    names = {
        "schema": DIALECT.literal(table.schema),
        "name": DIALECT.literal(table.name),
    }
    found = endpoint.query(HIDDEN_SQL.format(**names))
    return rows_hidden(str(found[0][0])) if found else None


def children(endpoint: Endpoint, table: TableRef) -> list[str]:
    """The tables that inherit from a table, whose rows are read with its own; no partitions."""
    return [name for (name,) in endpoint.query(CHILDREN_SQL.format(table=_literal(table)))]


def serves_order(endpoint: Endpoint, table: TableRef, key: Column) -> bool:
    """Whether an index has the order of bytes, by the key's own collation or beside it."""
    name = DIALECT.literal(key.name)
    ordered = PostgresDialect().in_key_order("", key, "text")
    own = f"(SELECT attcollation FROM pg_attribute WHERE attrelid = c.oid AND attname = {name})"
    sql = ORDERED_SQL.format(
        table=_literal(table),
        key=f"'(' || quote_ident({name}) || ')::text'"
        if "::" in ordered
        else f"quote_ident({name})",
        collation="'\"C\"'::regcollation" if ordered else own,
    )
    return bool(endpoint.query(sql)[0][0])


def _literal(table: TableRef) -> str:
    return DIALECT.literal(qualified(table))
