"""The files of a query as tables of its database: as DuckDB reads them, or as pyarrow does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from tableferry.resources.files import delimited, parquet
from tableferry.resources.files.database import register
from tableferry.resources.files.described import Names
from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.folder import File
from tableferry.resources.files.lines import attached
from tableferry.resources.files.reading import reading, row_number, stretch
from tableferry.resources.keys.range import ROW

if TYPE_CHECKING:  # it takes a tenth of a second to import
    import duckdb

Rows = tuple[int, int | None]
"""The first of some rows of a file, by number, and the one after their last; None: to its end."""
ALL_ROWS: Rows = 1, None


class Attaching:
    """Makes files tables of a database.

    Args:
        database: the database.
        failures: see `database.register`.
        loaded: the rows that are loaded, as pyarrow reads them; None: they are counted or digested,
            as DuckDB does, unless they are too large for it.
        needed: the columns that are read by pyarrow, in lower case; None: all.
    """

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        failures: list[Exception],
        loaded: Rows | None = None,
        needed: Collection[str] | None = None,
    ) -> None:
        self._database, self._failures = database, failures
        self._loaded, self._needed = loaded, needed
        self.ended = threading.Event()
        """To be set once nobody asks for rows any more: then pyarrow reads none."""
        self.streams = False
        """Whether pyarrow reads some of the rows."""

    def table(
        self, file: File, columns: Names, rows: Rows | None, *, filtered: bool
    ) -> tuple[Names, str, str]:
        """Make a file a table.

        Args:
            file: the file.
            columns: its columns.
            rows: the rows that the query is about, if it says so.
            filtered: whether the query has a filter, see `reading.stretch`.

        Returns:
            The columns of the table, what to write behind FROM, and the number of a row.
        """
        loads = self._loaded is not None
        if file.format == "csv" and loads:
            columns = self._read(columns)
            return self._registered(file, columns, *delimited.stream(file, columns))
        if file.format == "parquet" and (loads or parquet.footer(file).has_large_rows):
            columns = self._read(columns)
            read = parquet.stream(file, columns, self._loaded or rows or ALL_ROWS)
            return self._registered(file, columns, *read)
        if file.format == "parquet" and filtered and rows:
            return columns, stretch(file, columns, *rows), row_number(file, columns)
        lines = None
        if file.format == "ndjson":
            lines = attached(self._database, file, self._failures, self.ended)
            self.streams = self.streams or lines is not None
        return columns, reading(file, columns, lines), row_number(file, columns)

    def _read(self, columns: Names) -> Names:
        needed = self._needed
        return {
            name: type_
            for name, type_ in columns.items()
            if needed is None or name.casefold() in needed
        }

    def _registered(
        self,
        file: File,
        columns: Names,
        schema: pa.Schema,
        batches: Callable[[], Iterable[pa.RecordBatch]],
    ) -> tuple[Names, str, str]:
        name = f"ferry rows of {file.path}"
        register(self._database, name, schema, batches, self._failures, self.ended)
        self.streams = True
        return columns, DIALECT.quote(name), f'"{ROW}"'
