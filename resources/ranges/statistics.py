"""What the planner knows of a key column: how many rows, from where to where, how dense."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.resources.contract.dialects import filtered, predicate
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import source_of
from tableferry.resources.keys.bounds import to_bound, to_number
from tableferry.resources.keys.range import Bound, KeyRange
from tableferry.resources.ranges.key_kind import key_kind
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column


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
    source = source_of(endpoint.system)
    rows, quantiles = source.quantiles(endpoint, table, column, kind, rows_of)
    # rows may have come or gone between the queries, hence the sorting
    order = str if kind == "text" else to_number
    bounds = sorted((to_bound(v, kind) for v in quantiles if v is not None), key=order)
    if not rows or not bounds:
        return KeyStatistics(0, nullable=column.nullable)
    return KeyStatistics(rows, bounds[0], bounds[-1], tuple(bounds), column.nullable)
