"""Versions of stored rows, and of the catalog entries by which they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.looking_ahead import answer
from tableferry.resources.errors import InputError
from tableferry.resources.postgres import catalog, names
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.tables import TableRef

KIND_SQL = """
SELECT c.relname::text, c.relkind::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relname IN ({names})
"""

# As sets: a new partition has the same columns, and its rows count by themselves. A column's number
# is never reused, so a column that was recreated differs. A partition's column is named with its
# partition if it has another number than the table's or a value for older rows: else it could pass
# for that of another partition. Nothing is looked up or printed by name, which the server would
# answer as of now, whatever the snapshot.
CATALOG_SQL = """
WITH RECURSIVE asked(name, columns) AS (
    VALUES {asked}
), tables(root, copied, whole, oid) AS (
    SELECT asked.name, asked.columns, c.oid, c.oid
    FROM asked JOIN pg_class c ON c.relname = asked.name
    JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = {schema}
    UNION
    SELECT tables.root, tables.copied, tables.whole, i.inhrelid
    FROM tables JOIN pg_inherits i ON i.inhparent = tables.oid
), attributes AS (
    SELECT tables.root, tables.whole, a.* FROM tables JOIN pg_attribute a ON a.attrelid = tables.oid
    WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attname = ANY (tables.copied)
), types(root, oid, part) AS (
    SELECT DISTINCT root, atttypid, false FROM attributes
    UNION
    SELECT types.root, more.oid, part OR t.typtype <> 'd'
    FROM types JOIN pg_type t ON t.oid = types.oid CROSS JOIN LATERAL (
        VALUES (t.typelem), (t.typbasetype),
            ((SELECT rngsubtype FROM pg_range WHERE t.oid IN (rngtypid, rngmultitypid)))
        UNION ALL
        SELECT p.atttypid FROM pg_attribute p
        WHERE t.typtype = 'c' AND p.attrelid = t.typrelid AND p.attnum > 0
    ) more(oid) WHERE more.oid <> 0
), readings(root, reading) AS (
    SELECT a.root, concat_ws(' ', 'column', quote_literal(a.attname), a.attnum, a.atttypid,
        a.atttypmod, a.attgenerated, quote_nullable(a.attmissingval::text),
        CASE WHEN a.attgenerated = 'v' THEN hashtextextended(d.adbin::text, 0) END,
        CASE WHEN a.attnum <> top.attnum OR a.attmissingval IS NOT NULL THEN a.attrelid END)
    FROM attributes a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN attributes top
        ON top.root = a.root AND top.attname = a.attname AND top.attrelid = a.whole
    UNION
    SELECT types.root, concat_ws(' ', 'label', e.enumtypid, e.oid, quote_literal(e.enumlabel))
    FROM types JOIN pg_enum e ON e.enumtypid = types.oid
    UNION
    SELECT types.root, concat_ws(' ', 'part', t.oid, p.attnum, quote_literal(p.attname), p.atttypid,
        p.attisdropped)
    FROM types JOIN pg_type t ON t.oid = types.oid AND t.typtype = 'c'
    JOIN pg_attribute p ON p.attrelid = t.typrelid AND p.attnum > 0
)
"""

READING_SQL = f"""{CATALOG_SQL}
SELECT root::text,
    hashtextextended(string_agg(reading, chr(10) ORDER BY reading COLLATE "C"), 0)::text
FROM readings GROUP BY root
"""

# A server that crashed, or whose files were restored, may give a transaction's number away twice,
# on the same timeline: the first discards its statistics, the second starts anew. Objects of the
# server's own have numbers below 16384; pg_am 2 is heap, whose rows alone have these versions.
# Values of other types than the server's own are written by casts to text (25) or, within arrays,
# to json (114), else by output functions. A cast without a function is the stored bytes themselves.
TIE_SQL = f"""{CATALOG_SQL}
, untied(root) AS (
    SELECT root FROM tables JOIN pg_class c ON c.oid = tables.oid
    WHERE c.oid < 16384 OR c.relkind NOT IN ('r', 'p', 'm') OR c.relam NOT IN (0, 2)
    UNION
    SELECT root FROM types JOIN pg_type t ON t.oid = types.oid
    LEFT JOIN pg_cast AS shown ON castsource = t.oid AND casttarget = 25 AND castmethod = 'b'
    WHERE t.typoutput::oid >= 16384 AND t.typtype <> 'd' AND (part OR shown.oid IS NULL)
        OR t.typoutput::oid < 16384 AND shown.oid >= 16384
        OR t.oid < 16384 AND (t.typname LIKE 'reg%' OR t.typname = 'aclitem')
    UNION
    SELECT root FROM types JOIN pg_cast ON castsource = types.oid
    WHERE pg_cast.oid >= 16384 AND casttarget IN (25, 114) AND castmethod = 'f'
)
SELECT name::text, concat_ws(' ',
    (SELECT oid FROM pg_database WHERE datname = current_database()),
    extract(epoch FROM pg_postmaster_start_time()),
    (SELECT extract(epoch FROM stats_reset) FROM pg_stat_bgwriter)
) FROM asked WHERE name NOT IN (SELECT root FROM untied)
"""


def row_version(endpoint: Endpoint, table: TableRef) -> list[tuple[str, str]]:
    """See `Source.row_version`. A row's version is its place and the transaction that wrote it.

    Raises:
        InputError: it is a view, whose rows have none.
    """
    if answer(endpoint, _kinds, table) not in ("r", "p", "m"):
        raise InputError(
            f"{table}: fingerprint row_version needs a table, and this is a view; use content"
        )
    # ctid is unique in a table, but not across partitions
    seed = "xmin::text::bigint + (tableoid::bigint << 32)"
    return [(f"hashtidextended(ctid, {seed})", DIALECT.exact_sum("{}"))]


def catalog_state(
    endpoint: Endpoint, table: TableRef, columns: Sequence[str], snapshot: str | None = None
) -> str:
    """Hash the catalog entries that change how unchanged rows are read.

    These are a recreated column, its value in rows older than it, the labels of an enum, the fields
    of a row type, and the expression of a virtual column.
    """
    return str(_about_columns(endpoint, READING_SQL, table, columns, snapshot))


def version_scope(
    endpoint: Endpoint, table: TableRef, columns: Sequence[str], snapshot: str | None = None
) -> str | None:
    """See `Source.version_scope`. None where values are printed by what is no part of the row.

    That is so of types that are written by a function of their own, and of the names of objects;
    rows of foreign tables, views and other storage than heap have no versions to go by.
    """
    return _about_columns(endpoint, TIE_SQL, table, columns, snapshot)


def _kinds(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, str]:
    kinds = {name: str(kind) for name, kind in endpoint.query(names.about_all(KIND_SQL, tables))}
    return {table: kinds[table.name] for table in tables if table.name in kinds}


@dataclass(frozen=True)
class _AboutColumns:
    """Asks about columns of tables of one schema: all of each table, but for some names."""

    sql: str
    without: frozenset[str]
    snapshot: str | None

    def __call__(self, endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, str]:
        all_columns = catalog.columns(endpoint, tables)
        copied = {
            table: [column.name for column in columns if column.name not in self.without]
            for table, columns in all_columns.items()
        }
        return _asked(endpoint, self.sql, copied, self.snapshot) if copied else {}


def _about_columns(
    endpoint: Endpoint, sql: str, table: TableRef, columns: Sequence[str], snapshot: str | None
) -> str | None:
    if endpoint.ahead is None:
        return _asked(endpoint, sql, {table: columns}, snapshot).get(table)
    without = frozenset(column.name for column in endpoint.columns(table)).difference(columns)
    return answer(endpoint, _AboutColumns(sql, without, snapshot), table)


def _asked(
    endpoint: Endpoint,
    sql: str,
    copied: Mapping[TableRef, Sequence[str]],
    snapshot: str | None,
) -> dict[TableRef, str]:
    """Ask about these columns of tables of one schema."""
    literal, tables = DIALECT.literal, {table.name: table for table in copied}
    asked = ", ".join(
        f"({literal(table.name)}::name, ARRAY[{', '.join(map(literal, columns))}]::name[])"
        for table, columns in copied.items()
    )
    query = sql.format(asked=asked, schema=literal(next(iter(copied)).schema))
    rows = endpoint.query(query, snapshot=snapshot)
    return {tables[name]: str(value) for name, value in rows if value is not None}
