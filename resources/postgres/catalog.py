"""The tables of a PostgreSQL server, their sizes and their indexes, from its catalog."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.contract.catalog import Listed, TableSize
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.postgres.errors import rows_hidden
from tableferry.resources.postgres.names import about
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

COLUMNS_SQL = """
WITH RECURSIVE tables AS (
    SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = {schema} AND c.relname = {name} AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
), attributes AS (
    SELECT a.attrelid, a.attnum, a.attname, a.attnotnull AS not_null, a.attgenerated, a.attidentity,
        a.atttypid AS typid, a.atttypmod AS typmod, a.attcollation AS collated
    FROM pg_catalog.pg_attribute a JOIN tables ON a.attrelid = tables.oid
    WHERE a.attnum > 0 AND NOT a.attisdropped
    UNION ALL  -- from a domain to its base type
    SELECT a.attrelid, a.attnum, a.attname, a.not_null OR t.typnotnull, a.attgenerated,
        a.attidentity, t.typbasetype, t.typtypmod, a.collated
    FROM attributes a JOIN pg_catalog.pg_type t ON t.oid = a.typid WHERE t.typtype = 'd'
)
SELECT a.attname,
    CASE
        WHEN t.typtype = 'e' THEN 'enum'
        WHEN t.typtype = 'c' THEN 'composite'
        WHEN e.typtype = 'e' THEN 'enum[]'
        WHEN e.typtype = 'c' THEN 'composite[]'
        -- whatever schema its extension is in
        WHEN n.nspname <> 'pg_catalog'
            THEN regexp_replace(format_type(a.typid, a.typmod), '^.*\\.', '')
        ELSE format_type(a.typid, a.typmod)
    END,
    NOT a.not_null, a.attgenerated <> '', a.attidentity <> '',
    (SELECT array_position(i.indkey::int2[], a.attnum) + 1 - array_lower(i.indkey::int2[], 1)
     FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
     -- a primary key does not cover tables that inherit from its own
     WHERE i.indrelid = a.attrelid AND i.indisprimary AND (c.relkind = 'p' OR NOT EXISTS (
        SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid))),
    -- with its schema, as our search path is pg_catalog
    CASE WHEN n.nspname <> 'pg_catalog' THEN format_type(a.typid, a.typmod) END,
    -- the database's default is resolved only if it is the order of bytes
    (SELECT CASE WHEN l.collname IN ('C', 'POSIX') THEN 'C' WHEN l.collname <> 'default'
        THEN l.collname WHEN coalesce(d.d->>'datlocprovider', 'c') = 'c'
        AND d.d->>'datcollate' IN ('C', 'POSIX') THEN 'C' ELSE 'default' END
     FROM pg_catalog.pg_collation l,
        (SELECT to_jsonb(b) AS d FROM pg_catalog.pg_database b
         WHERE b.datname = current_database()) d
     WHERE l.oid = a.collated)
FROM attributes a
JOIN pg_catalog.pg_type t ON t.oid = a.typid AND t.typtype <> 'd'
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
ORDER BY a.attnum
"""

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

# a primary key does not cover tables that inherit from its own
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
"""How much of a table without statistics is read to estimate its rows."""


def listed(endpoint: Endpoint, connection: str) -> list[Listed]:
    """See `Source.tables`. Partitions are left out."""
    return [
        Listed(TableRef(endpoint.system_name, schema, name, connection), view, readable)
        for schema, name, view, readable in endpoint.query(TABLES_SQL)
    ]


def size(endpoint: Endpoint, table: TableRef) -> TableSize | None:
    """The rows by ANALYZE or a sample, and the bytes; None for a view or foreign table."""
    rows, stored, unknown = endpoint.query(about(SIZE_SQL, table))[0]
    if stored is None:
        return None
    if unknown:
        percent = min(100.0, 100 * SAMPLE_BYTES / max(stored, 1))
        sample = f"TABLESAMPLE SYSTEM ({percent:.6f}) REPEATABLE (0)"
        count = endpoint.query(f"SELECT count(*) FROM {qualified(table)} {sample}")[0][0]
        rows = round(count * 100 / percent)
    return TableSize(int(rows), int(stored))


def leading(endpoint: Endpoint, table: TableRef) -> tuple[str, ...]:
    """See `Source.leading`. The primary key's column comes first."""
    rows = endpoint.query(about(LEADING_SQL, table))
    return tuple(dict.fromkeys(name for (name,) in rows))


def unique_by(endpoint: Endpoint, table: TableRef, columns: Sequence[str]) -> str | None:
    """The table's primary key if it consists of some of the columns."""
    rows = endpoint.query(
        about(UNIQUE_SQL, table, columns=", ".join(map(DIALECT.literal, columns)))
    )
    return str(rows[0][0]) if rows else None


def hidden(endpoint: Endpoint, table: TableRef) -> str | None:
    """See `Inspection.hidden`. Policies of tables below a view are found when the view is read."""
    rows = endpoint.query(about(HIDDEN_SQL, table))
    return rows_hidden(str(rows[0][0])) if rows else None


def children(endpoint: Endpoint, table: TableRef) -> list[str]:
    """The tables that inherit from a table, and are read with it; partitions are left out."""
    return [name for (name,) in endpoint.query(about(CHILDREN_SQL, table))]


def serves_order(endpoint: Endpoint, table: TableRef, key: Column) -> bool:
    """See `Source.serves_order`. The index has the order of bytes, as a column or an expression."""
    name = DIALECT.literal(key.name)
    ordered = DIALECT.in_key_order("", key, "text")
    expression = f"quote_ident({name})"
    if "::" in ordered:
        expression = f"'(' || {expression} || ')::text'"
    collation = "'\"C\"'::regcollation"
    if not ordered:
        collation = (
            f"(SELECT attcollation FROM pg_attribute WHERE attrelid = c.oid AND attname = {name})"
        )
    sql = about(ORDERED_SQL, table, key=expression, collation=collation)
    return bool(endpoint.query(sql)[0][0])
