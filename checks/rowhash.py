"""Rows of both sides, merged in key order: their digests for `sample_hash` and `full_hash`, and
their values for those who look for what differs.

Both sides are read ordered by the key and compared in chunks, where a chunk is all rows up to a
key that both have passed. So memory holds a few batches, whatever the range's size; only rows that
share one key (and have no primary key to order them further) must fit into memory together.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.checks.checksum import Digests
from tableferry.checks.verdict import Difference, DifferenceKind, Differences, Sink
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.dialects import qualified, quote
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.digest.expressions import key_number
from tableferry.resources.digest.fields import fields
from tableferry.resources.digest.values import shown
from tableferry.resources.own_names import own_prefix

BATCH_ROWS = 32_768
"""Rows per batch and side; larger ones were no faster in tableferry_bench.reconcile."""

_DIGEST, _AT, _OTHER_AT, _RANK = "digest", "at", "other_at", "rank"


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
    digests: Digests,
    where: Mapping[Side, str],
    *,
    values: bool = True,
    limit: int = 20,
    snapshot: str | None = None,
    sink: Sink | None = None,
) -> Compared:
    """Compare the rows that meet a condition, in one scan of each side.

    Args:
        plan: the hop.
        source: where `plan.source` is.
        target: where `plan.target` is.
        digests: how both compute the rows' digests.
        where: the condition in each side's SQL.
        values: read the values too; without them there are counts, but no columns nor examples.
        limit: most examples to keep.
        snapshot: of the source.
        sink: also gets every difference, not only the first ones.
    """
    layout = Layout.of(plan, fields(plan) if values else ())
    own_sql = layout.query(plan, digests, "source", where["source"])
    other_sql = layout.query(plan, digests, "target", where["target"])
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
    for chunks in _chunks(left, right):
        tally.add(*chunks)
    return Compared(tally.differences(left.rows), left.rows, right.rows)


@dataclass(frozen=True)
class Layout:
    """The columns of the frames that both sides are read into, and how both are ordered."""

    fields: tuple[Field, ...]
    """The columns whose values are read; none where the digests are enough."""
    key: int
    """Position of the key among the fields."""
    order: tuple[str, ...]
    """Names of the numbers that both sides are ordered by: of the key, unless it has none that
    sorts like it, and of the digest of the row's identity."""
    primary_key: tuple[int, ...] = ()
    """Positions of the primary key's fields, in its order; none if not all of it is compared."""

    @property
    def named_by(self) -> tuple[int, ...]:
        """Positions of the fields that name a row to a reader."""
        more = () if self.key in self.primary_key or not self.fields else (self.key,)
        return (*self.primary_key, *more)

    @classmethod
    def of(cls, plan: CopyPlan, columns: Sequence[Field]) -> Layout:
        """The layout of a hop's rows."""
        numbered = all(key_number(plan, side) for side in ("source", "target"))
        names = [field.name for field in columns]
        return cls(
            fields=tuple(columns),
            key=names.index(plan.key.target.name) if names else 0,
            order=("key", "identity") if numbered else ("identity",),
            primary_key=tuple(map(names.index, plan.primary_key))
            if set(plan.primary_key) <= set(names)
            else (),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the fields' values in the frames."""
        return tuple(f"c{number}" for number in range(len(self.fields)))

    def query(self, plan: CopyPlan, digests: Digests, side: Side, where: str) -> str:
        """Order numbers first, then the digest and the values; equal keys are neighbours."""
        table = plan.source if side == "source" else plan.target
        column = plan.key.source if side == "source" else plan.key.target
        numbers, ordered = [digests.identity[side]], ["1"]
        if len(self.order) > 1:
            numbers.insert(0, f"COALESCE({key_number(plan, side)}, 0)")
            # the bare column has the same order, and may have an index
            ordered = [quote(table.system, column.name), "2"]
        values = digests.shown[side] if self.fields else ()
        found = [*numbers, str(digests.row[side]), *values]
        own = own_prefix(where, *ordered, *found)
        selected = ", ".join(f"{sql} AS {own}{index}" for index, sql in enumerate(found))
        return (
            f"SELECT {selected} FROM {qualified(table)} WHERE {where} ORDER BY {', '.join(ordered)}"
        )

    def frame(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch as numbers that order it, digest and values."""
        width = len(self.order) + 1
        numbers = [column.cast(pa.int64()) for column in batch.columns[:width]]
        values = [_bytes(column) for column in batch.columns[width:]]
        names = [*self.order, _DIGEST, *self.columns]
        return pa.RecordBatch.from_arrays([*numbers, *values], names)


def _bytes(column: pa.Array) -> pa.Array:
    """As bytes: ClickHouse does not promise that its texts are valid UTF-8."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.cast(pa.large_binary())


class _Stream:
    """One side's frames, read ahead as far as the comparison needs."""

    def __init__(self, reader: pa.RecordBatchReader, layout: Layout) -> None:
        self._reader, self._layout = reader, layout
        self._frames: list[pa.RecordBatch] = []
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
        return tuple(self._frames[-1].column(name)[-1].as_py() for name in self._layout.order)

    def take(self, bound: tuple[int, ...] | None) -> pa.Table | None:
        """Cut off all rows in order before `bound`; None takes all."""
        taken: list[pa.RecordBatch] = []
        while self._frames:
            frame = self._frames[0]
            count = len(frame) if bound is None else _before(frame, self._layout.order, bound)
            if count:
                taken.append(frame.slice(0, count))
            if count < len(frame):
                self._frames[0] = frame.slice(count)
                break
            self._frames.pop(0)
        return pa.Table.from_batches(taken) if taken else None


def _before(frame: pa.RecordBatch, order: Sequence[str], bound: tuple[int, ...]) -> int:
    """How many rows of an ordered frame come before a bound."""
    low, high = 0, len(frame)
    for name, value in zip(order, bound, strict=True):
        column = frame.column(name).slice(low, high - low)
        below, above = pc.less(column, value), pc.greater(column, value)
        low, high = low + below.true_count, high - above.true_count
    return low


def _chunks(left: _Stream, right: _Stream) -> Iterator[tuple[pa.Table | None, pa.Table | None]]:
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

    def add(self, left: pa.Table | None, right: pa.Table | None) -> None:
        """Compare one chunk."""
        if left is None and right is None:
            return
        left = right.slice(0, 0) if left is None and right is not None else left
        right = left.slice(0, 0) if right is None and left is not None else right
        assert left is not None and right is not None
        ids = list(self._layout.order)
        whole = [*ids, _DIGEST]
        if left.select(whole).equals(right.select(whole)):
            return
        left, right = left.combine_chunks(), right.combine_chunks()
        own, other = _unmatched(left, right, whole)
        pairs = own.join(
            other.select([*ids, _RANK, _AT]).rename_columns([*ids, _RANK, _OTHER_AT]),
            [*ids, _RANK],
            join_type="inner",
        )
        missing = own.join(other, [*ids, _RANK], join_type="left anti")
        extra = other.join(own, [*ids, _RANK], join_type="left anti")
        self._missing += len(missing)
        self._extra += len(extra)
        self._different += len(pairs)
        if not self._layout.fields:
            return
        left_rows, right_rows = left.take(pairs[_AT]), right.take(pairs[_OTHER_AT])
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

    def _unequal(self, left: pa.Table, right: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Column -> which of the paired rows differ in it; only columns with some."""
        unequal = {}
        for field, name in zip(self._layout.fields, self._layout.columns, strict=True):
            both_null = pc.and_(left[name].is_null(), right[name].is_null())
            differ = pc.and_not(
                pc.fill_null(pc.not_equal(left[name], right[name]), True), both_null
            )
            count = pc.sum(differ).as_py()
            if count:
                unequal[field.name] = differ
                self._by_column[field.name] = self._by_column.get(field.name, 0) + count
        return unequal

    def _one_sided(
        self, frame: pa.Table, rows: pa.Table, kind: DifferenceKind, room: int | None
    ) -> Iterator[tuple[tuple[int, ...], Difference]]:
        places = rows.sort_by(_AT)[_AT].slice(0, room)
        for row in frame.take(places).to_pylist():
            key = self._shown(row, self._layout.key)
            yield self._order(row), Difference(key, kind, row=self._named(row))

    def _changed(
        self,
        left: pa.Table,
        right: pa.Table,
        unequal: Mapping[str, pa.ChunkedArray],
        room: int | None,
    ) -> Iterator[tuple[tuple[int, ...], Difference]]:
        order = _sorted(left, self._layout.order).slice(0, room)
        differ = {name: rows.take(order).to_pylist() for name, rows in unequal.items()}
        rows = zip(left.take(order).to_pylist(), right.take(order).to_pylist(), strict=True)
        for at, (own, other) in enumerate(rows):
            for index, field in enumerate(self._layout.fields):
                if field.name in differ and differ[field.name][at]:
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
        field, value = self._layout.fields[index], row[self._layout.columns[index]]
        assert value is None or isinstance(value, bytes)
        if value is not None and field.kind != "bytes":
            return shown(field, value.decode(errors="backslashreplace"))
        return shown(field, value)


def _unmatched(left: pa.Table, right: pa.Table, whole: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The rows without an equal one on the other side, equal ones paired off one by one.

    Returns:
        For each side the order numbers, the position in the chunk, and a rank among
        the rows of the same identity, by which what is left can be paired.
    """
    own, other = (
        _ranked(frame.select(whole).append_column(_AT, _positions(len(frame))), whole)
        for frame in (left, right)
    )
    matching = [*whole, _RANK]
    return (
        _ranked(own.join(other, matching, join_type="left anti").drop(_RANK), whole[:-1]),
        _ranked(other.join(own, matching, join_type="left anti").drop(_RANK), whole[:-1]),
    )


def _ranked(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows with the number of those before them that have the same values in some columns."""
    rows = rows.take(_sorted(rows, [*names, _AT])).combine_chunks()
    count = len(rows)
    if not count:
        return rows.append_column(_RANK, pa.array([], pa.int64()))
    begins = [pc.not_equal(rows[name].slice(1), rows[name].slice(0, count - 1)) for name in names]
    first = pc.if_else(functools.reduce(pc.or_, begins), _positions(count).slice(1), 0)
    starts = pc.cumulative_max(pa.chunked_array([pa.array([0], pa.int64()), *first.chunks]))
    return rows.append_column(_RANK, pc.subtract(_positions(count), starts))


def _positions(count: int) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def _sorted(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """The positions of rows in the order of some columns."""
    return pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])
