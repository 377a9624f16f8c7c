"""The table on one side of a hop, and the SQL of its rows' digests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tableferry.checks.rowhash import IDENTITY, KEY, RowLayout
from tableferry.resources.connecting.waiting import limit, only_reading
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.contract.fingerprint import Figures
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.table_sql import (
    ENUMERATED,
    alias_prefix,
    filtered,
    most_ranges,
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
from tableferry.resources.digest.fields import fields, identity_fields
from tableferry.resources.digest.measure import ROWS, Grouped, measure
from tableferry.resources.digest.probe import shared
from tableferry.resources.digest.stretches import stretches
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

SIDES: tuple[Side, Side] = ("source", "target")


def refusal(server: Endpoint, table: TableRef, where: str | None = None) -> str:
    """Return what a server says against reading a table's rows by a filter; empty if it reads them.

    Args:
        server: the table's.
        table: the table, with what is computed of it.
        where: the filter, which has to be exactly one condition.
    """
    first, last = table.system.dialect.limited(1)
    rows, nowhere = read_from(table), filtered("1 = 0", where)
    # in parentheses, as a condition that ends this query's own does not end that of others
    query = f"SELECT {first}1 AS ferry__one FROM {rows} WHERE {nowhere}{last}"
    try:
        with only_reading(limit()):
            found = server.query(f"SELECT * FROM ({query}) AS ferry__q")
    except StatementFailed as error:
        if error.transient:
            raise
        return str(error)
    return "its parentheses do not match" if found else ""


def require_condition(subject: str, where: str, table: TableRef, server: Endpoint) -> None:
    """Refuse a row filter that is not exactly one condition that a table's server understands.

    Raises:
        InputError: names the filter after the subject, and what the server says against it.
    """
    if why := refusal(server, table, where):
        raise InputError(f"{subject}: {where!r} is not a valid condition for {table}: {why}")


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

    @cached_property
    def shard(self) -> str | None:
        """The SQL of where a row is, if several servers have the table; see `Source.shard`."""
        if not self.table.system.source or self.table.query:
            return None
        return source_of(self.table.system).shard(self.endpoint, self.table)

    @property
    def filter(self) -> str | None:
        """The condition on the rows that are compared; None: all rows."""
        return self.plan.condition if self.side == "source" else self.plan.target_where

    @property
    def most_ranges(self) -> int:
        """How many ranges a query tells apart at most."""
        return most_ranges(self.table.system)

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
        if layout.sharded and self.shard:
            values.append(self.shard)
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
            replace(grouped, snapshot=self.snapshot),
            digest=digest,
            figures=figures,
            changed=changed,
        )

    def stretches(
        self, ranges: Sequence[KeyRange], columns: int = 0, most: int | None = None
    ) -> Iterator[Sequence[KeyRange]]:
        """Cut ranges into those of one query, by default as many as it tells apart; see
        `resources.digest.stretches`."""
        most = most or self.most_ranges
        return stretches(self.endpoint, self.table, self.key, ranges, columns=columns, most=most)

    def at_once(self, ranges: Sequence[KeyRange]) -> Iterator[Sequence[KeyRange]]:
        """Yield as many ranges at a time as one query tells apart."""
        for start in range(0, len(ranges), self.most_ranges):
            yield ranges[start : start + self.most_ranges]

    def total(self, where: str = "1 = 1", changed: Mapping[str, str] | None = None) -> Figures:
        """Sum up all rows that meet a condition, whatever the filter; `changed` as in `measure`."""
        return self.measure(Grouped("0", where), changed=changed).get(0, {ROWS: 0})

    def counts(self, ranges: Sequence[KeyRange]) -> dict[str, int]:
        """Count the rows of each range, by its name.

        Raises:
            TableferryError: the table does not exist, or the server cannot be asked.
        """
        counts: dict[str, int] = {}
        for part in self.stretches(ranges):
            figures = self.measure(self.by_range(part))
            for number, key_range in enumerate(part):
                counts[key_range.name] = figures.get(number, {ROWS: 0})[ROWS]
        return counts


@dataclass(frozen=True)
class Digests:
    """SQL of the digests of a hop's rows, which are the same numbers on both sides."""

    row: Mapping[Side, RowDigest]
    """The digest of all columns that are compared."""
    identity: Mapping[Side, str]
    """The digest of the primary key, or of the key column if there is none."""
    shown: Mapping[Side, Mapping[str, str]]
    """By column, what `resources.digest.definition.shown` makes readable."""

    @classmethod
    def of(cls, plan: CopyPlan, source: Endpoint, target: Endpoint) -> Digests:
        """Find out how both servers compute them.

        Raises:
            DigestRefused: they have no hash in common, or one of them computes another one.
        """
        columns, identity = fields(plan), identity_fields(plan)
        source_sql, target_sql = shared(source, target)
        dialects: dict[Side, DigestSql] = {"source": source_sql, "target": target_sql}
        return cls(
            {side: RowDigest(sql, columns, side) for side, sql in dialects.items()},
            {side: sql.digest(identity, side) for side, sql in dialects.items()},
            {
                side: {each.name: sql.shown(each, side) for each in columns}
                for side, sql in dialects.items()
            },
        )
