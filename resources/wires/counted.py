"""Rows that are counted on their way, where the bytes themselves do not tell their number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


class Counted:
    """Batches on their way to the driver, which hands an error of theirs on as mere text."""

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
    """Whole rows in a format whose rows cannot be counted by looking for their ends."""

    rows: int = 0
