"""Both sides of a comparison: two tables that should have the same rows, and their servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from tableferry.checks.levels import BY_CHECK
from tableferry.checks.row_tally import Compared, merge_rows
from tableferry.checks.rowhash import BATCH_ROWS, RowLayout, RowStream
from tableferry.checks.table_side import SIDES, Digests, TableSide
from tableferry.checks.verdict import Differences, Sink, Verdict, final, limits
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.contract.fingerprint import Figures, KnownFigures
from tableferry.resources.contract.table_sql import joined
from tableferry.resources.digest.fields import fields, observed, relaxed_fields
from tableferry.resources.digest.measure import Grouped
from tableferry.resources.keys.range import KeyRange

BUCKETS = 1024
"""The number of buckets a range is split into: of a million rows, about a thousand are read."""

MOST_LISTED = 4_000
"""Maximum number of buckets that a query names; beyond it, as beyond half of all, it reads all rows
of the range."""


@dataclass(frozen=True)
class Buckets:
    """The figures of both sides' rows in buckets, to which their identities assign them."""

    where: Mapping[Side, str]
    """The conditions on the rows that were summed up."""
    groups: Mapping[Side, str]
    """The SQL that numbers the buckets."""
    number: int
    """How many buckets there are; empty ones have no figures."""
    source: Mapping[int, Figures]
    target: Mapping[int, Figures]

    @cached_property
    def unequal(self) -> list[int]:
        """The buckets whose sums differ."""
        numbers = self.source.keys() | self.target.keys()
        return sorted(each for each in numbers if self.source.get(each) != self.target.get(each))

    def rows_of_unequal(self) -> Mapping[Side, str]:
        """Write the conditions that select the rows of these buckets, or all if they are many."""
        if len(self.unequal) > min(MOST_LISTED, self.number // 2):
            return self.where
        listed = ", ".join(map(str, self.unequal))
        return {
            side: f"({self.where[side]}) AND {self.groups[side]} IN ({listed})" for side in SIDES
        }


@dataclass(frozen=True)
class Comparison:
    """Some ranges of two tables that should have the same rows."""

    plan: CopyPlan
    """The hop from one to the other, or two tables as if the first had been moved."""
    source: Endpoint
    """The server of `plan.source`."""
    target: Endpoint
    """The server of `plan.target`."""
    ranges: Sequence[KeyRange]
    """The rows to compare; the ranges do not overlap."""
    snapshot: str | None = None
    """The snapshot to read a PostgreSQL source under."""
    known: Mapping[str, KnownFigures] = field(default_factory=dict)
    """By range, the source's figures, so that its rows need not be read for sums."""
    limit: int = 20
    """Maximum number of examples; the counts include all differences."""

    def only(self, *ranges: KeyRange) -> Self:
        """The comparison of other ranges of the same tables."""
        return replace(self, ranges=ranges)

    @cached_property
    def observed(self) -> Self:
        """The comparison with the columns that the target really has, which may be wider.

        Raises:
            TableMissing: there is no target table.
            SchemaDrift: it lacks a column.
        """
        if self.plan.observed:
            return self
        return replace(self, plan=observed(self.plan, self.target))

    @cached_property
    def sides(self) -> Mapping[Side, TableSide]:
        """Both tables."""
        return {
            "source": TableSide(self.plan, "source", self.source, self.snapshot),
            "target": TableSide(self.plan, "target", self.target),
        }

    @cached_property
    def digests(self) -> Digests:
        """How both servers digest rows alike; see `Digests.of`."""
        return Digests.of(self.plan, self.source, self.target)

    @cached_property
    def changed(self) -> Mapping[str, str]:
        """By column, the source's condition that `on_overflow` changes a value."""
        return {
            column.name: column.relaxed[self.digests.row["source"].dialect.variant].changed
            or "1 = 0"
            for column in relaxed_fields(self.plan)
        }

    @cached_property
    def where(self) -> Mapping[Side, str]:
        """The conditions that select the rows of all ranges."""
        return self.rows_in(self.ranges)

    def rows_in(self, ranges: Sequence[KeyRange]) -> Mapping[Side, str]:
        """Write the conditions that select the rows of some ranges."""
        merged = joined(ranges)
        return {side: table.rows_in(merged) for side, table in self.sides.items()}

    @property
    def most_ranges(self) -> int:
        """How many ranges a query of each side tells apart at most."""
        return min(side.most_ranges for side in self.sides.values())

    def stretches(self, columns: int = 0) -> Iterator[Sequence[KeyRange]]:
        """Cut the ranges into those of one query of the source; see `TableSide.stretches`.

        Args:
            columns: how many columns it digests.
        """
        if all(each.name in self.known for each in self.ranges):
            # only the target is read
            return self.sides["target"].at_once(self.ranges)
        return self.sides["source"].stretches(self.ranges, columns, self.most_ranges)

    def measure(
        self,
        grouped: Mapping[Side, Grouped],
        digests: Digests | None = None,
        figures: Sequence[Field] = (),
        changed: Mapping[str, str] | None = None,
    ) -> tuple[dict[int, Figures], dict[int, Figures]]:
        """Ask both sides at the same time for the figures of every group.

        Args:
            grouped: the rows of each side, in groups.
            digests: the digests to sum up; None for counts alone.
            figures: columns to sum up too.
            changed: conditions by column; the source's rows that meet each are counted.

        Returns:
            Group number -> figures, for the source and for the target. Empty groups are missing.
        """
        row = digests.row if digests else {}
        source, target = self.sides["source"], self.sides["target"]
        with ThreadPoolExecutor(1) as pool:
            target_figures = pool.submit(
                target.measure, grouped["target"], digest=row.get("target"), figures=figures
            )
            source_figures = source.measure(
                grouped["source"], digest=row.get("source"), figures=figures, changed=changed
            )
            return source_figures, target_figures.result()

    def buckets(self, where: Mapping[Side, str], number: int = BUCKETS) -> Buckets:
        """Sum up the digests of the rows that meet a condition on each side, in buckets."""
        groups = {side: f"abs({self.digests.identity[side]} % {number})" for side in SIDES}
        grouped = {side: Grouped(groups[side], where[side]) for side in SIDES}
        return Buckets(where, groups, number, *self.measure(grouped, self.digests))

    @contextmanager
    def rows(
        self, layout: RowLayout, where: Mapping[Side, str]
    ) -> Iterator[tuple[RowStream, RowStream]]:
        """Read the rows that meet a condition on each side, ordered alike; close both after."""
        source_sql, target_sql = (
            self.sides[side].row_query(layout, self.digests, where[side]) for side in SIDES
        )
        with (
            self.source.read_arrow(
                source_sql, batch_rows=BATCH_ROWS, snapshot=self.snapshot
            ) as source_rows,
            self.target.read_arrow(target_sql, batch_rows=BATCH_ROWS) as target_rows,
        ):
            yield RowStream(source_rows, layout), RowStream(target_rows, layout)

    def compare_rows(
        self,
        where: Mapping[Side, str],
        *,
        values: bool = True,
        limit: int | None = None,
        sink: Sink | None = None,
    ) -> Compared:
        """Compare the rows that meet a condition on each side, in one scan of each.

        Args:
            where: the conditions.
            values: whether to read values; without them there are counts, but neither columns nor
                examples.
            limit: maximum number of examples; by default the comparison's.
            sink: gets every difference, chunk by chunk in key order.
        """
        layout = RowLayout.of(self.plan, fields(self.plan) if values else ())
        if values and any(table.shard for table in self.sides.values()):
            layout = replace(layout, sharded=True)
        with self.rows(layout, where) as (source, target):
            most = self.limit if limit is None else limit
            return merge_rows(layout, source, target, limit=most, sink=sink)

    def rows_that_differ(self, where: Mapping[Side, str], sink: Sink | None = None) -> Differences:
        """Find the rows that differ among those that meet a condition, as `search` does."""
        buckets = self.buckets(where)
        if not buckets.unequal:
            return Differences()
        return self.compare_rows(buckets.rows_of_unequal(), sink=sink).differences

    def search(self, sink: Sink | None = None) -> Differences:
        """Search for the rows that differ, in at most two scans of each side.

        The first scan sums up the digests in buckets by the rows' identity; the second reads the
        rows of the buckets whose sums differ, and compares them value by value.

        Args:
            sink: gets every difference, chunk by chunk in key order.
        """
        both = self.observed
        differences = both.rows_that_differ(both.where, sink)
        remarks = (*limits(both.plan), *final(both.plan.final))
        return replace(differences, remarks=remarks)

    @cached_property
    def differences(self) -> Differences:
        """The rows that differ, which are searched for once."""
        return self.search()

    def explained(self, verdict: Verdict) -> Verdict:
        """Add the rows that differ to a failed verdict whose check did not find them itself.

        The verdict stands if they cannot be looked for, and says why.
        """
        if verdict.passed or verdict.differences is not None or verdict.check not in BY_CHECK:
            return verdict
        try:
            return replace(verdict, differences=self.differences)
        except Exception as error:
            return verdict.unexplained(error)
