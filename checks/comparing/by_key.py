"""Finds the rows that differ by their keys, where these are whole numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.checks.limits import limits
from tableferry.checks.row_tally import EXAMPLE_LETTERS, letters
from tableferry.checks.rowhash import KEY, RowLayout, chunks_that_differ
from tableferry.checks.sides import Comparison
from tableferry.checks.table_side import SIDES, TableSide
from tableferry.checks.verdict import Differences, Sink
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.table_sql import ENUMERATED, filtered
from tableferry.resources.digest.expressions import sorts_like_number
from tableferry.resources.keys.range import KeyRange

LISTED, MOST_KEYS = 1_000, 8_192
"""Maximum number of keys that a condition lists, and of keys that differ in the range of one."""

DENSE = 4
"""Where at least one row in so many differs, the rows between them are read, too."""


def finds_by_key(comparison: Comparison) -> bool:
    """Say whether rows of both sides can be found by their keys, without a look at all rows."""
    plan = comparison.plan
    if plan.primary_key != (plan.key.target.name,):
        return False
    for each in comparison.sides.values():
        quick = each.key.primary_key == 1 or source_of(each.table.system).by_columns
        if each.table.query or not quick or not sorts_like_number(plan, each.side):
            return False
    return True


_Keys = KeyRange | Sequence[int]


@dataclass(frozen=True)
class ComparisonByKey(Comparison):
    """Both sides of ranges that differ, read in key order.

    Of their rows only keys and digests are read; then the values of those that differ.
    """

    read: tuple[int, int] = (0, 0)
    """The number of rows that both sides have in the ranges."""

    def search(self, sink: Sink | None = None) -> Differences:
        """Search for the rows that differ, see `Comparison.search`."""
        source_rows, target_rows = self.read
        total = Differences(rows_compared=source_rows, target_rows_compared=target_rows)
        kept = 0
        for keys in self._differing():
            compared = self.compare_rows(
                {side: _rows_of(self.sides[side], keys) for side in SIDES},
                limit=self.limit - len(total.examples) if kept < EXAMPLE_LETTERS else 0,
                sink=sink,
            )
            total = _added(total, compared.differences)
            kept += sum(map(letters, compared.differences.examples))
        return replace(total, remarks=tuple(limits(self.plan)))

    def _differing(self) -> Iterator[_Keys]:
        """Yield the keys of all rows that differ, in their order."""
        listed: list[int] = []
        for keys, rows in self._found():
            if len(keys) >= LISTED and rows <= DENSE * len(keys):
                if listed:
                    yield listed
                listed = []
                yield KeyRange("integer", keys[0].as_py(), keys[-1].as_py() + 1)
            else:
                listed += keys.to_pylist()
            while len(listed) >= LISTED:
                yield listed[:LISTED]
                listed = listed[LISTED:]
        if listed:
            yield listed

    def _found(self) -> Iterator[tuple[pa.Array, int]]:
        """Yield keys of rows that differ, and how many rows there are from the first to the last.

        No more than some ranges are read at once, so that their keys are few, and to the end, so
        that values are read when no connection is in use.
        """
        layout = replace(RowLayout.of(self.plan, ()), order=(KEY,))
        for at in range(0, len(self.ranges), ENUMERATED):
            where = self.rows_in(self.ranges[at : at + ENUMERATED])
            differing: list[tuple[pa.Array, int]] = []
            with self.rows(layout, where) as (source, target):
                for chunk in chunks_that_differ(layout, source, target):
                    keys = chunk.values(KEY)
                    for first in range(0, len(keys), MOST_KEYS):
                        part = keys.slice(first, MOST_KEYS)
                        rows = max(_between(side, part) for side in (chunk.source, chunk.target))
                        differing.append((part, rows))
            yield from differing


def _rows_of(side: TableSide, keys: _Keys) -> str:
    """Write the condition that selects the rows of some keys."""
    if isinstance(keys, KeyRange):
        return side.rows_in([keys])
    system = side.table.system
    bounds = ", ".join(system.dialect.bound(key, side.key) for key in keys)
    return filtered(f"{system.quote(side.key.name)} IN ({bounds})", side.filter)


def _between(rows: pa.Table, keys: pa.Array) -> int:
    """Count the rows from the first to the last of some keys."""
    from_first = pc.greater_equal(rows[KEY], keys[0])
    return int(pc.sum(pc.and_(from_first, pc.less_equal(rows[KEY], keys[-1]))).as_py() or 0)


def _added(first: Differences, second: Differences) -> Differences:
    """The differences of two sets of rows, which share no key."""
    by_column = Counter(first.by_column)
    by_column.update(second.by_column)
    return replace(
        second,
        missing_in_target=first.missing_in_target + second.missing_in_target,
        extra_in_target=first.extra_in_target + second.extra_in_target,
        different=first.different + second.different,
        by_column=dict(by_column),
        examples=first.examples + second.examples,
        rows_compared=first.rows_compared + second.rows_compared,
        target_rows_compared=first.target_rows_compared + second.target_rows_compared,
    )
