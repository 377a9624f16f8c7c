"""The query for the columns of a table."""

from __future__ import annotations

COLUMNS_SQL = """
WITH RECURSIVE tables AS (
    SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
), attributes AS (
    SELECT a.attrelid, a.attnum, a.attname, a.attnotnull AS not_null, a.attgenerated, a.attidentity,
        a.atttypid AS typid, a.atttypmod AS typmod, a.attcollation AS collated
    FROM pg_catalog.pg_attribute a JOIN tables ON a.attrelid = tables.oid
    WHERE a.attnum > 0 AND NOT a.attisdropped
    UNION ALL  -- one step from a domain to what it is based on
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
        -- citext is citext, in whichever schema the extension was put
        WHEN n.nspname <> 'pg_catalog'
            THEN regexp_replace(format_type(a.typid, a.typmod), '^.*\\.', '')
        ELSE format_type(a.typid, a.typmod)
    END,
    NOT a.not_null, a.attgenerated <> '', a.attidentity <> '',
    (SELECT array_position(i.indkey::int2[], a.attnum) + 1 - array_lower(i.indkey::int2[], 1)
     FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
     -- one does not hold for the rows of tables that inherit from its own
     WHERE i.indrelid = a.attrelid AND i.indisprimary AND (c.relkind = 'p' OR NOT EXISTS (
        SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid))),
    -- with its schema, as no session of ours looks into any but pg_catalog
    CASE WHEN n.nspname <> 'pg_catalog' THEN format_type(a.typid, a.typmod) END,
    -- the database's own is resolved only where it is the order of bytes
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
