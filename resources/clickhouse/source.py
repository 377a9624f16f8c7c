"""How rows leave ClickHouse: by ArrowStream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import cast

from tableferry.resources.clickhouse.cluster import SHARED, replicas_of
from tableferry.resources.clickhouse.dialect import DIALECT, literal
from tableferry.resources.clickhouse.errors import NO_FINAL
from tableferry.resources.clickhouse.policies import withheld_of_all
from tableferry.resources.clickhouse.server import ClickHouseServer, among
from tableferry.resources.clickhouse.types import split_type
from tableferry.resources.contract.catalog import (
    BUCKETS,
    Catalogued,
    Listed,
    TableSize,
)
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.looking_ahead import groups
from tableferry.resources.contract.source import Source
from tableferry.resources.contract.table_sql import alias_prefix, qualified
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.keys.range import KeyKind
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

SAMPLE_ROWS = 1_000_000
"""Approximate number of keys that are sorted for a larger table."""


SHARD = "toString(_shard_num)"
"""The number of a row's shard in `system.clusters`, which every Distributed table tells."""

NAMES = re.compile(r"\w+")

HASHES_SQL = (
    "(SELECT (groupArray(name), groupArray(sipHash64(hash_of_all_files))) FROM system.parts "
    "WHERE database = {schema} AND table = {table} AND active)"
)

# Computed columns, and defaults of columns that a part does not have yet, may differ at each read;
# unfinished mutations and patch parts change the rows of other parts when they are read; another
# replica than that which is asked about the parts may send the rows.
TIE_SQL = """
SELECT t.create_table_query, version(), toString(serverUUID()), hostName()
FROM system.tables AS t
WHERE t.database = {schema} AND t.name = {table}
    AND endsWith(t.engine, 'MergeTree') AND NOT startsWith(t.engine, 'Shared')
    AND (NOT startsWith(t.engine, 'Replicated') OR (
        SELECT max(total_replicas) FROM system.replicas
        WHERE database = {schema} AND table = {table}) = 1)
    AND (SELECT count() FROM system.parts WHERE database = {schema} AND table = {table} AND active
        AND (startsWith(name, 'patch-') OR hash_of_all_files = '')) = 0
    AND (SELECT count() FROM system.mutations
        WHERE database = {schema} AND table = {table} AND NOT is_done) = 0
    AND (SELECT count() FROM system.columns WHERE database = {schema} AND table = {table}
        AND name IN ({columns}) AND default_kind IN ('ALIAS', 'EPHEMERAL')) = 0
    AND (SELECT count() FROM system.columns WHERE database = {schema} AND table = {table}
            AND name IN ({columns}) AND default_kind != '')
        * (SELECT count() FROM system.parts
            WHERE database = {schema} AND table = {table} AND active)
        = (SELECT count() FROM system.parts_columns
            WHERE database = {schema} AND table = {table} AND active AND column IN (
                SELECT name FROM system.columns WHERE database = {schema} AND table = {table}
                    AND name IN ({columns}) AND default_kind != ''))
"""


def row_version(endpoint: Endpoint, table: TableRef) -> list[tuple[str, str]]:
    """See `Source.row_version`. It is made of the hash of a row's part, and its place in the part.

    The files of a part never change; a merge or a mutation writes a new part. So rows have their
    values as long as they are at the same places of parts with the same hash, whichever table or
    server these are in, if nothing changes the values when they are read. A part that came after
    the hashes were read is like no other.
    """
    hashes = HASHES_SQL.format(schema=literal(table.schema), table=literal(table.name))
    part = f"transform(_part, {hashes}.1, {hashes}.2, toUInt64(0))"
    place = f"if({part} = 0, rand64(), cityHash64({part}, _part_offset))"
    return [(f"reinterpretAsInt64({place})", DIALECT.exact_sum("{}"))]


def version_scope(
    endpoint: Endpoint, table: TableRef, columns: Sequence[str], snapshot: str | None = None
) -> str | None:
    """See `Source.version_scope`. None but for plain tables of the MergeTree family, and where they
    are read with FINAL: a merge gives other places to rows that stay as they are."""
    if cast(ClickHouseServer, endpoint).reads_final:
        return None
    sql = TIE_SQL.format(
        schema=literal(table.schema),
        table=literal(table.name),
        columns=", ".join(map(literal, columns)),
    )
    try:
        ties = endpoint.query(sql)
    except StatementFailed as error:
        if error.transient:
            raise
        # an older release, or a user who may not read the catalog
        return None
    return repr(ties[0]) if ties else None


class ClickHouseSource(Source):
    """See `Source`. Each query reads the parts that exist when it begins."""

    instead_of_snapshot = "a BACKUP restored into another database"
    by_columns = True
    versions_last = False
    row_version = staticmethod(row_version)
    version_scope = staticmethod(version_scope)

    def tables(self, endpoint: Endpoint, connection: str) -> list[Listed]:
        """All but the server's tables, and those that loading leaves behind."""
        rows = endpoint.query(
            "SELECT database, name, engine LIKE '%View' FROM system.tables "
            "WHERE lower(database) NOT IN ('system', 'information_schema') "
            "AND NOT is_temporary AND NOT startsWith(name, '__ferry_') ORDER BY database, name"
        )
        views = {
            TableRef("clickhouse", database, name, connection): bool(view)
            for database, name, view in rows
        }
        return [
            Listed(table, views[table], hidden=unseen, unreadable=unreadable)
            for tables in groups(views)
            for table, (unseen, unreadable) in withheld_of_all(endpoint, tables).items()
        ]

    def unversioned(self, endpoint: Endpoint, table: TableRef, read_by: str) -> str | None:
        """See `Source.unversioned`. The server says which engines have FINAL, of the tables that a
        Distributed one, or a view, reads, too."""
        try:
            endpoint.query(f"SELECT 1 FROM {qualified(table)} FINAL LIMIT 0")
        except StatementFailed as error:
            if error.code != NO_FINAL:
                raise
            return "its engine keeps no versions of rows: the server reads it without FINAL only"
        for name in _pruned_before_final(endpoint, table):
            if re.search(rf"\b{re.escape(name)}\b", read_by):
                raise InputError(
                    f"{table}: its partitions are chosen by {name!r}, outside of ORDER BY: of a "
                    "row's versions, this release may show an older one. "
                    "Take another key, or a release with defer_partition_pruning_after_final"
                )
        return None

    def shard(self, endpoint: Endpoint, table: TableRef) -> str | None:
        """See `Source.shard`."""
        return SHARD if _engine(endpoint, table) == "Distributed" else None

    def query_columns(self, endpoint: Endpoint, table: TableRef) -> list[Column]:
        """See `Source.query_columns`."""
        described = endpoint.query(f"DESCRIBE TABLE (\n{table.query}\n)")
        split = [(str(name), split_type(str(type_))) for name, type_, *_ in described]
        return [Column(name, type_, nullable=nullable) for name, (type_, nullable) in split]

    def catalogued(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, Catalogued]:
        """See `Source.catalogued`."""
        return _sizes_and_keys(endpoint, tables)

    def remarks(self, endpoint: Endpoint, table: TableRef) -> Iterator[str]:
        """Say which servers a table is read from, if they are several."""
        engine = _engine(endpoint, table)
        if engine == "Distributed":
            yield (
                f"{table}: its shards are read through it, each in its state of that moment; "
                "fingerprints are of the rows' contents"
            )
        elif engine.startswith(SHARED):
            kept = f"{engine}{replicas_of(endpoint, table)}"
            yield f"{table}: {kept} is read from the replica that answers, which may be behind"

    def index_of_order(self, table: TableRef, key: Column) -> str | None:
        """The sorting key of a table cannot be changed."""
        return f"a table with ORDER BY ({DIALECT.quote(key.name)}, ...)"

    def quantiles(
        self, endpoint: Endpoint, table: TableRef, column: Column, kind: KeyKind, where: str
    ) -> tuple[int, Sequence[object]]:
        """Number the keys in their order; in a large table, those of a sample by their hash."""
        sql, name = DIALECT, DIALECT.quote(column.name)
        key, source = sql.key_value(name, column, kind), qualified(table)
        rows, least, greatest = endpoint.query(
            f"SELECT count(), min({key}), max({key}) FROM {source} WHERE {where}"
        )[0]
        if not rows:
            return 0, ()
        if every := int(rows) // SAMPLE_ROWS:
            where = f"({where}) AND cityHash64({name}) % {every} = 0"
        own = alias_prefix(key, where)
        found = endpoint.query(
            f"SELECT k FROM (SELECT {own}k AS k, row_number() OVER (ORDER BY {own}k) AS i, "
            f"count() OVER () AS n FROM (SELECT {key} AS {own}k FROM {source} WHERE {where})) "
            f"WHERE intDiv(i * {BUCKETS}, n) > intDiv((i - 1) * {BUCKETS}, n) ORDER BY i"
        )
        return int(rows), [least, *(value for (value,) in found), greatest]


def _engine(endpoint: Endpoint, table: TableRef) -> str:
    """The engine of a table; empty if there is no such table, as for a query."""
    rows = endpoint.query(
        "SELECT engine FROM system.tables "
        f"WHERE database = {literal(table.schema)} AND name = {literal(table.name)}"
    )
    return str(rows[0][0]) if rows else ""


def _pruned_before_final(endpoint: Endpoint, table: TableRef) -> list[str]:
    """The columns by which a release skips partitions that may have newer versions of rows; none
    of those that have `defer_partition_pruning_after_final`, which is on by default."""
    rows = endpoint.query(
        "SELECT partition_key, sorting_key FROM system.tables WHERE "
        f"database = {literal(table.schema)} AND name = {literal(table.name)} AND NOT EXISTS "
        "(SELECT 1 FROM system.settings WHERE name = 'defer_partition_pruning_after_final')"
    )
    return [
        name
        for partition_key, sorting_key in rows
        for name in NAMES.findall(partition_key)
        if name not in NAMES.findall(sorting_key)
    ]


def _sizes_and_keys(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, Catalogued]:
    """Return the sizes and the first columns of the sorting keys of tables of one database."""
    bare = "trim(BOTH '()' FROM sorting_key)"  # newer releases show the parentheses
    rows = endpoint.query(
        f"SELECT name, total_rows, total_bytes, splitByString(', ', {bare})[1] "
        f"FROM system.tables WHERE {among(tables)}"
    )
    entries = {
        name: Catalogued(
            None if count is None else TableSize(count, stored), [key.strip("`")] if key else ()
        )
        for name, count, stored, key in rows
    }
    return {table: entries[table.name] for table in tables if table.name in entries}
