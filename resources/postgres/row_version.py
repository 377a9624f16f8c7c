"""Versions of stored rows, and of the catalog entries by which they are read."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import InputError
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.postgres.names import about
from tableferry.resources.tables import TableRef

KIND_SQL = """
SELECT c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relname = {name}
"""

# As sets: a new partition has the same columns, and its rows count by themselves. A column's number
# is never reused, so a column that was recreated differs. Nothing is looked up or printed by name,
# which the server would answer as of now, whatever the snapshot.
READING_SQL = """
WITH RECURSIVE tables(oid) AS (
    SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = {schema} AND c.relname = {name}
    UNION
    SELECT i.inhrelid FROM tables JOIN pg_inherits i ON i.inhparent = tables.oid
), attributes AS (
    SELECT a.* FROM tables JOIN pg_attribute a ON a.attrelid = tables.oid
    WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attname = ANY (ARRAY[{columns}]::name[])
), types(oid) AS (
    SELECT DISTINCT atttypid FROM attributes
    UNION
    SELECT more.oid FROM types JOIN pg_type t ON t.oid = types.oid CROSS JOIN LATERAL (
        VALUES (t.typelem), (t.typbasetype),
            ((SELECT rngsubtype FROM pg_range WHERE t.oid IN (rngtypid, rngmultitypid)))
        UNION ALL
        SELECT p.atttypid FROM pg_attribute p
        WHERE t.typtype = 'c' AND p.attrelid = t.typrelid AND p.attnum > 0
    ) more(oid) WHERE more.oid <> 0
), readings(reading) AS (
    SELECT concat_ws(' ', 'column', quote_literal(a.attname), a.attnum, a.atttypid, a.atttypmod,
        a.attgenerated, quote_nullable(a.attmissingval::text),
        CASE WHEN a.attgenerated = 'v' THEN hashtextextended(d.adbin::text, 0) END)
    FROM attributes a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    UNION
    SELECT concat_ws(' ', 'label', e.enumtypid, e.oid, quote_literal(e.enumlabel))
    FROM types JOIN pg_enum e ON e.enumtypid = types.oid
    UNION
    SELECT concat_ws(' ', 'part', t.oid, p.attnum, quote_literal(p.attname), p.atttypid,
        p.attisdropped)
    FROM types JOIN pg_type t ON t.oid = types.oid AND t.typtype = 'c'
    JOIN pg_attribute p ON p.attrelid = t.typrelid AND p.attnum > 0
)
SELECT hashtextextended(string_agg(reading, chr(10) ORDER BY reading COLLATE "C"), 0)::text
FROM readings
"""


def row_version(endpoint: Endpoint, table: TableRef) -> list[tuple[str, str]]:
    """See `Source.row_version`. A row's version is its place and the transaction that wrote it.

    Raises:
        InputError: it is a view, whose rows have none.
    """
    if endpoint.query(about(KIND_SQL, table))[0][0] not in ("r", "p", "m"):
        raise InputError(
            f"{table}: fingerprint row_version needs a table, and this is a view; use content"
        )
    # ctid is unique in a table, but not across partitions
    seed = "xmin::text::bigint + (tableoid::bigint << 32)"
    return [(f"hashtidextended(ctid, {seed})", DIALECT.exact_sum("{}"))]


def reading(
    endpoint: Endpoint, table: TableRef, columns: Sequence[str], snapshot: str | None = None
) -> str:
    """Hash the catalog entries that change how unchanged rows are read.

    These are a recreated column, its value in rows older than it, the labels of an enum, the fields
    of a row type, and the expression of a virtual column.
    """
    sql = about(READING_SQL, table, columns=", ".join(map(DIALECT.literal, columns)))
    return str(endpoint.query(sql, snapshot=snapshot)[0][0])
