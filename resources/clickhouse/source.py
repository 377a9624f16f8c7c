"""How rows leave ClickHouse: by ArrowStream."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.aliases import alias_prefix
from tableferry.resources.clickhouse.dialect import DIALECT, literal
from tableferry.resources.contract.catalog import BUCKETS, Listed, TableSize
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import Source
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.keys.range import KeyKind
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

SAMPLE_ROWS = 1_000_000
"""Approximate number of keys that are sorted for a larger table."""


class ClickHouseSource(Source):
    """See `Source`. Each query reads the parts that exist when it begins."""

    def tables(self, endpoint: Endpoint, connection: str) -> list[Listed]:
        """All but the server's tables, and those that loading leaves behind."""
        rows = endpoint.query(
            "SELECT database, name, engine LIKE '%View' FROM system.tables "
            "WHERE lower(database) NOT IN ('system', 'information_schema') "
            "AND NOT is_temporary AND NOT startsWith(name, '__ferry_') ORDER BY database, name"
        )
        return [
            Listed(TableRef("clickhouse", database, name, connection), bool(view))
            for database, name, view in rows
        ]

    def size(self, endpoint: Endpoint, table: TableRef) -> TableSize:
        """From the catalog; the rows of a view are counted."""
        rows, stored = endpoint.query(f"SELECT total_rows, total_bytes {_from_catalog(table)}")[0]
        return super().size(endpoint, table) if rows is None else TableSize(rows, stored)

    def leading(self, endpoint: Endpoint, table: TableRef) -> Sequence[str]:
        """The first column of the sorting key."""
        bare = "trim(BOTH '()' FROM sorting_key)"  # newer releases show the parentheses
        names = endpoint.query(f"SELECT splitByString(', ', {bare})[1] {_from_catalog(table)}")
        return [name.strip("`") for (name,) in names if name]

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


def _from_catalog(table: TableRef) -> str:
    where = f"database = {literal(table.schema)} AND name = {literal(table.name)}"
    return f"FROM system.tables WHERE {where}"
