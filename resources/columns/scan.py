"""Finds by a scan what types the values of columns need that are declared too widely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.tables import TableRef
from tableferry.resources.types.export import Refusal
from tableferry.resources.types.kinds import Array, Decimal
from tableferry.resources.types.type_map import Column


@dataclass(frozen=True)
class Fitting:
    """A type that holds all current numbers of a column."""

    type: str | None
    """None: the target has no type with as many digits."""
    not_numbers: bool
    """Whether the column also has NaN or infinities, which no decimal holds."""

    @property
    def held(self) -> str:
        """Say what fits into the type."""
        if self.not_numbers:
            return (
                "all numbers now fit into it; NaN and infinities, which are among the values, are "
                "refused by name, or become NULL with on_overflow: null"
            )
        return "all values now fit into it"


def decimal_types(
    endpoint: Endpoint, table: TableRef, columns: Sequence[Column], target: System
) -> dict[str, Fitting]:
    """Find the smallest decimal types for the current values of numeric columns, and of arrays.

    They are suggestions for `columns: {x: {type: ...}}`, to be rounded up by somebody who knows the
    data: a later value that does not fit is refused.

    Args:
        endpoint: the source's server.
        table: the table, which is read once as a whole.
        columns: its columns; others than decimals are ignored.
        target: the target's system.

    Returns:
        The types by column name, without columns that hold no number.

    Raises:
        StatementFailed: the server refused the query.
    """
    kinds = {column.name: table.system.types.read(column.type).kind for column in columns}
    found = source_of(table.system).digits(endpoint, table, columns)
    fittings = {}
    for name, (whole, scale, not_numbers) in found.items():
        decimal = Decimal(whole + scale, scale)
        kind = Array(decimal) if isinstance(kinds[name], Array) else decimal
        fits = whole + scale <= target.types.most_digits
        fittings[name] = Fitting(target.types.default(kind) if fits else None, not_numbers)
    return fittings


@dataclass(frozen=True)
class ArraysHeld:
    """What an array column holds that arrays of other systems may not be."""

    null: bool
    unlike: bool
    """Whether there are arrays of several dimensions, or whatever else the source does not send."""


def arrays_held(
    endpoint: Endpoint, table: TableRef, columns: Sequence[Column]
) -> dict[str, ArraysHeld]:
    """Look at the values of array columns, by name.

    Args:
        endpoint: the source's server.
        table: the table, which is read once as a whole.
        columns: its columns of arrays.

    Raises:
        StatementFailed: the server refused the query.
    """
    conditions = []
    for column in columns:
        name, export = table.system.quote(column.name), table.system.types.export(column.type)
        refused = None if isinstance(export, Refusal) else export.refuse
        conditions += [f"{name} IS NULL", (refused or "1 = 0").replace("{}", name)]
    held = ", ".join(f"MAX(CASE WHEN {condition} THEN 1 ELSE 0 END)" for condition in conditions)
    row = [bool(flag) for flag in endpoint.query(f"SELECT {held} FROM {qualified(table)}")[0]]
    flags = zip(columns, row[::2], row[1::2], strict=True)
    return {column.name: ArraysHeld(null, unlike) for column, null, unlike in flags}
