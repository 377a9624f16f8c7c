"""Merges the rows of both sides in key order: their digests for `sample_hash` and `full_hash`, and
their values for the drill-down.

Both sides are read ordered by the key and compared in chunks; a chunk is all rows up to a key that
both have passed. So memory holds a few batches, whatever the range's size; only rows that share a
key (and have no primary key to order them further) must fit into memory together.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.checks.checksum import Digests, table_and_key
from tableferry.checks.verdict import Difference, DifferenceKind, Differences, Sink
from tableferry.resources.aliases import alias_prefix
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.contract.table_sql import read_from
from tableferry.resources.digest.expressions import key_number, sorts_like_number
from tableferry.resources.digest.fields import fields
from tableferry.resources.digest.values import shown

BATCH_ROWS = 32_768
"""Rows per batch and side; larger batches were no faster in tableferry_bench.reconcile."""

KEY, IDENTITY, DIGEST = "key", "identity", "digest"
"""Columns of frames: the key's number, and the digests of the row's identity and of the row."""

EXAMPLE_LETTERS = 16 << 20
"""Maximum letters of all examples together, which may be documents of megabytes each."""

POSITION, TARGET_POSITION, _RANK = "position", "target_position", "rank"


@dataclass(frozen=True)
class Compared:
    """The outcome of a comparison of rows, and how many it read."""

    differences: Differences
    source_rows: int
    target_rows: int
    source_digest: int
    """The sum of the digests of these rows."""
    target_digest: int


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
    """Compare the rows that meet a condition on each side, in one scan of each.

    Without `values` there are counts, but no columns nor examples. The other options are those of
    `drill_down`.
    """
    layout = RowLayout.of(plan, fields(plan) if values else ())
    source_sql = layout.query(plan, digests, "source", where["source"])
    target_sql = layout.query(plan, digests, "target", where["target"])
    with (
        source.read_arrow(source_sql, batch_rows=BATCH_ROWS, snapshot=snapshot) as source_rows,
        target.read_arrow(target_sql, batch_rows=BATCH_ROWS) as target_rows,
    ):
        return merge_rows(layout, source_rows, target_rows, limit=limit, sink=sink)


def merge_rows(
    layout: RowLayout,
    source_rows: pa.RecordBatchReader,
    target_rows: pa.RecordBatchReader,
    *,
    limit: int = 20,
    sink: Sink | None = None,
) -> Compared:
    """Compare two streams of rows, both read by `RowLayout.query`, in one pass."""
    tally = _Tally(layout, limit, sink)
    source, target = _Stream(source_rows, layout), _Stream(target_rows, layout)
    for chunk in _unequal_chunks(layout, source, target):
        tally.add(chunk)
    differences = tally.differences(source.rows, target.rows)
    return Compared(differences, source.rows, target.rows, source.digest, target.digest)


@dataclass(frozen=True)
class Chunk:
    """All rows of some keys from both sides, of which some differ."""

    source: pa.Table
    target: pa.Table
    missing: pa.Table
    """The rows that only the source has, with their `position` in `source`."""
    extra: pa.Table
    """The rows that only the target has, with their `position` in `target`."""
    pairs: pa.Table
    """The rows of both sides with different values, with `position` and `target_position`."""

    def rows(self, kind: DifferenceKind, side: Side) -> pa.Table:
        """Return the rows of a kind of difference as one side has them."""
        if kind == "different":
            name = POSITION if side == "source" else TARGET_POSITION
            return (self.source if side == "source" else self.target).take(self.pairs[name])
        one_sided = self.missing if kind == "missing_in_target" else self.extra
        return (self.source if side == "source" else self.target).take(one_sided[POSITION])


def unequal_chunks(
    layout: RowLayout, source_rows: pa.RecordBatchReader, target_rows: pa.RecordBatchReader
) -> Iterator[Chunk]:
    """Compare two streams of rows like `merge_rows`; yield what differs, chunk by chunk."""
    yield from _unequal_chunks(layout, _Stream(source_rows, layout), _Stream(target_rows, layout))


def _unequal_chunks(layout: RowLayout, source: _Stream, target: _Stream) -> Iterator[Chunk]:
    for rows in _chunks(source, target):
        if (chunk := _unequal(list(layout.order), *rows)) is not None:
            yield chunk


def of_the_same_keys(
    layout: RowLayout, source_rows: pa.RecordBatchReader, target_rows: pa.RecordBatchReader
) -> Iterator[tuple[pa.Table | None, pa.Table | None]]:
    """Yield the rows of two streams like `merge_rows`', those of some keys at a time, in order."""
    yield from _chunks(_Stream(source_rows, layout), _Stream(target_rows, layout))


@dataclass(frozen=True)
class RowLayout:
    """The columns of the frames that both sides are read into, and how both are ordered."""

    fields: tuple[Field, ...]
    """The columns whose values are read; none where the digests are enough."""
    key: int
    """The position of the key among the fields."""
    order: tuple[str, ...]
    """The columns that both sides are ordered by: a number that sorts like the key, if it has one,
    and the digest of the row's identity."""
    primary_key: tuple[int, ...] = ()
    """The positions of the primary key's fields, in its order; none unless all are compared."""

    @property
    def named_by(self) -> tuple[int, ...]:
        """The positions of the fields that name a row to a reader."""
        key = () if self.key in self.primary_key or not self.fields else (self.key,)
        return (*self.primary_key, *key)

    @classmethod
    def of(cls, plan: CopyPlan, columns: Sequence[Field]) -> RowLayout:
        """Lay out a hop's rows."""
        numbered = all(key_number(plan, side) for side in ("source", "target"))
        names = [field.name for field in columns]
        return cls(
            fields=tuple(columns),
            key=names.index(plan.key.target.name) if names else 0,
            order=(KEY, IDENTITY) if numbered else (IDENTITY,),
            primary_key=tuple(map(names.index, plan.primary_key))
            if set(plan.primary_key) <= set(names)
            else (),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the fields' values in the frames."""
        return tuple(f"c{number}" for number in range(len(self.fields)))

    def query(self, plan: CopyPlan, digests: Digests, side: Side, where: str) -> str:
        """Write the query of one side: the numbers of `order`, the digest, then the values."""
        table, key = table_and_key(plan, side)
        known = {KEY: f"COALESCE({key_number(plan, side)}, 0)", IDENTITY: digests.identity[side]}
        numbers = [known[name] for name in self.order]
        ordered = [str(at) for at in range(1, len(numbers) + 1)]
        # the bare column has the same order, and may have an index; but not if NULL is among the
        # keys, or if the number stands for what another tool has written as a text
        if KEY in self.order and (plan.key.compared is None or sorts_like_number(plan, side)):
            ordered[0] = table.system.quote(key.name)
        values = digests.shown[side] if self.fields else ()
        expressions = [*numbers, str(digests.row[side]), *values]
        prefix = alias_prefix(where, *ordered, *expressions)
        selected = ", ".join(f"{sql} AS {prefix}{at}" for at, sql in enumerate(expressions))
        return (
            f"SELECT {selected} FROM {read_from(table)} WHERE {where} ORDER BY {', '.join(ordered)}"
        )

    def frame(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Name the columns of a batch of `query`."""
        width = len(self.order) + 1
        numbers = [column.cast(pa.int64()) for column in batch.columns[:width]]
        values = [_bytes(column) for column in batch.columns[width:]]
        names = [*self.order, DIGEST, *self.columns]
        return pa.RecordBatch.from_arrays([*numbers, *values], names)


def _bytes(column: pa.Array) -> pa.Array:
    """Cast to bytes: ClickHouse does not promise that its texts are valid UTF-8."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.cast(pa.large_binary())


def summed(digests: pa.Array | pa.ChunkedArray) -> int:
    """Sum up digests, which takes more than 64 bits."""
    return int(pc.sum(digests.cast(pa.decimal128(38, 0))).as_py() or 0)


def letters(difference: Difference) -> int:
    """Count the letters of an example's values."""
    values = difference.source, difference.target, *difference.row.values()
    return sum(len(value) for value in values if value)


class _Stream:
    """The frames of one side, read ahead as far as the comparison needs."""

    def __init__(self, reader: pa.RecordBatchReader, layout: RowLayout) -> None:
        self._reader, self._layout = reader, layout
        self._frames: list[pa.RecordBatch] = []
        self.ended = False
        self.rows = self.digest = 0

    def read(self) -> None:
        """Buffer the next batch that has rows."""
        for batch in self._reader:
            if batch.num_rows:
                self._frames.append(self._layout.frame(batch))
                self.rows += batch.num_rows
                self.digest += summed(self._frames[-1].column(DIGEST))
                return
        self.ended = True

    def last(self) -> tuple[int, ...] | None:
        """The numbers of `RowLayout.order` of the last row in the buffer."""
        if not self._frames:
            return None
        return tuple(self._frames[-1].column(name)[-1].as_py() for name in self._layout.order)

    def take(self, bound: tuple[int, ...] | None) -> pa.Table | None:
        """Take the rows before `bound` out of the buffer; None takes all."""
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
    """Count the rows of an ordered frame that come before a bound."""
    low, high = 0, len(frame)
    for name, value in zip(order, bound, strict=True):
        column = frame.column(name).slice(low, high - low)
        below, above = pc.less(column, value), pc.greater(column, value)
        low, high = low + below.true_count, high - above.true_count
    return low


def _chunks(source: _Stream, target: _Stream) -> Iterator[tuple[pa.Table | None, pa.Table | None]]:
    """Yield the rows of the same keys from both sides, once neither can have more of these keys."""
    source.read()
    target.read()
    while not (source.ended and target.ended):
        unfinished = [(stream.last(), stream) for stream in (source, target) if not stream.ended]
        bound = min(last for last, _ in unfinished if last is not None)
        yield source.take(bound), target.take(bound)
        for last, stream in unfinished:
            if last == bound:
                stream.read()
    yield source.take(None), target.take(None)


class _Tally:
    """Counts differences, and keeps the first ones as examples."""

    def __init__(self, layout: RowLayout, limit: int, sink: Sink | None) -> None:
        self._layout, self._limit, self._sink = layout, limit, sink
        self._missing = self._extra = self._different = 0
        self._by_column: dict[str, int] = {}
        self._examples: list[Difference] = []
        self._letters = 0

    def differences(self, rows: int, target_rows: int) -> Differences:
        return Differences(
            missing_in_target=self._missing,
            extra_in_target=self._extra,
            different=self._different,
            by_column=self._by_column,
            examples=tuple(self._examples),
            rows_compared=rows,
            target_rows_compared=target_rows,
            named_by=tuple(self._layout.fields[i].name for i in self._layout.named_by),
            primary_key=tuple(self._layout.fields[i].name for i in self._layout.primary_key),
        )

    def add(self, chunk: Chunk) -> None:
        """Count the differences of one chunk."""
        source, target, pairs = chunk.source, chunk.target, chunk.pairs
        self._missing += len(chunk.missing)
        self._extra += len(chunk.extra)
        self._different += len(pairs)
        if not self._layout.fields:
            return
        source_rows = chunk.rows("different", "source")
        target_rows = chunk.rows("different", "target")
        unequal = self._unequal(source_rows, target_rows)
        most = None if self._sink else self._room()
        ordered = sorted(
            [
                *self._one_sided(source, chunk.missing, "missing_in_target", most),
                *self._one_sided(target, chunk.extra, "extra_in_target", most),
                *self._changed(source_rows, target_rows, unequal, most),
            ],
            key=lambda item: item[0],
        )
        differences = [difference for _, difference in ordered]
        if self._sink and differences:
            self._sink(differences)
        for difference in differences[: self._room()]:
            if self._room():
                self._examples.append(difference)
                self._letters += letters(difference)

    def _room(self) -> int:
        """How many more examples are kept."""
        room = max(0, self._limit - len(self._examples))
        return room if self._letters < EXAMPLE_LETTERS else 0

    def _unequal(self, source: pa.Table, target: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Column -> which of the paired rows differ in it; only columns in which some do."""
        unequal = {}
        for field, name in zip(self._layout.fields, self._layout.columns, strict=True):
            both_null = pc.and_(source[name].is_null(), target[name].is_null())
            differ = pc.and_not(
                pc.fill_null(pc.not_equal(source[name], target[name]), True), both_null
            )
            count = pc.sum(differ).as_py()
            if count:
                unequal[field.name] = differ
                self._by_column[field.name] = self._by_column.get(field.name, 0) + count
        return unequal

    def _one_sided(
        self, frame: pa.Table, rows: pa.Table, kind: DifferenceKind, most: int | None
    ) -> Iterator[tuple[tuple[int, ...], Difference]]:
        positions = rows.sort_by(POSITION)[POSITION].slice(0, most)
        for row in frame.take(positions).to_pylist():
            key = self._shown(row, self._layout.key)
            yield self._order(row), Difference(key, kind, row=self._named(row))

    def _changed(
        self,
        source: pa.Table,
        target: pa.Table,
        unequal: Mapping[str, pa.ChunkedArray],
        most: int | None,
    ) -> Iterator[tuple[tuple[int, ...], Difference]]:
        order = _sorted(source, self._layout.order).slice(0, most)
        differ = {name: rows.take(order).to_pylist() for name, rows in unequal.items()}
        rows = zip(source.take(order).to_pylist(), target.take(order).to_pylist(), strict=True)
        for position, (source_row, target_row) in enumerate(rows):
            for index, field in enumerate(self._layout.fields):
                if field.name in differ and differ[field.name][position]:
                    difference = Difference(
                        self._shown(source_row, self._layout.key),
                        "different",
                        field.name,
                        self._shown(source_row, index),
                        self._shown(target_row, index),
                        self._named(source_row),
                    )
                    yield self._order(source_row), difference

    def _order(self, row: Mapping[str, object]) -> tuple[int, ...]:
        return tuple(int(str(row[name])) for name in self._layout.order)

    def _named(self, row: Mapping[str, object]) -> dict[str, str | None]:
        """The value of `Difference.row`."""
        return {self._layout.fields[i].name: self._shown(row, i) for i in self._layout.named_by}

    def _shown(self, row: Mapping[str, object], index: int) -> str | None:
        field, value = self._layout.fields[index], row[self._layout.columns[index]]
        assert value is None or isinstance(value, bytes)
        if value is not None and field.kind != "bytes":
            return shown(field, value.decode(errors="backslashreplace"))
        return shown(field, value)


def _unequal(order: list[str], source: pa.Table | None, target: pa.Table | None) -> Chunk | None:
    """Find the rows of a chunk that differ; return None if none do."""
    if source is None and target is None:
        return None
    source = target.slice(0, 0) if source is None and target is not None else source
    target = source.slice(0, 0) if target is None and source is not None else target
    assert source is not None and target is not None
    compared = [*order, DIGEST]
    if source.select(compared).equals(target.select(compared)):
        return None
    source, target = source.combine_chunks(), target.combine_chunks()
    unmatched, others = _unmatched(source, target, compared)
    paired_by = [*order, _RANK]
    pairs = unmatched.join(
        others.select([*paired_by, POSITION]).rename_columns([*paired_by, TARGET_POSITION]),
        paired_by,
        join_type="inner",
        use_threads=False,
    )
    missing = unmatched.join(others, paired_by, join_type="left anti", use_threads=False)
    extra = others.join(unmatched, paired_by, join_type="left anti", use_threads=False)
    return Chunk(source, target, missing, extra, pairs)


def _unmatched(
    source: pa.Table, target: pa.Table, compared: Sequence[str]
) -> tuple[pa.Table, pa.Table]:
    """Remove the rows of a chunk that are equal on both sides, one for one.

    Returns:
        The remaining rows of each side: the columns `compared`, the position in the chunk, and a
        rank among the rows of the same identity, by which the two sides can be paired.
    """
    source_ranks, target_ranks = (
        _ranked(frame.select(compared).append_column(POSITION, _positions(len(frame))), compared)
        for frame in (source, target)
    )

    def remaining(rows: pa.Table, others: pa.Table) -> pa.Table:
        unequal = rows.join(others, [*compared, _RANK], join_type="left anti", use_threads=False)
        return _ranked(unequal.drop(_RANK), compared[:-1])

    return remaining(source_ranks, target_ranks), remaining(target_ranks, source_ranks)


def _ranked(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Number the rows that have the same values in some columns, from 0."""
    rows = rows.take(_sorted(rows, [*names, POSITION])).combine_chunks()
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
    """Return the positions of rows in the order of some columns."""
    return pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])
