"""What a server's catalog says of the tables that could be moved, in standard SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tableferry.resources.contract.dialects import qualified, quote
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.keys.range import KeyKind
from tableferry.resources.own_names import own_prefix
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column


@dataclass(frozen=True)
class Listed:
    """A table or view in a catalog."""

    table: TableRef
    view: bool = False
    readable: bool = True
    """Whether the login may read all of it."""


@dataclass(frozen=True)
class TableSize:
    """About how large a table is."""

    rows: int
    bytes: int | None = None
    """None where the catalog does not say."""


def listed(endpoint: Endpoint, connection: str) -> list[Listed]:
    """The tables and views that INFORMATION_SCHEMA shows, which are those that may be read.

    Args:
        endpoint: the server.
        connection: its name, as table references have it.
    """
    rows = endpoint.query(
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES "
        "WHERE TABLE_SCHEMA NOT IN ('INFORMATION_SCHEMA', 'information_schema', 'sys') "
        "ORDER BY TABLE_SCHEMA, TABLE_NAME"
    )
    return [
        Listed(
            TableRef(endpoint.system_name, schema, name, connection), view="VIEW" in kind.upper()
        )
        for schema, name, kind in rows
    ]


def counted(endpoint: Endpoint, table: TableRef) -> TableSize:
    """The size of a table, by counting its rows."""
    count = endpoint.system.dialect.count
    return TableSize(int(endpoint.query(f"SELECT {count} FROM {qualified(table)}")[0][0]))


BUCKETS = 1000
"""At most 0.1 % of the rows are misplaced, which is a tenth of a range if there are 100 ranges."""


def numbered_quantiles(
    endpoint: Endpoint, table: TableRef, column: Column, kind: KeyKind, where: str
) -> tuple[int, Sequence[object]]:
    """The quantiles of a key by numbering the rows in its order: see `Source.quantiles`."""
    sql = endpoint.system.dialect
    name = qualified(table)
    key = sql.key_value(quote(endpoint.system, column.name), column, kind)
    rows = int(endpoint.query(f"SELECT {sql.count} FROM {name} WHERE {where}")[0][0])
    if not rows:
        return 0, ()
    # the first row, and the row that ends each of the buckets; a literal of more than 32 bits would
    # be a decimal in T-SQL, which is divided with a fraction
    total = f"CAST({rows} AS bigint)"
    own = own_prefix(key, where)
    at = f"{own}at"
    found = endpoint.query(
        f"SELECT {own}k FROM (SELECT {key} AS {own}k, ROW_NUMBER() OVER (ORDER BY {key}) AS {at}"
        f" FROM {name} WHERE {where}) AS {own}rows"
        f" WHERE {at} = 1 OR {at} * {BUCKETS} / {total} > ({at} - 1) * {BUCKETS} / {total}"
        f" ORDER BY {at}"
    )
    values = [row[0] for row in found]
    return rows, values if rows > BUCKETS else values[:1] + values
