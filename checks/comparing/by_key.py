"""Finds the rows that differ by their keys, where these are whole numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.checks.checksum import Digests, table_and_key
from tableferry.checks.drilldown import Comparison
from tableferry.checks.limits import limits
from tableferry.checks.row_tally import EXAMPLE_LETTERS, compare_rows, letters
from tableferry.checks.rowhash import BATCH_ROWS, DIGEST, KEY, RowLayout, of_the_same_keys
from tableferry.checks.verdict import Differences, Sink
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.fields import Side
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.table_sql import ENUMERATED, filtered, range_number, within
from tableferry.resources.digest.expressions import sorts_like_number
from tableferry.resources.keys.range import KeyRange

SIDES: tuple[Side, Side] = ("source", "target")

LISTED, MOST_KEYS = 1_000, 8_192
"""Maximum number of keys that a condition lists, and of keys that differ in the range of one."""

DENSE = 4
"""Where at least one row in so many differs, the rows between them are read, too."""


def finds_by_key(plan: CopyPlan) -> bool:
    """Say whether rows of both sides can be found by their keys, without a look at all rows."""
    if plan.primary_key != (plan.key.target.name,):
        return False
    for side in SIDES:
        table, column = table_and_key(plan, side)
        quick = column.primary_key == 1 or source_of(table.system).by_columns
        if table.query or not quick or not sorts_like_number(plan, side):
            return False
    return True


_Keys = KeyRange | Sequence[int]


@dataclass(frozen=True)
class ComparisonByKey(Comparison):
    """Both sides of ranges that differ, read in key order.

    Of their rows only keys and digests are read; then the values of those that differ.
    """

    ranges: Sequence[KeyRange] = ()
    """The ranges, ordered, instead of one."""
    rows: tuple[int, int] = (0, 0)
    """The number of rows that both sides have in them."""

    def search(self, sink: Sink | None = None) -> Differences:
        """Search for the rows that differ, see `drill_down`."""
        source_rows, target_rows = self.rows
        total = Differences(rows_compared=source_rows, target_rows_compared=target_rows)
        kept = 0
        for keys in self._differing():
            compared = compare_rows(
                self.plan,
                self.source,
                self.target,
                self._digests,
                {side: self._where(side, keys) for side in SIDES},
                limit=self.limit - len(total.examples) if kept < EXAMPLE_LETTERS else 0,
                sink=sink,
            )
            total = _added(total, compared.differences)
            kept += sum(map(letters, compared.differences.examples))
        return replace(total, remarks=tuple(limits(self.plan)))

    @cached_property
    def _digests(self) -> Digests:
        return Digests.of(self.plan, self.source, self.target)

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
            together = joined(self.ranges[at : at + ENUMERATED])
            source_sql, target_sql = (
                layout.query(self.plan, self._digests, side, conditions(self.plan, side, together))
                for side in SIDES
            )
            differing: list[tuple[pa.Array, int]] = []
            with (
                self.source.read_arrow(source_sql, batch_rows=BATCH_ROWS) as source_rows,
                self.target.read_arrow(target_sql, batch_rows=BATCH_ROWS) as target_rows,
            ):
                for sides in of_the_same_keys(layout, source_rows, target_rows):
                    keys = _unequal(*sides)
                    for first in range(0, len(keys), MOST_KEYS):
                        part = keys.slice(first, MOST_KEYS)
                        differing.append((part, max(_between(side, part) for side in sides)))
            yield from differing

    def _where(self, side: Side, keys: _Keys) -> str:
        """Write the condition that selects the rows of some keys."""
        if isinstance(keys, KeyRange):
            return conditions(self.plan, side, [keys])
        table, column = table_and_key(self.plan, side)
        bounds = ", ".join(table.system.dialect.bound(key, column) for key in keys)
        rows = f"{table.system.quote(column.name)} IN ({bounds})"
        return filtered(rows, _filter(self.plan, side))


def joined(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    """Make one range of neighbours."""
    merged: list[KeyRange] = []
    for each in ranges:
        last = merged[-1] if merged else None
        if last and not each.null and last.upper is not None and last.upper == each.lower:
            merged[-1] = replace(last, upper=each.upper)
        else:
            merged.append(each)
    return merged


def conditions(plan: CopyPlan, side: Side, ranges: Sequence[KeyRange]) -> str:
    """Write the condition that selects the rows of just these ranges."""
    table, column = table_and_key(plan, side)
    rows = within(ranges, column, table.system)
    if len(ranges) > ENUMERATED:
        rows = f"({rows}) AND {range_number(ranges, column, table.system)} >= 0"
    return filtered(rows, _filter(plan, side))


def _filter(plan: CopyPlan, side: Side) -> str | None:
    return plan.condition if side == "source" else plan.target_where


def _unequal(source: pa.Table | None, target: pa.Table | None) -> pa.Array:
    """Return the keys, each once and in order, whose rows differ, and those of several rows."""
    sides = [side.combine_chunks() for side in (source, target) if side is not None]
    if len(sides) == 2 and sides[0][KEY].equals(sides[1][KEY]):
        differ = pc.not_equal(sides[0][DIGEST], sides[1][DIGEST])
        chunks = [sides[0][KEY].filter(differ)]
    elif len(sides) == 2:
        chunks = [_elsewhere(*sides), _elsewhere(*sides[::-1])]
    else:
        chunks = [side[KEY] for side in sides]
    chunks += [_repeated(side[KEY]) for side in sides]
    keys = pc.unique(
        pa.chunked_array([chunk for keys in chunks for chunk in keys.chunks], pa.int64())
    )
    return keys.take(pc.sort_indices(keys))


def _elsewhere(rows: pa.Table, others: pa.Table) -> pa.ChunkedArray:
    """The keys of rows of which the other side has none, or another one."""
    at = pc.index_in(rows[KEY], value_set=others[KEY])
    same = pc.equal(rows[DIGEST], others[DIGEST].take(at))
    return rows[KEY].filter(pc.invert(pc.fill_null(same, False)))


def _repeated(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """The keys, in order, that several rows have."""
    later = keys.slice(1)
    return later.filter(pc.equal(later, keys.slice(0, len(later))))


def _between(rows: pa.Table | None, keys: pa.Array) -> int:
    """Count the rows from the first to the last of some keys."""
    if rows is None:
        return 0
    after, before = (
        pc.greater_equal(rows[KEY], keys[0]),
        pc.less_equal(rows[KEY], keys[-1]),
    )
    return int(pc.sum(pc.and_(after, before)).as_py())


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
