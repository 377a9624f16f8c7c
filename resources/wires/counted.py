"""Data that carries its number of rows, where its bytes do not tell it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


class Counted:
    """Batches for a driver that would report their own error only as text; `error` keeps it."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = self.bytes = 0
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                self.rows += batch.num_rows
                self.bytes += batch.nbytes
                yield batch
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise


class CountedBytes(bytes):
    """Whole rows in a format in which the ends of rows cannot be counted."""

    rows: int = 0
