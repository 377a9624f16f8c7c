"""How rows leave ClickHouse: ArrowStream."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.clickhouse.dialect import DIALECT
from tableferry.resources.contract.catalog import BUCKETS, Listed, TableSize
from tableferry.resources.contract.dialects import qualified
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import Source
from tableferry.resources.keys.range import KeyKind
from tableferry.resources.own_names import own_prefix
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

SAMPLE_ROWS = 1_000_000
"""About as many keys of a larger table are sorted."""


class ClickHouseSource(Source):
    """See `Source`. Each query reads the parts that there are when it begins."""

    def tables(self, endpoint: Endpoint, connection: str) -> list[Listed]:
        """But for the server's own, and what loading leaves."""
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
        """Out of the catalog; of a view the rows are counted."""
        rows, stored = endpoint.query(f"SELECT total_rows, total_bytes {_of(table)}")[0]
        return super().size(endpoint, table) if rows is None else TableSize(rows, stored)

    def leading(self, endpoint: Endpoint, table: TableRef) -> Sequence[str]:
        """The first of the sorting key."""
        bare = "trim(BOTH '()' FROM sorting_key)"  # newer releases show the parentheses
        found = endpoint.query(f"SELECT splitByString(', ', {bare})[1] {_of(table)}")
        return [name.strip("`") for (name,) in found if name]

    def index_of_order(self, table: TableRef, key: Column) -> str | None:
        """The sorting key is declared for good."""
        return f"a table with ORDER BY ({DIALECT.quote(key.name)}, ...)"

    def quantiles(
        self, endpoint: Endpoint, table: TableRef, column: Column, kind: KeyKind, where: str
    ) -> tuple[int, Sequence[object]]:
        """By numbering the keys in their order, of a large table a sample by their hash."""
        sql, name = DIALECT, DIALECT.quote(column.name)
        key, source = sql.key_value(name, column, kind), qualified(table)
        rows, least, greatest = endpoint.query(
            f"SELECT count(), min({key}), max({key}) FROM {source} WHERE {where}"
        )[0]
        if not rows:
            return 0, ()
        if every := int(rows) // SAMPLE_ROWS:
            where = f"({where}) AND cityHash64({name}) % {every} = 0"
        own = own_prefix(key, where)
        found = endpoint.query(
            f"SELECT k FROM (SELECT {own}k AS k, row_number() OVER (ORDER BY {own}k) AS i, "
            f"count() OVER () AS n FROM (SELECT {key} AS {own}k FROM {source} WHERE {where})) "
            f"WHERE intDiv(i * {BUCKETS}, n) > intDiv((i - 1) * {BUCKETS}, n) ORDER BY i"
        )
        return int(rows), [least, *(value for (value,) in found), greatest]


def _of(table: TableRef) -> str:
    schema, name = (DIALECT.literal(one) for one in (table.schema, table.name))
    return f"FROM system.tables WHERE database = {schema} AND name = {name}"
