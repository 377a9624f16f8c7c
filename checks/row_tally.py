"""Compares the rows of both sides, counts those that differ, and keeps the first as examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.checks import rowhash
from tableferry.checks.verdict import SHARD, Difference, DifferenceKind, Differences, Sink
from tableferry.resources.digest.definition import shown

EXAMPLE_LETTERS = 16 << 20
"""Maximum letters of all examples together, which may be documents of megabytes each."""


@dataclass(frozen=True)
class Compared:
    """The outcome of a comparison of rows, and how many it read."""

    differences: Differences
    source_rows: int
    target_rows: int
    source_digest: int
    """The sum of the digests of these rows."""
    target_digest: int


def merge_rows(
    layout: rowhash.RowLayout,
    source: rowhash.RowStream,
    target: rowhash.RowStream,
    *,
    limit: int = 20,
    sink: Sink | None = None,
) -> Compared:
    """Compare two streams of rows, ordered alike, in one pass.

    Args:
        layout: their columns.
        source: the rows of the source.
        target: those of the target.
        limit: maximum number of examples.
        sink: gets every difference, chunk by chunk in key order.
    """
    tally = _Tally(layout, limit, sink)
    for chunk in rowhash.chunks_that_differ(layout, source, target):
        tally.add(chunk)
    differences = tally.differences(source.rows, target.rows)
    return Compared(differences, source.rows, target.rows, source.digest, target.digest)


def letters(difference: Difference) -> int:
    """Count the letters of an example's values."""
    values = difference.source, difference.target, *difference.row.values()
    return sum(len(value) for value in values if value)


class _Tally:
    """Counts differences, and keeps the first ones as examples."""

    def __init__(self, layout: rowhash.RowLayout, limit: int, sink: Sink | None) -> None:
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
            named_by=(
                *(self._layout.fields[i].name for i in self._layout.named_by),
                *((SHARD,) if self._layout.sharded else ()),
            ),
            primary_key=tuple(self._layout.fields[i].name for i in self._layout.primary_key),
        )

    def add(self, chunk: rowhash.Chunk) -> None:
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
        positions = rows.sort_by(rowhash.POSITION)[rowhash.POSITION].slice(0, most)
        for row in frame.take(positions).to_pylist():
            key = self._shown(row, self._layout.key)
            yield self._order(row), Difference(key, kind, row=self._named(row, row))

    def _changed(
        self,
        source: pa.Table,
        target: pa.Table,
        unequal: Mapping[str, pa.ChunkedArray],
        most: int | None,
    ) -> Iterator[tuple[tuple[int, ...], Difference]]:
        order = rowhash.sorted_rows(source, self._layout.order).slice(0, most)
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
                        self._named(source_row, target_row),
                    )
                    yield self._order(source_row), difference

    def _order(self, row: Mapping[str, object]) -> tuple[int, ...]:
        return tuple(int(str(row[name])) for name in self._layout.order)

    def _named(
        self, row: Mapping[str, object], other: Mapping[str, object]
    ) -> dict[str, str | None]:
        """The value of `Difference.row`, of a row and the other side's, or of one that is alone."""
        named = {self._layout.fields[i].name: self._shown(row, i) for i in self._layout.named_by}
        if self._layout.sharded:
            shards = (each.get(SHARD) for each in (row, other))
            texts = [each.decode() for each in shards if isinstance(each, bytes)]
            named[SHARD] = ", ".join(dict.fromkeys(texts)) or None
        return named

    def _shown(self, row: Mapping[str, object], index: int) -> str | None:
        field, value = self._layout.fields[index], row[self._layout.columns[index]]
        assert value is None or isinstance(value, bytes)
        if value is not None and field.kind != "bytes":
            return shown(field, value.decode(errors="backslashreplace"))
        return shown(field, value)
