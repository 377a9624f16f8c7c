"""Writes differing rows to a Parquet file, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tableferry.checks.verdict import Difference

Write = Callable[[Sequence[Difference]], None]

SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("table", "key", "kind", "column", "source", "target")]
    # the columns of the primary key, which are others in each table
    + [("row", pa.map_(pa.string(), pa.string()))]
)


@contextmanager
def difference_file(path: Path | None) -> Iterator[Callable[[str], Write | None]]:
    """Open a file for differences, and give who writes those of one target table to it.

    Without a path nothing is written.
    """
    if path is None:
        yield lambda table: None
        return
    with path.open("wb") as file, pq.ParquetWriter(file, SCHEMA) as writer:

        def of_table(table: str) -> Write:
            def write(found: Sequence[Difference]) -> None:
                rows = [
                    {
                        "table": table,
                        "key": one.key,
                        "kind": one.kind,
                        "column": one.column,
                        "source": one.source,
                        "target": one.target,
                        "row": list(one.row.items()),
                    }
                    for one in found
                ]
                writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))

            return write

        yield of_table
