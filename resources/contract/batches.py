"""Record batches that are bounded by bytes, whatever a row takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

BATCH_BYTES = 4 << 20
"""About the most bytes of a batch: 16 MiB, ADBC's default, takes more memory and is no faster."""

FETCHED_ROWS = 128
"""The most rows that a driver which knows no bytes is asked for at once. DuckDB is as fast as with
16,384 of them (0.3 CPU s per million rows of six columns); rows of 200 kB take 25 MB."""

FIRST_ROWS = 16
"""The rows of a first fetch, which nothing tells the size of."""


def slices(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Cut a batch into parts of as many rows as `BATCH_BYTES` holds on average: start, length."""
    if batch.num_rows:
        rows = max(1, batch.num_rows * BATCH_BYTES // max(BATCH_BYTES, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield start, min(rows, batch.num_rows - start)


def combined(batches: Iterable[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Combine batches to larger ones of at most `batch_rows` rows and about `BATCH_BYTES`.

    A batch that is as large already is yielded as it is.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        nbytes = batch.nbytes
        if held and (rows + batch.num_rows > batch_rows or size + nbytes > BATCH_BYTES):
            yield pa.concat_batches(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + nbytes
    if held:
        yield pa.concat_batches(held)


def fetched(fetch: Callable[[int], pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Fetch rows of unknown size, so many at once as fit into `BATCH_BYTES` by the largest so far.

    Args:
        fetch: returns at most so many rows, as are asked for; none at the end.
        batch_rows: maximum number of rows.
    """
    largest, rows = 1, min(batch_rows, FIRST_ROWS)
    while (batch := fetch(rows)).num_rows:
        yield batch
        largest = max(largest, batch.nbytes // batch.num_rows)
        rows = max(1, min(batch_rows, FETCHED_ROWS, BATCH_BYTES // largest))
