"""Compares two tables, whoever has filled them: the digests first, then the rows that differ."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.checks.comparing.causes import UNHELD, Cause, likely_causes
from tableferry.checks.comparing.pairing import Pairing
from tableferry.checks.levels import CHECK_NAMES, LEVELS, Level
from tableferry.checks.recheck import Recheck, RepeatedLooks
from tableferry.checks.reconcile import reconcile_all
from tableferry.checks.row_tally import EXAMPLE_LETTERS, letters
from tableferry.checks.rowhash import KEY, RowLayout, chunks_that_differ
from tableferry.checks.sides import Comparison
from tableferry.checks.table_side import SIDES, TableSide, require_condition
from tableferry.checks.verdict import Difference, Differences, Sink, Verdict, limits
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract import table_sql
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Side
from tableferry.resources.contract.source import source_of
from tableferry.resources.digest.expressions import sorts_like_number
from tableferry.resources.digest.fields import fields
from tableferry.resources.digest.measure import DIGEST, ROWS
from tableferry.resources.keys.cover import from_number, largest_number, to_bound, to_number
from tableferry.resources.keys.range import KeyKind, KeyRange

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
        for at in range(0, len(self.ranges), table_sql.ENUMERATED):
            where = self.rows_in(self.ranges[at : at + table_sql.ENUMERATED])
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
    return table_sql.filtered(f"{system.quote(side.key.name)} IN ({bounds})", side.filter)


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


RANGES = 32
"""So many ranges are summed up apart, so that only those that differ are read again; as many as a
query tells apart where rows are found by their keys."""

MOST_DIGESTS = 500_000
"""Maximum number of rows of which digests are sent for the sake of a few ranges."""

EXAMINED = 10_000
"""Maximum number of differing values of which causes are guessed; of long ones, fewer: see
`rowhash.EXAMPLE_LETTERS`."""

FIRST, SECOND = "A", "B"
"""How the tables are called where their names would be too long."""


@dataclass(frozen=True)
class Read:
    """How much was read of one table."""

    counted: int
    """Rows that the server read once, to count them or to sum up their digests."""
    again: int
    """Rows of them that it digested a second time."""
    sent: int
    """Rows that it sent, by their digests or values."""


@dataclass(frozen=True)
class TableComparison:
    """The outcome of a comparison of two tables."""

    pairing: Pairing
    verdict: Verdict
    ranges: int
    """The number of ranges that were compared apart."""
    ranges_that_differ: int
    read: Mapping[Side, Read]
    differences: Differences | None = None
    """The rows that differ; None if none do, or if there is no key to find them by."""
    causes: Mapping[str, tuple[Cause, ...]] = field(default_factory=dict)
    """By column, the first table's name: what likely made its values differ."""
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        """Whether the tables agree in all that was compared."""
        return self.verdict.passed


def compare_tables(
    pairing: Pairing,
    source: Endpoint,
    target: Endpoint,
    level: Level = "checksum",
    *,
    ranges: int | None = None,
    recheck: Recheck | None = None,
) -> TableComparison:
    """Compare two tables, in one scan of each at `count` and `checksum`.

    Where ranges differ, their rows are looked for, and no others are read again.

    Args:
        pairing: how they are compared.
        source: the server of the first table.
        target: the server of the second one.
        level: how strictly.
        ranges: into how many ranges of the key the tables are cut; by default as many as can be
            cut without reading rows, up to `RANGES`, or to as many as a query tells apart.
        recheck: how often rows that differ are looked at again.

    Raises:
        TableferryError: a server cannot be asked. Differences are never an exception.
    """
    began = time.monotonic()
    plan = pairing.plan
    tables = Comparison(plan, source, target, ())
    for side in tables.sides.values():
        if side.filter:
            require_condition("where", side.filter, side.table, side.endpoint)
    cut = _cut(pairing, tables, 1 if LEVELS[level].row_by_row else ranges)
    verdicts = reconcile_all(tables.only(*cut), level)
    verdict = _together(level, list(verdicts.values()))
    unequal = [each for each in cut if not verdicts[each.name].passed]
    differences = None
    again: dict[Side, int] = {"source": 0, "target": 0}
    if unequal and pairing.keyed:
        for each in unequal:
            again["source"] += verdicts[each.name].source[ROWS]
            again["target"] += verdicts[each.name].target[ROWS]
        looked = _comparison(tables.only(*unequal), again)
        if recheck is not None:
            asked = tables.only(*unequal)
            verdict = RepeatedLooks(looked, recheck).judge(
                verdict, lambda: _together(level, [*reconcile_all(asked, level).values()])
            )
        else:
            verdict = looked.explained(verdict)
        differences = verdict.differences
    elif unequal and recheck is not None:
        raise AssertionError("a table without a key has no rows to look at again")
    sent = (differences.rows_compared, differences.target_rows_compared) if differences else (0, 0)
    hashed = sum(v.source.get("hashed", 0) for v in verdicts.values())
    hashed_target = sum(v.target.get("hashed", 0) for v in verdicts.values())
    outcome = TableComparison(
        pairing,
        verdict,
        len(cut),
        len(unequal),
        {
            "source": Read(verdict.source[ROWS], again["source"], sent[0] + hashed),
            "target": Read(verdict.target[ROWS], again["target"], sent[1] + hashed_target),
        },
        differences,
        seconds=time.monotonic() - began,
    )
    if differences is None:
        return outcome
    if pairing.unheld:
        examples = tuple(_with_unheld(each, pairing.unheld) for each in differences.examples)
        differences = replace(differences, examples=examples)
        outcome = replace(outcome, differences=differences)
    by_name = {each.name: each for each in fields(plan)}
    causes = likely_causes(differences.examples, by_name)
    return replace(outcome, causes={pairing.names[name]: found for name, found in causes.items()})


def _with_unheld(difference: Difference, unheld: Mapping[str, Side]) -> Difference:
    """Say what NULL may mean where a number that no double holds is NULL."""
    side = unheld.get(difference.column or "")
    if side == "source" and difference.source is None:
        return replace(difference, source=UNHELD)
    if side == "target" and difference.target is None:
        return replace(difference, target=UNHELD)
    return difference


def _cut(pairing: Pairing, tables: Comparison, wanted: int | None) -> list[KeyRange]:
    """Cut both tables into ranges of the key's values, of about the same width."""
    plan, kind = pairing.plan, pairing.range_kind
    nullable = plan.key.source.nullable or plan.key.target.nullable
    others = [KeyRange(kind or "integer", null=True)] if nullable else []
    count = wanted or (tables.most_ranges if finds_by_key(tables) else RANGES)
    if kind is None or count < 2 or (wanted is None and pairing.key_side is None):
        return [KeyRange(kind or "integer"), *others]
    digits = key_kind(replace(plan.key.source, primary_key=None), plan.source.system)[1]
    side = tables.sides["target" if pairing.key_side == 1 else "source"]
    low, high = _extent(side, kind, digits)
    if wanted is None:
        # of one width, so that a division tells the range of a row
        width = (high - low) // count + 1
        cuts = [*range(low + width, high + 1, width)]
    else:
        cuts = sorted({low + (high - low) * number // count for number in range(1, count)} - {low})
    bounds = [None, *(from_number(cut, kind) for cut in cuts), None]
    bounded = itertools.pairwise(bounds)
    return [*(KeyRange(kind, lower, upper, digits=digits) for lower, upper in bounded), *others]


def _extent(side: TableSide, kind: KeyKind, digits: int) -> tuple[int, int]:
    """The least and the greatest key, which an index of it knows; uuids are spread evenly."""
    if kind == "uuid":
        return 0, largest_number(kind, digits)
    system, column = side.table.system, side.key
    key = system.dialect.key_extent(system.quote(column.name), column, kind)
    rows = table_sql.filtered(table_sql.predicate(column, KeyRange(kind), system), side.filter)
    ((low, high),) = side.endpoint.query(
        f"SELECT MIN({key}), MAX({key}) FROM {table_sql.read_from(side.table)} WHERE {rows}"
    )
    if low is None or high is None:
        return 0, 0
    return to_number(to_bound(low, kind)), to_number(to_bound(high, kind))


def _comparison(unequal: Comparison, rows: Mapping[Side, int]) -> Comparison:
    """The search for the rows that differ in some ranges, which have so many rows."""
    few = max(rows.values()) <= MOST_DIGESTS or len(unequal.ranges) > table_sql.ENUMERATED
    if not few or not finds_by_key(unequal):
        return replace(unequal, limit=EXAMINED)
    both = rows["source"], rows["target"]
    return ComparisonByKey(
        unequal.plan, unequal.source, unequal.target, unequal.ranges, limit=EXAMINED, read=both
    )


def _together(level: Level, verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict on all ranges."""
    sides: list[dict[str, Any]] = []
    for figures in ([v.source for v in verdicts], [v.target for v in verdicts]):
        total: dict[str, Any] = {ROWS: sum(each[ROWS] for each in figures)}
        if LEVELS[level].compares == "sums":
            total[DIGEST] = str(sum(int(each[DIGEST]) for each in figures))
        if LEVELS[level].row_by_row:
            total["hashed"] = sum(each.get("hashed", 0) for each in figures)
            total["one_in"] = max(each.get("one_in", 1) for each in figures)
        sides.append(total)
    disagreeing = dict.fromkeys(name for verdict in verdicts for name in verdict.disagreeing)
    return Verdict(
        check=CHECK_NAMES[level],
        passed=all(verdict.passed for verdict in verdicts),
        source=sides[0],
        target=sides[1],
        seconds=sum(verdict.seconds for verdict in verdicts),
        disagreeing=tuple(disagreeing),
        ranges=len(verdicts),
        digest=verdicts[0].digest,
    )
