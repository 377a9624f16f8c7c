"""The place where PostgreSQL stores a row, as the key of a table that has none.

A row's ctid is the number of its block, and its number in the block. Targets store both as one
integer, `block * 10000 + number`: the largest block, of 32 kB, has at most 8,192 numbers
(MaxOffsetNumber in storage/off.h). So 1250003 is the row at (125,3), and stays readable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import Place
from tableferry.resources.errors import NoBlocks
from tableferry.resources.postgres.names import about_all
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

CTID = "ctid"
"""Name of the system column and of its type: `tid` is what users declare."""

PER_BLOCK = 10_000

PLACE = Place(Column(CTID, CTID, nullable=False, primary_key=1), "_ctid", PER_BLOCK)

_BYTES = [f"get_byte(tidsend({{}}), {at})" for at in range(6)]
NUMBER = (
    f"((({_BYTES[0]}::bigint << 24) + ({_BYTES[1]} << 16) + ({_BYTES[2]} << 8) + {_BYTES[3]})"
    f" * {PER_BLOCK} + ({_BYTES[4]} << 8) + {_BYTES[5]})"
)
"""The number of a row's place, from its binary form (tidsend in utils/adt/tid.c): parsing its text
costs three times as much."""

HEAP_SQL = """
SELECT c.relkind::text, coalesce(a.amname, ''),
    EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid),
    CASE WHEN c.relkind = 'r' THEN pg_catalog.pg_relation_size(c.oid)
        / current_setting('block_size')::bigint END,
    c.relname::text, pg_catalog.has_table_privilege(c.oid, 'SELECT')
FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_am a ON a.oid = c.relam
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relname IN ({names})
"""

KINDS = {
    "p": "a partitioned table, each of whose partitions counts blocks of its own; declare a "
    "transfer for each of them",
    "v": "a view",
    "m": "a materialized view, which is rewritten as a whole",
    "f": "a foreign table",
}


def bound(number: int) -> str:
    """The tid to compare with, by the number of a place."""
    return f"'({number // PER_BLOCK},{number % PER_BLOCK})'::tid"


def blocks(endpoint: Endpoint, table: TableRef) -> int:
    """The number of blocks that a table has now.

    Raises:
        NoBlocks: the table cannot be cut by blocks.
    """
    ((_, size, problem),) = _heaps(endpoint, [table])
    if problem is not None:
        raise NoBlocks(str(table), problem)
    return int(size or 0)


def all_blocks(
    endpoint: Endpoint, tables: Sequence[TableRef]
) -> dict[TableRef, tuple[int | None, str]]:
    """Return the blocks of tables of one schema, or None and what a table is that has none."""
    by_name = {table.name: table for table in tables}
    answers: dict[TableRef, tuple[int | None, str]] = {}
    for name, size, problem in _heaps(endpoint, tables):
        answers[by_name[name]] = (None, problem) if problem else (int(size or 0), "")
    return answers


def _heaps(
    endpoint: Endpoint, tables: Sequence[TableRef]
) -> Iterator[tuple[str, int | None, str | None]]:
    """Yield name, blocks, and why it cannot be cut by them, of each table."""
    for kind, method, parent, size, name, granted in endpoint.query(about_all(HEAP_SQL, tables)):
        problem = KINDS.get(kind)
        if problem is None and parent:
            problem = "the parent of other tables, each of which counts blocks of its own"
        if problem is None and method != "heap":
            problem = f"stored by {method}, not in a heap"
        if problem is None and not granted:
            problem = "one that this login may not SELECT from as a whole"
        yield name, size, problem
