"""Finds by a scan how many digits a numeric column without precision and scale really needs."""

from __future__ import annotations

from collections.abc import Sequence

from resources.dialects import qualified, quote
from resources.endpoint import Endpoint
from resources.tables import Column, System, TableRef
from resources.types.advice import MOST_DIGITS


def decimal_types(
    endpoint: Endpoint, table: TableRef, columns: Sequence[Column], target: System
) -> dict[str, str]:
    """The smallest decimal types that hold what bare numeric columns hold now.

    They are suggestions for `columns: {x: {type: ...}}`, to be rounded up by who knows the data: a
    later value that does not fit is refused by name. NaN and the infinities do not count.

    Args:
        endpoint: the PostgreSQL source.
        table: the table, which is read once as a whole.
        columns: its columns; those that are not bare numeric are passed over.
        target: the target's system.

    Returns:
        By column name; a column that needs more digits than the target has, or that holds no
        number at all, is not in it.

    Raises:
        QueryFailed: the server refused the query.
    """
    bare = [column.name for column in columns if column.type == "numeric"]
    if table.system != "postgres" or not bare:
        return {}
    expressions = []
    for name in bare:
        column = quote("postgres", name)
        # the greatest finite magnitude has the most digits before the point; NaN is above all
        finite = f"FILTER (WHERE abs({column}) < 'Infinity')"
        expressions.append(f"length(trunc(max(abs({column})) {finite})::text)")
        expressions.append(f"max(scale(trim_scale({column}))) {finite}")
    row = endpoint.query(f"SELECT {', '.join(expressions)} FROM {qualified(table)}")[0]
    found = {}
    for position, name in enumerate(bare):
        whole, scale = row[2 * position : 2 * position + 2]
        if whole is not None and whole + scale <= MOST_DIGITS[target]:
            separator = ", " if target == "clickhouse" else ","
            decimal = "Decimal" if target == "clickhouse" else "decimal"
            found[name] = f"{decimal}({whole + scale}{separator}{scale})"
    return found
