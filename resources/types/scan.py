"""Finds by a scan how many digits a numeric column without precision and scale really needs."""

from __future__ import annotations

from collections.abc import Sequence

from resources.endpoint import Endpoint
from resources.registry import system as _system
from resources.tables import Column, TableRef


def decimal_types(
    endpoint: Endpoint, table: TableRef, columns: Sequence[Column], target: str
) -> dict[str, str]:
    """The smallest decimal types that hold what bare numeric columns hold now.

    They are suggestions for `columns: {x: {type: ...}}`, to be rounded up by who knows the data: a
    later value that does not fit is refused by name. NaN and the infinities do not count.

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
    types = _system(target).types
    source = _system(table.system).as_source()
    return {
        name: types.decimal(whole + scale, scale)
        for name, (whole, scale) in source.digits(endpoint, table, columns).items()
        if whole + scale <= types.most_digits
    }
