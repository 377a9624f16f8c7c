"""The levels `sample_hash` and `full_hash`: both sides' rows, hashed and merged in key order.

Both sides are read ordered by the key and compared slab by slab, where a slab is all rows up to a
key that both have passed. So memory holds a few batches, whatever the range's size; only rows that
share one key (and have no primary key to order them further) must fit into memory together.

Rows are hashed by polars, in Rust and without a copy: 20 ms for a million rows of three columns.
Its 64-bit hash tells NULL from '' and 'ab','c' from 'a','bc'. It may change with polars' version;
so it is never stored, only compared within one process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from checks.atoms import Side, atoms
from checks.canonical import canonical, is_atomic, reading, shown
from checks.fields import Field, fields, key_field
from checks.verdict import Difference, DifferenceKind, Differences, Sink
from resources.dialects import qualified, quote
from resources.endpoint import Endpoint
from resources.plan import CopyPlan

BATCH_ROWS = 32_768
"""Rows per batch and side; larger ones were no faster in benchmarks/reconcile.py."""

MOST_ORDER_COLUMNS = 3

_IDENTITY, _HASH, _AT, _RANK = "identity", "hash", "at", "rank"


@dataclass(frozen=True)
class Compared:
    """What a comparison of rows found, and how many it read."""

    differences: Differences
    source_rows: int
    target_rows: int


def compare_rows(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    where: Mapping[Side, str],
    *,
    limit: int = 20,
    snapshot: str | None = None,
    sink: Sink | None = None,
) -> Compared:
    """Compare the rows that meet a condition, in one scan of each side.

    Args:
        plan: the hop.
        source: where `plan.source` is.
        target: where `plan.target` is.
        where: the condition in each side's SQL.
        limit: most examples to keep.
        snapshot: of the source.
        sink: also gets every difference, not only the first ones.
    """
    layout = Layout.of(plan)
    own_sql, other_sql = (layout.query(plan, side, where[side]) for side in ("source", "target"))
    with (
        source.read_arrow(own_sql, batch_rows=BATCH_ROWS, snapshot=snapshot) as own,
        target.read_arrow(other_sql, batch_rows=BATCH_ROWS) as other,
    ):
        return merge_rows(layout, own, other, limit=limit, sink=sink)


def merge_rows(
    layout: Layout,
    own: pa.RecordBatchReader,
    other: pa.RecordBatchReader,
    *,
    limit: int = 20,
    sink: Sink | None = None,
) -> Compared:
    """Compare two streams of rows, both read by `Layout.query`, in one pass."""
    tally = _Tally(layout, limit, sink)
    left, right = _Stream(own, layout), _Stream(other, layout)
    for slabs in _slabs(left, right, layout.order):
        tally.add(*slabs)
    return Compared(tally.differences(left.rows), left.rows, right.rows)


@dataclass(frozen=True)
class Layout:
    """The columns of the frames that both sides are read into, and how both are ordered."""

    fields: tuple[Field, ...]
    columns: tuple[tuple[str, ...], ...]
    """Names of each field's one or two columns."""
    order: tuple[str, ...]
    """Names of the numbers that both sides are ordered by."""
    ordering: tuple[Field, ...]
    identity: tuple[str, ...]
    """Names of the columns that tell one row from another of the same order."""
    key: int
    """Position of the key among the fields."""
    primary_key: tuple[int, ...] = ()
    """Positions of the primary key's fields, in its order; none if not all of it is compared."""

    @property
    def named_by(self) -> tuple[int, ...]:
        """Positions of the fields that name a row to a reader."""
        more = () if self.key in self.primary_key else (self.key,)
        return (*self.primary_key, *more)

    @classmethod
    def of(cls, plan: CopyPlan) -> Layout:
        """The layout of a hop's rows."""
        found = fields(plan)
        systems = (plan.source.system, plan.target.system)
        columns = tuple(
            tuple(f"c{i}_{j}" for j in range(len(reading(field, "source", systems))))
            for i, field in enumerate(found)
        )
        key = key_field(plan)
        by_name = {field.name: i for i, field in enumerate(found)}
        primary = [name for name in plan.primary_key if name in by_name]
        ordering = [key]
        for name in primary:
            field = found[by_name[name]]
            if name != key.name:
                if not is_atomic(field):
                    break
                ordering.append(field)
        sizes = [len(atoms(field, "source", systems)) for field in ordering]
        width = min(sum(sizes), max(MOST_ORDER_COLUMNS, sizes[0]))
        return cls(
            fields=found,
            columns=columns,
            order=tuple(f"k{i}" for i in range(width)),
            ordering=tuple(ordering),
            identity=sum((columns[by_name[name]] for name in primary or [key.name]), ()),
            key=by_name[key.name],
            primary_key=tuple(by_name[name] for name in primary)
            if len(primary) == len(plan.primary_key)
            else (),
        )

    def query(self, plan: CopyPlan, side: Side, where: str) -> str:
        """Order numbers first, then all columns, ordered so that equal keys are neighbours."""
        systems = (plan.source.system, plan.target.system)
        table = plan.source if side == "source" else plan.target
        numbers = [
            f"COALESCE({sql}, 0)"
            for field in self.ordering
            for sql in atoms(field, side, systems).values()
        ][: len(self.order)]
        values = [sql for field in self.fields for sql in reading(field, side, systems)]
        selected = ", ".join(
            f"{sql} AS ferry__{index}" for index, sql in enumerate([*numbers, *values])
        )
        positions = [str(index + 1) for index in range(len(numbers))]
        if self.ordering[0].kind != "uuid":
            # the bare column has the same order, and may have an index
            positions[0] = quote(table.system, self.ordering[0].column(side).name)
        return (
            f"SELECT {selected} FROM {qualified(table)} WHERE {where} "
            f"ORDER BY {', '.join(positions)}"
        )

    def frame(self, batch: pa.RecordBatch) -> pl.DataFrame:
        """A batch in canonical form, with the hash of each row and of its identity."""
        width = len(self.order)
        numbers = [
            pl.Series(name, column.cast(pa.int64()))
            for name, column in zip(self.order, batch.columns[:width], strict=True)
        ]
        position, series = width, []
        for field, names in zip(self.fields, self.columns, strict=True):
            found = canonical(field, batch.columns[position : position + len(names)])
            series += [one.alias(name) for one, name in zip(found, names, strict=True)]
            position += len(names)
        frame = pl.DataFrame(series)
        identity = frame.select(self.identity).hash_rows().alias(_IDENTITY)
        return pl.DataFrame([*numbers, identity, frame.hash_rows().alias(_HASH), *series])


class _Stream:
    """One side's frames, read ahead as far as the comparison needs."""

    def __init__(self, reader: pa.RecordBatchReader, layout: Layout) -> None:
        self._reader, self._layout = reader, layout
        self._frames: list[pl.DataFrame] = []
        self.ended = False
        self.rows = 0

    def read(self) -> None:
        """Buffer one more batch that has rows, if there is one."""
        for batch in self._reader:
            if batch.num_rows:
                self._frames.append(self._layout.frame(batch))
                self.rows += batch.num_rows
                return
        self.ended = True

    def last(self) -> tuple[int, ...] | None:
        """The order numbers of the last row in the buffer."""
        if not self._frames:
            return None
        return self._frames[-1].select(self._layout.order).row(-1)

    def take(self, bound: tuple[int, ...] | None) -> pl.DataFrame | None:
        """Cut off all rows in order before `bound`; None takes all."""
        taken: list[pl.DataFrame] = []
        while self._frames:
            frame = self._frames[0]
            count = len(frame) if bound is None else _before(frame, self._layout.order, bound)
            if count:
                taken.append(frame.head(count))
            if count < len(frame):
                self._frames[0] = frame.slice(count)
                break
            self._frames.pop(0)
        return pl.concat(taken) if taken else None


def _before(frame: pl.DataFrame, order: Sequence[str], bound: tuple[int, ...]) -> int:
    """How many rows of an ordered frame come before a bound."""
    low, high = 0, len(frame)
    for name, value in zip(order, bound, strict=True):
        column = frame[name].to_numpy()[low:high]
        low, high = (
            low + int(np.searchsorted(column, value, "left")),
            low + int(np.searchsorted(column, value, "right")),
        )
    return low


def _slabs(
    left: _Stream, right: _Stream, order: Sequence[str]
) -> Iterator[tuple[pl.DataFrame | None, pl.DataFrame | None]]:
    """Rows of the same keys from both sides, as early as neither can have more of those keys."""
    left.read()
    right.read()
    while not (left.ended and right.ended):
        open_ends = [(s.last(), s) for s in (left, right) if not s.ended]
        bound = min(last for last, _ in open_ends if last is not None)
        yield left.take(bound), right.take(bound)
        for last, stream in open_ends:
            if last == bound:
                stream.read()
    yield left.take(None), right.take(None)


class _Tally:
    """Counts differences, and keeps the first ones as examples."""

    def __init__(self, layout: Layout, limit: int, sink: Sink | None) -> None:
        self._layout, self._limit, self._sink = layout, limit, sink
        self._missing = self._extra = self._different = 0
        self._by_column: dict[str, int] = {}
        self._examples: list[Difference] = []

    def differences(self, rows: int) -> Differences:
        return Differences(
            missing_in_target=self._missing,
            extra_in_target=self._extra,
            different=self._different,
            by_column=self._by_column,
            examples=tuple(self._examples),
            rows_compared=rows,
            named_by=tuple(self._layout.fields[i].name for i in self._layout.named_by),
            primary_key=tuple(self._layout.fields[i].name for i in self._layout.primary_key),
        )

    def add(self, left: pl.DataFrame | None, right: pl.DataFrame | None) -> None:
        """Compare one slab."""
        if left is None and right is None:
            return
        left = right.clear() if left is None and right is not None else left
        right = left.clear() if right is None and left is not None else right
        assert left is not None and right is not None
        ids = [*self._layout.order, _IDENTITY]
        whole = [*ids, _HASH]
        if left.select(whole).equals(right.select(whole)):
            return
        own, other = _unmatched(left, right, whole)
        pairs = own.join(other, on=[*ids, _RANK], how="inner", suffix="_right")
        missing = own.join(other, on=[*ids, _RANK], how="anti")
        extra = other.join(own, on=[*ids, _RANK], how="anti")
        self._missing += len(missing)
        self._extra += len(extra)
        self._different += len(pairs)
        left_rows = left[pairs[_AT].to_numpy()]
        right_rows = right[pairs[f"{_AT}_right"].to_numpy()]
        unequal = self._unequal(left_rows, right_rows)
        found: list[tuple[tuple[int, ...], Difference]] = []
        room = None if self._sink else self._limit - len(self._examples)
        found += self._one_sided(left, missing, "missing_in_target", room)
        found += self._one_sided(right, extra, "extra_in_target", room)
        found += self._changed(left_rows, right_rows, unequal, room)
        found.sort(key=lambda item: item[0])
        listed = [difference for _, difference in found]
        if self._sink and listed:
            self._sink(listed)
        self._examples += listed[: self._limit - len(self._examples)]

    def _unequal(self, left: pl.DataFrame, right: pl.DataFrame) -> dict[str, pl.Series]:
        """Column -> which of the paired rows differ in it; only columns with some."""
        unequal = {}
        for field, names in zip(self._layout.fields, self._layout.columns, strict=True):
            flags = [left[name].ne_missing(right[name]) for name in names]
            either = flags[0] if len(flags) == 1 else flags[0] | flags[1]
            count = int(either.sum())
            if count:
                unequal[field.name] = either
                self._by_column[field.name] = self._by_column.get(field.name, 0) + count
        return unequal

    def _one_sided(
        self, frame: pl.DataFrame, rows: pl.DataFrame, kind: DifferenceKind, room: int | None
    ) -> Iterator[tuple[tuple[int, ...], Difference]]:
        places = rows[_AT].sort().to_numpy()[:room]
        for row in frame[places].iter_rows(named=True):
            key = self._shown(row, self._layout.key)
            yield self._order(row), Difference(key, kind, row=self._named(row))

    def _changed(
        self,
        left: pl.DataFrame,
        right: pl.DataFrame,
        unequal: Mapping[str, pl.Series],
        room: int | None,
    ) -> Iterator[tuple[tuple[int, ...], Difference]]:
        order = left.select(pl.arg_sort_by(self._layout.order)).to_series().to_numpy()[:room]
        for at, own, other in zip(
            order,
            left[order].iter_rows(named=True),
            right[order].iter_rows(named=True),
            strict=True,
        ):
            for index, field in enumerate(self._layout.fields):
                if field.name in unequal and unequal[field.name][int(at)]:
                    yield (
                        self._order(own),
                        Difference(
                            self._shown(own, self._layout.key),
                            "different",
                            field.name,
                            self._shown(own, index),
                            self._shown(other, index),
                            self._named(own),
                        ),
                    )

    def _order(self, row: Mapping[str, object]) -> tuple[int, ...]:
        return tuple(int(str(row[name])) for name in self._layout.order)

    def _named(self, row: Mapping[str, object]) -> dict[str, str | None]:
        """The values by which a reader finds the row."""
        named_by = self._layout.named_by
        return {self._layout.fields[i].name: self._shown(row, i) for i in named_by}

    def _shown(self, row: Mapping[str, object], index: int) -> str | None:
        return shown(
            self._layout.fields[index], [row[name] for name in self._layout.columns[index]]
        )


def _unmatched(
    left: pl.DataFrame, right: pl.DataFrame, whole: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows without an equal one on the other side, equal ones paired off one by one.

    Returns:
        For each side the order numbers, the identity, the position in the slab, and a rank among
        the rows of the same identity, by which what is left can be paired.
    """
    ids = whole[:-1]
    own, other = (
        frame.select(whole)
        .with_row_index(_AT)
        .with_columns(pl.int_range(pl.len()).over(whole).alias(_RANK))
        for frame in (left, right)
    )
    matching = [*whole, _RANK]
    return (
        own.join(other, on=matching, how="anti").with_columns(
            pl.int_range(pl.len()).over(ids).alias(_RANK)
        ),
        other.join(own, on=matching, how="anti").with_columns(
            pl.int_range(pl.len()).over(ids).alias(_RANK)
        ),
    )
