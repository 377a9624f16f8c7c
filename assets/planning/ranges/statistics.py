"""The distribution of a key column, by which tables are cut into ranges."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.table_sql import filtered, predicate
from tableferry.resources.keys.bounds import to_bound, to_number
from tableferry.resources.keys.range import Bound, KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column


@dataclass(frozen=True)
class KeyStatistics:
    """The distribution of a table's keys. It may be an estimate: any cut is correct."""

    rows: int
    """The number of rows whose key is in scope, without NULL and infinite keys."""
    minimum: Bound | None = None
    maximum: Bound | None = None
    """Never an estimate, so that the open range above it is empty at first."""
    quantiles: tuple[Bound, ...] = ()
    """Ascending, from minimum to maximum, with about the same number of rows between neighbours."""
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

    For what it costs see `Source.quantiles` of the system; no ANALYZE is needed.

    If given, `above` is the least key to read: growth needs no others.

    Raises:
        InputError: the column cannot be a key, or the system is not a source.
    """
    kind = key_kind(column, endpoint.system)[0]
    rows_of = filtered(predicate(column, KeyRange(kind, above), endpoint.system), where)
    source = source_of(endpoint.system)
    rows, quantiles = source.quantiles(endpoint, table, column, kind, rows_of)
    # sorted, because rows may have come or gone between the queries
    order = str if kind == "text" else to_number
    bounds = sorted((to_bound(value, kind) for value in quantiles if value is not None), key=order)
    if not rows or not bounds:
        return KeyStatistics(0, nullable=column.nullable)
    return KeyStatistics(rows, bounds[0], bounds[-1], tuple(bounds), column.nullable)
