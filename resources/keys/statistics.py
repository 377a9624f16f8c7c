"""What the planner knows of a key column: how many rows, from where to where, how dense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tableferry.resources import registry
from tableferry.resources.contract.dialects import filtered, predicate, qualified, quote
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.keys.kind import key_kind, to_bound, to_number
from tableferry.resources.keys.range import Bound, KeyKind, KeyRange
from tableferry.resources.own_names import own_prefix
from tableferry.resources.tables import Column, TableRef

BUCKETS = 1000
"""At most 0.1 % of the rows are misplaced, which is a tenth of a range if there are 100 ranges."""


@dataclass(frozen=True)
class KeyStatistics:
    """The distribution of a table's keys. It may be estimated: ranges are correct with any."""

    rows: int
    """Rows with a key in scope; NULL keys and infinite ones are not counted."""
    minimum: Bound | None = None
    maximum: Bound | None = None
    """Never estimated, so that the open range above it starts out empty."""
    quantiles: tuple[Bound, ...] = ()
    """Ascending, from minimum to maximum, with about as many rows between any two neighbours."""
    nullable: bool = False

    def __post_init__(self) -> None:
        if self.rows and (self.minimum is None or self.maximum is None or len(self.quantiles) < 2):
            raise ValueError("statistics of rows should have a minimum, a maximum and quantiles")


def key_statistics(
    endpoint: Endpoint,
    table: TableRef,
    column: Column,
    *,
    above: Bound | None = None,
    where: str | None = None,
) -> KeyStatistics:
    """Read the distribution of a key column.

    No ANALYZE is needed. On PostgreSQL, a table of up to 256 MiB is read whole, and of a larger one
    128 MiB in random pages; minimum and maximum come from the index if there is one. Elsewhere the
    keys are counted and numbered in their order, which reads an index on the key once.

    Args:
        endpoint: Where the table is.
        table: The table or view.
        column: Its key.
        above: Look only at keys at or above this; that is all that growth needs, and cheap.
        where: Only the rows that meet this condition.

    Raises:
        InputError: the column cannot be a key, or the system is not a source.
    """
    kind = key_kind(column, endpoint.system)[0]
    rows_of = filtered(predicate(column, KeyRange(kind, above), endpoint.system), where)
    source = registry.system(endpoint.system).as_source()
    rows, quantiles = source.quantiles(endpoint, table, column, kind, rows_of)
    # rows may have come or gone between the queries, hence the sorting
    order = str if kind == "text" else to_number
    bounds = sorted((to_bound(v, kind) for v in quantiles if v is not None), key=order)
    if not rows or not bounds:
        return KeyStatistics(0, nullable=column.nullable)
    return KeyStatistics(rows, bounds[0], bounds[-1], tuple(bounds), column.nullable)


def numbered_quantiles(
    endpoint: Endpoint, table: TableRef, column: Column, kind: KeyKind, where: str
) -> tuple[int, Sequence[object]]:
    """The quantiles of a key by numbering the rows in its order: see `Source.quantiles`."""
    sql = registry.system(endpoint.system).dialect
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
