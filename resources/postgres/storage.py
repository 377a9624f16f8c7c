"""How the tables below a query are stored, which must not change while a snapshot is read.

A snapshot shows the rows committed before it was taken, but in the files, and under the names, that
a table has when it is read. TRUNCATE, a rewriting ALTER TABLE, and renaming or dropping tables
affect snapshots that were taken before (PostgreSQL manual, 13.6). So the catalog's entries as of
the snapshot are compared with those of now.

Tables of Citus and TimescaleDB keep their rows elsewhere. Both are asked by what they document, and
only where they are there: the first query is one of PostgreSQL's own catalog.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.digest.same_rows import Ask
from tableferry.resources.postgres.names import about
from tableferry.resources.tables import TableRef


@dataclass(frozen=True)
class StoredRelation:
    """The catalog's entries for a relation, as of a snapshot or now."""

    stored: str
    """Where its rows are."""
    written: str
    """The transactions that wrote the entries."""
    privileges: str
    """Its privileges, which are in the same entries."""

    def is_as(self, other: StoredRelation) -> bool:
        """Whether nothing was altered between the two.

        A GRANT changes no row, and many databases run it for all tables after each deployment.
        """
        return self.stored == other.stored and (
            self.written == other.written or self.privileges != other.privileges
        )


StoredRelations = Mapping[str, StoredRelation]
"""Stored relations by name."""

BELOW = """
WITH RECURSIVE below(oid) AS (
    SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = {schema} AND c.relname = {name}
    UNION
    SELECT more.oid FROM below CROSS JOIN LATERAL (
        SELECT i.inhrelid AS oid FROM pg_inherits i WHERE i.inhparent = below.oid
        UNION ALL
        SELECT d.refobjid FROM pg_class v
        JOIN pg_rewrite w ON w.ev_class = v.oid
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
        WHERE v.oid = below.oid AND v.relkind = 'v'
            AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> v.oid
    ) more
)
"""
"""The table, its partitions and children, and the tables below a view."""

STORAGE_SQL = f"""
{BELOW}
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname),
    concat_ws(' ', c.oid, c.relfilenode),
    concat_ws(' ', c.xmin, n.xmin, attributes.written, rules.written),
    concat_ws(' ', c.relacl, n.nspacl, attributes.privileges, rules.privileges),
    to_regclass('timescaledb_information.chunks') IS NOT NULL
FROM below
-- one by one; otherwise all of a large catalog would be read
CROSS JOIN LATERAL (SELECT p.xmin, p.* FROM pg_class p WHERE p.oid = below.oid OFFSET 0) c
JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
    SELECT hashtextextended(string_agg(concat_ws(' ', a.attnum, a.xmin, labels.written), ','
            ORDER BY a.attnum), 0) AS written,
        string_agg(a.attacl::text, ' ' ORDER BY a.attnum) AS privileges
    FROM pg_attribute a
    LEFT JOIN LATERAL (
        SELECT string_agg(e.xmin::text, ' ' ORDER BY e.oid) AS written
        FROM pg_type t
        CROSS JOIN LATERAL (VALUES (t.oid), (t.typelem), (t.typbasetype)) named(oid)
        JOIN pg_enum e ON e.enumtypid = named.oid
        WHERE t.oid = a.atttypid
    ) labels ON true
    -- a partition has the columns of its parent
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT c.relispartition
) attributes
CROSS JOIN LATERAL (
    SELECT string_agg(concat_ws(' ', w.xmin, p.oid, p.xmin), ',' ORDER BY w.oid, p.oid) AS written,
        string_agg(p.proacl::text, ' ' ORDER BY w.oid, p.oid) AS privileges
    FROM pg_rewrite w
    LEFT JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
        AND d.refclassid = 'pg_proc'::regclass
    LEFT JOIN pg_proc p ON p.oid = d.refobjid
    WHERE w.ev_class = c.oid AND c.relkind = 'v'
) rules
"""
"""The catalog's entries for these. A statement that changes an entry gives it another `xmin`, even
if a later one changes it back. Nothing is looked up by name, which the server would answer as of
now, whatever the snapshot."""

CHUNKS_SQL = f"""
{BELOW}
SELECT quote_ident(k.chunk_schema) || '.' || quote_ident(k.chunk_name), k.is_compressed::text
FROM below JOIN pg_class c ON c.oid = below.oid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN timescaledb_information.chunks k ON k.chunk_schema = n.nspname AND k.chunk_name = c.relname
"""
"""TimescaleDB's chunks. To decompress one drops the table that has its rows, which is not below."""

FOREIGN_SQL = f"""
{BELOW}
SELECT format('%I.%I', n.nspname, c.relname)
FROM below JOIN pg_class c ON c.oid = below.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'f' ORDER BY 1
"""


def foreign_tables(ask: Ask, tables: Sequence[TableRef]) -> dict[TableRef, list[str]]:
    """Return the foreign tables that tables or views consist of, without tables that have none.

    Their rows are read in another database, in the state that it has at that moment.
    """
    if not ask("SELECT 1 FROM pg_foreign_table LIMIT 1"):
        return {}
    found = {table: [name for (name,) in ask(about(FOREIGN_SQL, table))] for table in tables}
    return {table: names for table, names in found.items() if names}


def storage(ask: Ask, table: TableRef) -> StoredRelations:
    """The storage of a table and what it consists of; empty if it does not exist.

    Args:
        ask: runs a query, under a snapshot or outside of any.
        table: the table or view that is read.
    """
    rows = ask(about(STORAGE_SQL, table))
    stored = {name: StoredRelation(*entries) for name, *entries, _ in rows}
    if any(timescale for *_, timescale in rows):
        for name, compressed in ask(about(CHUNKS_SQL, table)):
            stored[f"the chunk {name}"] = StoredRelation(compressed, "", "")
    return stored


def moved(then: StoredRelations, now: StoredRelations) -> str:
    """The first relations that differ, for a message; empty if none do."""
    names = [
        name
        for name in sorted({*then, *now})
        if name not in then or name not in now or not now[name].is_as(then[name])
    ]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


PRESENT_SQL = """
SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL,
    to_regclass('timescaledb_information.hypertables') IS NOT NULL
"""

# those of the coordinator alone have neither; see the view `citus_tables`
DISTRIBUTED_SQL = f"""
{BELOW}
SELECT DISTINCT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM below JOIN pg_catalog.pg_dist_partition d ON d.logicalrelid = below.oid
JOIN pg_class c ON c.oid = below.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE d.partkey IS NOT NULL OR d.repmodel = 't' OR d.colocationid <> 0
ORDER BY 1
"""

TIMESCALE_SQL = """
SELECT 'hypertable' FROM timescaledb_information.hypertables
WHERE hypertable_schema = {schema} AND hypertable_name = {name}
UNION ALL
SELECT 'continuous aggregate' FROM timescaledb_information.continuous_aggregates
WHERE view_schema = {schema} AND view_name = {name}
"""


def distributed(endpoint: Endpoint, table: TableRef) -> str | None:
    """Say why a table of Citus, or a view of one, is refused; None for all others.

    https://github.com/citusdata/citus/pull/6489
    """
    citus, _ = _present(endpoint)
    names = [name for (name,) in endpoint.query(about(DISTRIBUTED_SQL, table))] if citus else []
    if not names:
        return None
    return (
        f"{', '.join(names)} is distributed by Citus: a snapshot of the coordinator is none of its "
        "workers, so that a range would be read, and seen by readers, in states of different "
        "moments; move tables of the workers, or a copy in a local table"
    )


def of_timescale(endpoint: Endpoint, table: TableRef) -> str | None:
    """Say what a table of TimescaleDB is, and what follows; None if it is none."""
    _, timescale = _present(endpoint)
    rows = endpoint.query(about(TIMESCALE_SQL, table)) if timescale else []
    if not rows:
        return None
    if rows[0][0] == "hypertable":
        return (
            "a hypertable of TimescaleDB, which is untried: its chunks are moved with it, and the "
            "target gets no primary key. Rows of compressed chunks have no versions, so that a "
            "changed range is found by its content; a chunk that is compressed or decompressed "
            "during a run makes it read anew"
        )
    return (
        "a continuous aggregate of TimescaleDB, which is untried: what a query of it shows is "
        "moved, and a refresh may change that"
    )


def _present(endpoint: Endpoint) -> tuple[bool, bool]:
    """Whether there are Citus and TimescaleDB."""

    def ask() -> tuple[bool, bool]:
        ((citus, timescale),) = endpoint.query(PRESENT_SQL)
        return bool(citus), bool(timescale)

    return endpoint.settings().facts.known("extensions", ask)
