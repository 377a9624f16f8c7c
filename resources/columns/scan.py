"""Finds by a scan how many digits the values of undeclared numeric columns need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column


@dataclass(frozen=True)
class Fitting:
    """A type that holds all current numbers of a column."""

    type: str
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
    """Find the smallest decimal types for the current values of undeclared numeric columns.

    They are suggestions for `columns: {x: {type: ...}}`, to be rounded up by somebody who knows the
    data: a later value that does not fit is refused by name.

    Args:
        endpoint: the source's server.
        table: the table, which is read once as a whole.
        columns: its columns; others than decimals without declared digits are ignored.
        target: the target's system.

    Returns:
        The types by column name, without columns that need more digits than the target has or that
        hold no number.

    Raises:
        StatementFailed: the server refused the query.
    """
    types = target.types
    source = source_of(table.system)
    return {
        name: Fitting(types.decimal(whole + scale, scale), not_numbers)
        for name, (whole, scale, not_numbers) in source.digits(endpoint, table, columns).items()
        if whole + scale <= types.most_digits
    }
