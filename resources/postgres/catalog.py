"""The tables of a PostgreSQL server, their sizes and their indexes, from its catalog."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tableferry.resources.contract.catalog import (
    Listed,
    Structure,
    TableSize,
    Withheld,
    structure_of,
)
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.looking_ahead import groups
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.postgres.errors import rows_hidden
from tableferry.resources.postgres.names import about, about_all
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

COLUMNS_SQL = """
WITH RECURSIVE tables AS (
    SELECT c.oid, c.relname
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = {schema} AND c.relname IN ({names})
        AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
), family AS (  -- a table shows the rows of those that inherit from it
    SELECT oid AS root, oid AS member FROM tables
    UNION SELECT f.root, h.inhrelid
    FROM family f JOIN pg_catalog.pg_inherits h ON h.inhparent = f.member
), attributes AS (
    -- NOT NULL is only declared on a foreign table, may not be validated yet (18), or not be
    -- inherited; a domain that refuses NULL still has it, in outer joins (CREATE DOMAIN, Notes)
    SELECT a.attrelid, a.attnum, a.attname, a.attnotnull AND NOT EXISTS (
            SELECT FROM family f JOIN pg_catalog.pg_class c ON c.oid = f.member
            JOIN pg_catalog.pg_attribute m ON m.attrelid = f.member AND m.attname = a.attname
            WHERE f.root = a.attrelid AND (NOT m.attnotnull OR c.relkind = 'f' OR EXISTS (
                SELECT FROM pg_catalog.pg_constraint k WHERE k.conrelid = f.member
                AND k.contype = 'n' AND k.conkey = ARRAY[m.attnum] AND NOT k.convalidated))
        ) AS not_null, a.attgenerated, a.attidentity,
        a.atttypid AS typid, a.atttypmod AS typmod, a.attcollation AS collated
    FROM pg_catalog.pg_attribute a JOIN tables ON a.attrelid = tables.oid
    WHERE a.attnum > 0 AND NOT a.attisdropped
    UNION ALL  -- from a domain to its base type
    SELECT a.attrelid, a.attnum, a.attname, a.not_null, a.attgenerated,
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
     WHERE l.oid = a.collated),
    tables.relname::text
FROM attributes a JOIN tables ON tables.oid = a.attrelid
JOIN pg_catalog.pg_type t ON t.oid = a.typid AND t.typtype <> 'd'
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
ORDER BY a.attrelid, a.attnum
"""

DESCRIBED_SQL = """
SELECT CASE
    WHEN t.typtype = 'e' THEN 'enum'
    WHEN t.typtype = 'c' THEN 'composite'
    WHEN e.typtype = 'e' THEN 'enum[]'
    WHEN e.typtype = 'c' THEN 'composite[]'
    WHEN n.nspname <> 'pg_catalog' THEN regexp_replace(format_type(t.oid, d.mod), '^.*\\.', '')
    ELSE format_type(t.oid, d.mod)
END
FROM (VALUES {listed}) AS d(at, typ, mod)
JOIN pg_catalog.pg_type o ON o.oid = d.typ
JOIN pg_catalog.pg_type t ON t.oid = CASE o.typtype WHEN 'd' THEN o.typbasetype ELSE o.oid END
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
ORDER BY d.at
"""
"""The names of a result's types, by their OIDs and modifiers."""

INDEXES_SQL = """
SELECT t.relname::text, x.relname::text, i.indisunique AND i.indpred IS NULL, i.indisprimary,
    array(SELECT pg_get_indexdef(i.indexrelid, n, true) FROM generate_series(1, i.indnkeyatts) n)
FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
JOIN pg_index i ON i.indrelid = t.oid JOIN pg_class x ON x.oid = i.indexrelid
WHERE n.nspname = {schema} AND t.relname IN ({names}) AND i.indisvalid
"""

DEFAULTS_SQL = """
SELECT t.relname::text, a.attname::text, pg_get_expr(d.adbin, d.adrelid)
FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
JOIN pg_attribute a ON a.attrelid = t.oid AND a.attgenerated = '' AND NOT a.attisdropped
JOIN pg_attrdef d ON d.adrelid = t.oid AND d.adnum = a.attnum
WHERE n.nspname = {schema} AND t.relname IN ({names})
"""

UNREADABLE = """CASE WHEN NOT has_table_privilege(c.oid, 'SELECT') THEN array(
        SELECT a.attname::text FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT')
        ORDER BY a.attnum) END"""
"""The columns that the login may not read, if it may not read the table as a whole."""

TABLES_SQL = f"""
SELECT n.nspname, c.relname, c.relkind IN ('v', 'm'),
    has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT'),
    CASE WHEN row_security_active(c.oid) THEN current_user::text END,
    {UNREADABLE}
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
    AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
ORDER BY 1, 2
"""

SIZES_SQL = """
SELECT r.relname::text, coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint,
    sum(pg_table_size(c.oid))::bigint, bool_or(c.reltuples < 0 AND pg_relation_size(c.oid) > 0)
FROM (
    SELECT t.oid AS root, t.relname FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
    WHERE n.nspname = {schema} AND t.relname IN ({names})
) r
LEFT JOIN LATERAL (SELECT relid FROM pg_partition_tree(r.root) UNION SELECT r.root) parts ON true
LEFT JOIN pg_class c ON c.oid = parts.relid AND c.relkind IN ('r', 'm')
GROUP BY r.root, r.relname
"""

LEADING_SQL = """
SELECT t.relname::text, a.attname
FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
JOIN pg_index i ON i.indrelid = t.oid
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE n.nspname = {schema} AND t.relname IN ({names}) AND i.indisvalid AND i.indpred IS NULL
ORDER BY i.indrelid, i.indisprimary DESC, i.indisunique DESC, a.attnum
"""

WITHHELD_SQL = (
    "SELECT c.relname::text, CASE WHEN row_security_active(c.oid) THEN current_user::text END, "
    f"{UNREADABLE} FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = {schema} AND c.relname IN ({names}) "
    "AND (row_security_active(c.oid) OR NOT has_table_privilege(c.oid, 'SELECT'))"
)

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

SAMPLED_AT_ONCE = 100
"""How many tables without statistics one query samples."""

SAMPLE_BYTES = 32 << 20
"""How much of a table without statistics is read to estimate its rows."""


def listed(endpoint: Endpoint, connection: str) -> list[Listed]:
    """See `Source.tables`. Partitions are left out."""
    return [
        Listed(
            TableRef(endpoint.system_name, schema, name, connection),
            view,
            readable,
            rows_hidden(user) if user else None,
            None if unreadable is None else tuple(unreadable),
        )
        for schema, name, view, readable, user, unreadable in endpoint.query(TABLES_SQL)
    ]


def columns(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, list[Column]]:
    """Return the columns of tables of one schema, without the tables that have none."""
    by_name: dict[str, list[Column]] = defaultdict(list)
    for *column, name in endpoint.query(about_all(COLUMNS_SQL, tables)):
        by_name[name].append(Column(*column))
    return {table: by_name[table.name] for table in tables if table.name in by_name}


def structures(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, Structure]:
    """Return the keys, indexes and defaults of tables of one schema."""
    indexes: dict[str, dict[str, tuple[tuple[str, ...], bool, bool]]] = defaultdict(dict)
    for table, name, unique, primary, columns in endpoint.query(about_all(INDEXES_SQL, tables)):
        plain = tuple(column.strip('"').replace('""', '"') for column in columns)
        indexes[table][name] = (plain, unique, primary)
    defaults: dict[str, dict[str, str]] = defaultdict(dict)
    for table, name, default in endpoint.query(about_all(DEFAULTS_SQL, tables)):
        defaults[table][name] = default
    return {table: structure_of(indexes[table.name], defaults[table.name]) for table in tables}


def sizes(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, TableSize]:
    """Return the sizes of tables of one schema, without views and foreign tables."""
    found: dict[TableRef, TableSize] = {}
    sampled: dict[TableRef, tuple[int, float]] = {}
    for table, rows, stored, unknown in _stored(endpoint, tables):
        found[table] = TableSize(rows, stored)
        if unknown:
            percent = min(100.0, 100 * SAMPLE_BYTES / max(stored, 1))
            sampled[table] = (stored, percent)
    unknown_sizes = list(sampled.items())
    for start in range(0, len(unknown_sizes), SAMPLED_AT_ONCE):
        batch = unknown_sizes[start : start + SAMPLED_AT_ONCE]
        counts = endpoint.query(
            " UNION ALL ".join(
                f"SELECT {number}, count(*) FROM {qualified(table)} "
                f"TABLESAMPLE SYSTEM ({percent:.6f}) REPEATABLE (0)"
                for number, (table, (_, percent)) in enumerate(batch)
            )
        )
        for number, count in counts:
            table, (stored, percent) = batch[number]
            found[table] = TableSize(round(count * 100 / percent), stored)
    return found


def stored_sizes(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, TableSize]:
    """See `Source.sizes`. The rows of a table without statistics are not known, its bytes are."""
    return {
        table: TableSize(rows, stored)
        for here in groups(tables)
        for table, rows, stored, _ in _stored(endpoint, here)
    }


def _stored(
    endpoint: Endpoint, tables: Sequence[TableRef]
) -> Iterator[tuple[TableRef, int, int, bool]]:
    """Yield each table of a schema with its rows and bytes, and whether it has no statistics.

    Views and foreign tables are left out.
    """
    by_name = {table.name: table for table in tables}
    for name, rows, stored, unknown in endpoint.query(about_all(SIZES_SQL, tables)):
        if stored is not None:
            yield by_name[name], int(rows), int(stored), bool(unknown)


def leading(endpoint: Endpoint, table: TableRef) -> tuple[str, ...]:
    """See `Source.leading`. The primary key's column comes first."""
    return leadings(endpoint, [table]).get(table, ())


def leadings(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, tuple[str, ...]]:
    """Return the leading columns of tables of one schema, without tables that have no index."""
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for table, column in endpoint.query(about_all(LEADING_SQL, tables)):
        names[table][column] = None
    return {table: tuple(names[table.name]) for table in tables if table.name in names}


def unique_by(endpoint: Endpoint, table: TableRef, columns: Sequence[str]) -> str | None:
    """The table's primary key if it consists of some of the columns."""
    rows = endpoint.query(
        about(UNIQUE_SQL, table, columns=", ".join(map(DIALECT.literal, columns)))
    )
    return str(rows[0][0]) if rows else None


def withheld(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, Withheld]:
    """See `Inspection.withheld`. Policies below a view are found when the view is read."""
    rows = endpoint.query(about_all(WITHHELD_SQL, tables))
    by_name = {
        name: (rows_hidden(user) if user else None, columns or ()) for name, user, columns in rows
    }
    return {table: by_name[table.name] for table in tables if table.name in by_name}


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
