"""Rows with values that a target cannot hold, kept beside its table instead of in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

SUFFIX = "__rejected"
"""The suffix of the table that keeps the values."""

RANGE, ROW_KEY, ROW_NUMBER = "range_name", "row_key", "row_number"
IDENTITY = (RANGE, ROW_KEY, ROW_NUMBER)
"""What identifies a rejected row; tables of earlier releases lack the number."""
COLUMNS = (ROW_KEY, "column_name", "value", "reason", "run_id", ROW_NUMBER)
"""The columns of that table, which are texts: first the range that a value is of."""


@dataclass(frozen=True)
class RejectedValue:
    """A value that the target cannot hold."""

    key: str
    """The primary key of its row, or its key, as a JSON object of texts."""
    column: str
    """The column's name in the target."""
    value: str | None
    """The value as text."""
    reason: str
    row: int
    """Number of its row among the rejected rows of the range: without a primary key, rows may
    share their key."""


@dataclass(frozen=True)
class Quarantine:
    """The rows of a range that its target does without."""

    rows: int | None = None
    """Their number; None if the target has a place for all rows, and nothing is kept beside it."""
    values: tuple[RejectedValue, ...] = ()
    """All values for which they are rejected; a row may have several."""
    run_id: str = ""

    def stored(self, range_name: str, literal: Callable[[str], str]) -> Iterator[str]:
        """Write the rows of the table that keeps them, `RANGE` and `COLUMNS`, as constants."""
        for each in self.values:
            # not every system's texts can have NUL
            value = "NULL" if each.value is None else literal(each.value.replace("\0", "\\0"))
            before, after = (range_name, each.key, each.column), (each.reason, self.run_id)
            texts = [*map(literal, before), value, *map(literal, (*after, str(each.row)))]
            yield f"({', '.join(texts)})"
