"""Finds by a scan how many digits a numeric column without precision and scale really needs."""

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
    """A type that holds all numbers of a column as it is now."""

    type: str
    not_numbers: bool
    """The column has NaN or infinities, too, which no decimal holds."""

    @property
    def held(self) -> str:
        """What fits into it."""
        if self.not_numbers:
            return (
                "all numbers now fit into it; NaN and infinities, which are among the values, are "
                "refused by name, or become NULL with on_overflow: null"
            )
        return "all values now fit into it"


def decimal_types(
    endpoint: Endpoint, table: TableRef, columns: Sequence[Column], target: System
) -> dict[str, Fitting]:
    """The smallest decimal types that hold what bare numeric columns hold now.

    They are suggestions for `columns: {x: {type: ...}}`, to be rounded up by who knows the data: a
    later value that does not fit is refused by name.

    Args:
        endpoint: the source.
        table: the table, which is read once as a whole.
        columns: its columns; those that are not decimals without declared digits are passed over.
        target: the target's system.

    Returns:
        By column name; a column that needs more digits than the target has, or that holds no
        number at all, is not in it.

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
