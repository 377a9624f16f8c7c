"""Both sides of a comparison: two tables that should have the same rows, and their servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from tableferry.checks.levels import BY_CHECK
from tableferry.checks.limits import limits
from tableferry.checks.row_tally import Compared, merge_rows
from tableferry.checks.rowhash import BATCH_ROWS, IDENTITY, KEY, RowLayout, RowStream
from tableferry.checks.verdict import Differences, Sink, Verdict
from tableferry.resources.aliases import alias_prefix
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.contract.fingerprint import Figures, KnownFigures
from tableferry.resources.contract.table_sql import (
    ENUMERATED,
    MOST_RANGES,
    filtered,
    range_number,
    read_from,
    within,
)
from tableferry.resources.digest.expressions import (
    DigestSql,
    RowDigest,
    key_number,
    sorts_like_number,
)
from tableferry.resources.digest.fields import fields, identity_fields, observed, relaxed_fields
from tableferry.resources.digest.measure import ROWS, Grouped, measure
from tableferry.resources.digest.probe import shared
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

SIDES: tuple[Side, Side] = ("source", "target")

BUCKETS = 1024
"""The number of buckets a range is split into: of a million rows, about a thousand are read."""

MOST_LISTED = 4_000
"""Maximum number of buckets that a query names; beyond it, as beyond half of all, it reads all rows
of the range."""


@dataclass(frozen=True)
class TableSide:
    """The table on one side of a hop, and its server."""

    plan: CopyPlan
    side: Side
    endpoint: Endpoint
    snapshot: str | None = None
    """The snapshot to read a PostgreSQL table under."""

    @property
    def table(self) -> TableRef:
        return self.plan.source if self.side == "source" else self.plan.target

    @property
    def key(self) -> Column:
        """The key column."""
        return self.plan.key.source if self.side == "source" else self.plan.key.target

    @property
    def filter(self) -> str | None:
        """The condition on the rows that are compared; None: all rows."""
        return self.plan.condition if self.side == "source" else self.plan.target_where

    def rows_in(self, ranges: Sequence[KeyRange]) -> str:
        """Write the condition that selects the rows of just these ranges."""
        rows = within(ranges, self.key, self.table.system)
        if len(ranges) > ENUMERATED:
            rows = f"({rows}) AND {range_number(ranges, self.key, self.table.system)} >= 0"
        return filtered(rows, self.filter)

    def in_sample(self, identity: str, one_in: int) -> str:
        """Write the condition that picks all NULL keys and about one row in `one_in`, all over the
        range, by the digest of the row's identity."""
        return (
            f"(abs({identity} % {one_in}) = 0 OR {self.table.system.quote(self.key.name)} IS NULL)"
        )

    def row_query(self, layout: RowLayout, digests: Digests, where: str) -> str:
        """Write the query of rows: the numbers of `layout.order`, the digest, then the values."""
        plan, side, table = self.plan, self.side, self.table
        known = {KEY: f"COALESCE({key_number(plan, side)}, 0)", IDENTITY: digests.identity[side]}
        numbers = [known[name] for name in layout.order]
        ordered = [str(at) for at in range(1, len(numbers) + 1)]
        # the bare column has the same order, and may have an index; but not if NULL is among the
        # keys, or if the number stands for what another tool has written as a text
        if KEY in layout.order and (plan.key.compared is None or sorts_like_number(plan, side)):
            ordered[0] = table.system.quote(self.key.name)
        values = [digests.shown[side][each.name] for each in layout.fields]
        expressions = [*numbers, str(digests.row[side]), *values]
        prefix = alias_prefix(where, *ordered, *expressions)
        selected = ", ".join(f"{sql} AS {prefix}{at}" for at, sql in enumerate(expressions))
        return (
            f"SELECT {selected} FROM {read_from(table)} WHERE {where} ORDER BY {', '.join(ordered)}"
        )

    def by_range(self, ranges: Sequence[KeyRange]) -> Grouped:
        """Make each of some ranges that do not overlap a group, numbered by its position."""
        return Grouped.by_range(ranges, self.key, self.table.system, self.filter)

    def measure(
        self,
        grouped: Grouped,
        *,
        digest: RowDigest | None = None,
        figures: Sequence[Field] = (),
        changed: Mapping[str, str] | None = None,
    ) -> dict[int, Figures]:
        """Sum up each group of rows in one scan; see `resources.digest.measure.measure`."""
        return measure(
            self.endpoint,
            self.table,
            self.side,
            grouped,
            digest=digest,
            figures=figures,
            changed=changed,
            snapshot=self.snapshot,
        )

    def total(self, where: str = "1 = 1", changed: Mapping[str, str] | None = None) -> Figures:
        """Sum up all rows that meet a condition, whatever the filter; `changed` as in `measure`."""
        return self.measure(Grouped("0", where), changed=changed).get(0, {ROWS: 0})

    def counts(self, ranges: Sequence[KeyRange]) -> dict[str, int]:
        """Count the rows of each range, by its name.

        Raises:
            TableferryError: the table does not exist, or the server cannot be asked.
        """
        counts: dict[str, int] = {}
        for part in at_once(ranges):
            figures = self.measure(self.by_range(part))
            for number, key_range in enumerate(part):
                counts[key_range.name] = figures.get(number, {ROWS: 0})[ROWS]
        return counts


def at_once(ranges: Sequence[KeyRange]) -> Iterator[Sequence[KeyRange]]:
    """Yield as many ranges at a time as one query can distinguish."""
    for start in range(0, len(ranges), MOST_RANGES):
        yield ranges[start : start + MOST_RANGES]


@dataclass(frozen=True)
class Digests:
    """SQL of the digests of a hop's rows, which are the same numbers on both sides."""

    row: Mapping[Side, RowDigest]
    """The digest of all columns that are compared."""
    identity: Mapping[Side, str]
    """The digest of the primary key, or of the key column if there is none."""
    shown: Mapping[Side, Mapping[str, str]]
    """By column, what `resources.digest.values.shown` makes readable."""
    changed: Mapping[str, str] = field(default_factory=dict)
    """By column, the source's condition that `on_overflow` changes a value."""

    @classmethod
    def of(
        cls, plan: CopyPlan, source: Endpoint, target: Endpoint, *, streamed: bool = False
    ) -> Digests:
        """Find out how both servers compute them; with `streamed`, as the client can, too.

        Raises:
            DigestRefused: they have no hash in common, or one of them computes another one.
        """
        columns, identity = fields(plan), identity_fields(plan)
        source_sql, target_sql = shared(source, target, streamed=streamed)
        dialects: dict[Side, DigestSql] = {"source": source_sql, "target": target_sql}
        return cls(
            {side: RowDigest(sql, columns, side) for side, sql in dialects.items()},
            {side: sql.digest(identity, side) for side, sql in dialects.items()},
            {
                side: {each.name: sql.shown(each, side) for each in columns}
                for side, sql in dialects.items()
            },
            {
                column.name: column.relaxed[source_sql.variant].changed or "1 = 0"
                for column in relaxed_fields(plan)
            },
        )


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
    """By range, the source's figures, so that its rows need not be read for sums; for `in_flight`,
    the figures of the rows as they streamed."""
    reader: Endpoint | None = None
    """The only session that sees the target's rows, if others do not; it sends no rows."""
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
            "target": TableSide(self.plan, "target", self.reader or self.target),
        }

    @cached_property
    def digests(self) -> Digests:
        """How both servers digest rows alike; see `Digests.of`."""
        return Digests.of(self.plan, self.source, self.target)

    @cached_property
    def streamed_digests(self) -> Digests:
        """The same, as the client can, too."""
        return Digests.of(self.plan, self.source, self.target, streamed=True)

    @cached_property
    def where(self) -> Mapping[Side, str]:
        """The conditions that select the rows of all ranges."""
        return self.rows_in(self.ranges)

    def rows_in(self, ranges: Sequence[KeyRange]) -> Mapping[Side, str]:
        """Write the conditions that select the rows of some ranges, which are ordered."""
        merged = joined(ranges)
        return {side: table.rows_in(merged) for side, table in self.sides.items()}

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
        return replace(differences, remarks=tuple(limits(both.plan)))

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


def joined(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    """Make one range of neighbours; the ranges are ordered."""
    merged: list[KeyRange] = []
    for each in ranges:
        last = merged[-1] if merged else None
        if last and not each.null and last.upper is not None and last.upper == each.lower:
            merged[-1] = replace(last, upper=each.upper)
        else:
            merged.append(each)
    return merged
