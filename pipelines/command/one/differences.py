"""Writes differing rows to a Parquet file in chunks."""

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
    # the primary key's values by column; tables have different keys
    + [("row", pa.map_(pa.string(), pa.string()))]
)


@contextmanager
def difference_file(path: Path | None) -> Iterator[Callable[[str], Write | None]]:
    """Open a file for differences; yields a function that returns the writer for a target table.

    Without a path the writer is None.
    """
    if path is None:
        yield lambda table: None
        return
    with path.open("wb") as file, pq.ParquetWriter(file, SCHEMA) as writer:

        def writer_for(table: str) -> Write:
            def write(differences: Sequence[Difference]) -> None:
                rows = [
                    {"table": table, **vars(item), "row": list(item.row.items())}
                    for item in differences
                ]
                writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))

            return write

        yield writer_for
