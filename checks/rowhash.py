"""Merges the rows of both sides in key order: their digests for `sample_hash` and `full_hash`, and
their values for the drill-down.

Both sides are read ordered by the key and compared in chunks; a chunk is all rows up to a key that
both have passed. So memory holds a few batches, whatever the range's size; only rows that share a
key (and have no primary key to order them further) must fit into memory together.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.checks.verdict import SHARD, DifferenceKind
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.digest.expressions import key_number

BATCH_ROWS = 32_768
"""Rows per batch and side; larger batches were no faster in tableferry_bench.reconcile."""

KEY, IDENTITY, DIGEST = "key", "identity", "digest"
"""Columns of frames: the key's number, and the digests of the row's identity and of the row."""

POSITION, TARGET_POSITION, _RANK = "position", "target_position", "rank"


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

    def values(self, name: str) -> pa.Array:
        """Return the values, each once and in order, of a column of `RowLayout.order` that the rows
        of any difference have."""
        rows = pa.concat_tables(
            [each.select([name]) for each in (self.missing, self.extra, self.pairs)]
        )
        values = pc.unique(rows[name])
        return values.take(pc.sort_indices(values))


def chunks_that_differ(layout: RowLayout, source: RowStream, target: RowStream) -> Iterator[Chunk]:
    """Yield what differs of two streams, chunk by chunk."""
    for rows in _chunks(source, target):
        if (chunk := _unequal(list(layout.order), *rows)) is not None:
            yield chunk


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
    sharded: bool = False
    """Whether the rows of a side come with the number of the server that has them."""

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

    def frame(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Name the columns of a batch of `TableSide.row_query`."""
        width = len(self.order) + 1
        numbers = [column.cast(pa.int64()) for column in batch.columns[:width]]
        values = [_bytes(column) for column in batch.columns[width:]]
        names = [*self.order, DIGEST, *self.columns, SHARD][: len(batch.columns)]
        return pa.RecordBatch.from_arrays([*numbers, *values], names)


def _bytes(column: pa.Array) -> pa.Array:
    """Cast to bytes: ClickHouse does not promise that its texts are valid UTF-8."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.cast(pa.large_binary())


def summed(digests: pa.Array | pa.ChunkedArray) -> int:
    """Sum up digests, which takes more than 64 bits."""
    return int(pc.sum(digests.cast(pa.decimal128(38, 0))).as_py() or 0)


class RowStream:
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


def _chunks(
    source: RowStream, target: RowStream
) -> Iterator[tuple[pa.Table | None, pa.Table | None]]:
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
    rows = rows.take(sorted_rows(rows, [*names, POSITION])).combine_chunks()
    count = len(rows)
    if not count:
        return rows.append_column(_RANK, pa.array([], pa.int64()))
    begins = [pc.not_equal(rows[name].slice(1), rows[name].slice(0, count - 1)) for name in names]
    first = pc.if_else(functools.reduce(pc.or_, begins), _positions(count).slice(1), 0)
    starts = pc.cumulative_max(pa.chunked_array([pa.array([0], pa.int64()), *first.chunks]))
    return rows.append_column(_RANK, pc.subtract(_positions(count), starts))


def _positions(count: int) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def sorted_rows(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Return the positions of rows in the order of some columns."""
    return pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])
