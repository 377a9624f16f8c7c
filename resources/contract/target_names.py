"""Tables that a target keeps beside its own: shadows, rejected rows, those set aside."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from tableferry.resources.tables import TableRef, staging_name, staging_prefix
from tableferry.resources.types.type_map import Column

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


SHADOW = "__ferry_shadow"
"""The suffix of a shadow table."""

ASIDE = "__ferry_aside"
"""The suffix of a table that is about to be recreated."""

DIGEST = 12
"""The digits of a hash that replaces the end of a name that is too long."""

REJECTED = "_rejected"
"""The suffix of a staging table that failed its audit."""

MOST_REJECTED = 10
"""The maximum of rejected staging tables per target: enough to diagnose, too few to fill a disk."""


def shadow_of(table: TableRef) -> TableRef:
    """The table that collects all ranges of a `swap` until it replaces the target."""
    return _beside(table, SHADOW)


def aside_of(table: TableRef) -> TableRef:
    """Where an empty table waits, on servers without locks, until nobody writes to it any more."""
    return _beside(table, ASIDE)


def quarantine_of(table: TableRef) -> TableRef:
    """The table that keeps the values which a target cannot hold."""
    return _beside(table, SUFFIX)


def of_ranges(target: TableRef, ranges: Iterable[str]) -> str:
    """Write the condition on rows of `quarantine_of` that they are of some ranges, of at least one.

    Names of ranges of texts may differ in case or blanks alone.
    """
    system = target.system
    column = Column(RANGE, system.types.text)
    name = system.dialect.grouping_key(system.quote(RANGE), column)
    told_apart = (system.dialect.grouping_key(system.dialect.literal(r), column) for r in ranges)
    return f"{name} IN ({', '.join(told_apart)})"


def _beside(table: TableRef, suffix: str) -> TableRef:
    dialect = table.system.dialect
    longest = dialect.longest_name - len(suffix) - DIGEST
    name = "".join(char for char in table.name if char not in dialect.not_in_shadows)
    kept = next(name[:end] for end in range(len(name), -1, -1) if _length(name[:end]) <= longest)
    if kept != table.name:
        kept += hashlib.blake2b(table.name.encode(), digest_size=DIGEST // 2).hexdigest()
    return replace(table, name=kept + suffix)


def rejected_of(target: TableRef, range_name: str) -> TableRef:
    """The table that keeps a range's rows after they failed their audit."""
    return replace(target, name=f"{staging_name(target, range_name)}{REJECTED}")


def is_rejected(target: TableRef, name: str) -> bool:
    """Whether a table keeps rows of the target that failed their audit."""
    return name.startswith(staging_prefix(target)) and name.endswith(REJECTED)


def surplus_rejected(target: TableRef, names: Iterable[str]) -> list[str]:
    """The rejected ones of a target's staging tables that must be dropped to keep another.

    Args:
        target: the target.
        names: the staging tables, the oldest first.
    """
    kept = [name for name in names if is_rejected(target, name)]
    return kept[: max(0, len(kept) - MOST_REJECTED + 1)]


def _length(name: str) -> int:
    """Length of a name in ClickHouse's file names, which escape other characters as `%D0`."""
    return len(re.sub(rb"[^A-Za-z0-9_]", b"%00", name.encode()))
