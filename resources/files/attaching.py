"""The files of a query as tables of its database, and ranges of them that load unchanged."""

from __future__ import annotations

import threading
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.files import delimited, described, parquet
from tableferry.resources.files.database import register
from tableferry.resources.files.delimited import is_streamed, lines
from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.folder import File
from tableferry.resources.files.reading import reading, row_number, stretch
from tableferry.resources.files.types import FILE, FROM_TEXT, export
from tableferry.resources.keys.range import ROW, KeyRange
from tableferry.resources.types.export import Export

if TYPE_CHECKING:
    import duckdb


def unchanged(plan: CopyPlan, columns: Mapping[str, str]) -> list[str] | None:
    """Find which of the file's `columns`, `FILE` and `ROW` each column of a plan loads as it is.

    Returns:
        The names in the plan's order; None if a value would change, or rows are filtered.
    """
    by_folded = {name.casefold(): name for name in columns}
    names = []
    for column in plan.columns:
        name, type_ = column.source.name, column.source.type
        in_file = name if name in (FILE, ROW) else by_folded.get(name.casefold())
        exported = export(type_)
        if in_file is None or not isinstance(exported, Export) or type_.endswith(FROM_TEXT):
            return None
        expected = exported.arrow.replace("{}", DIALECT.quote(name))
        same_type = in_file in (FILE, ROW) or columns[in_file] == type_
        if not same_type or exported.refuse or column.arrow_sql != expected:
            return None
        names.append(in_file)
    return None if plan.condition else names


def rows(
    file: File, names: list[str], key_range: KeyRange, batch_rows: int
) -> pa.RecordBatchReader:
    """Read the columns that `unchanged` names, of a range."""
    source, stored = parquet.stream(file, names, key_range.rows or (1, None), batch_rows)
    fields = {field.name: field for field in source}
    types = [pa.string() if name == FILE else _stored(fields[name].type) for name in names]
    schema = pa.schema([(f"ferry__{at}", type_) for at, type_ in enumerate(types)])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in stored:
            arrays = [
                pa.repeat(file.name, batch.num_rows) if name == FILE else batch.column(name)
                for name in names
            ]
            yield pa.RecordBatch.from_arrays(
                [_cast(array, type_) for array, type_ in zip(arrays, types, strict=True)],
                schema=schema,
            )

    return pa.RecordBatchReader.from_batches(schema, batches())


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    stored = array.storage if isinstance(array, pa.ExtensionArray) else array
    return stored if stored.type == type_ else stored.cast(type_)


def _stored(type_: pa.DataType) -> pa.DataType:
    """The Arrow type in which DuckDB sends a type: uuids as bytes, JSON as text."""
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    return pa.binary() if pa.types.is_fixed_size_binary(type_) else type_


Rows = tuple[int, int | None]
"""The first of some rows of a file, by number, and the one after their last; None: to its end."""
ALL_ROWS: Rows = 1, None

_NUMBER = f'"{ROW}"'


class Attaching:
    """Makes files tables of a database.

    Args:
        database: the database.
        failures: see `database.register`.
        loaded: the rows of a single file that are loaded, as pyarrow reads them; None: they are
            counted or digested, as DuckDB does, unless they are too large for it.
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
        self._ended = threading.Event()
        self._streams = False
        self._parts: tuple[str, Iterable[pa.RecordBatch]] | None = None

    def table(
        self, file: File, columns: described.Names, rows: Rows | None, *, filtered: bool
    ) -> tuple[described.Names, str, str]:
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
            rows_read = delimited.stream(file, columns, described.longest_row(file))
            return columns, self._named(file, *rows_read), _NUMBER
        if file.format == "parquet" and (loads or parquet.footer(file).has_large_rows):
            columns = self._read(columns)
            rows_read = parquet.stream(file, columns, self._loaded or rows or ALL_ROWS)
            return columns, self._named(file, *rows_read), _NUMBER
        if file.format == "parquet" and filtered and rows:
            return columns, stretch(file, columns, *rows), row_number(file, columns)
        if file.format == "ndjson" and is_streamed(file):
            return columns, reading(file, columns, self._named(file, *lines(file))), _NUMBER
        return columns, reading(file, columns), row_number(file, columns)

    @contextmanager
    def results(self, sql: str, most_rows: int) -> Iterator[pa.RecordBatchReader]:
        """Run a query on the tables, and stream its result.

        A query that loads runs on one batch of pyarrow's after the other, since each row of it is
        about one of the file: DuckDB 1.5 holds the result of a whole file back by the number of its
        rows, whatever their bytes.

        Args:
            sql: the query.
            most_rows: maximum number of rows of a batch.
        """
        reader = self._database.execute(sql).to_arrow_reader(most_rows)
        if self._parts is not None:
            batches = self._of_parts(sql, most_rows, *self._parts)
            with closing(batches):
                yield pa.RecordBatchReader.from_batches(reader.schema, batches)
            return
        try:
            yield reader
        finally:
            # DuckDB's remaining threads would call Python after its end
            self._ended.set()
            with suppress(Exception):
                for _ in reader if self._streams else ():
                    pass

    def _of_parts(
        self, sql: str, most_rows: int, name: str, batches: Iterable[pa.RecordBatch]
    ) -> Generator[pa.RecordBatch]:
        for batch in batches:
            register(self._database, name, batch.schema, [batch], self._failures)
            yield from self._database.execute(sql).to_arrow_reader(most_rows)

    def _read(self, columns: described.Names) -> described.Names:
        needed = self._needed
        return {
            name: type_
            for name, type_ in columns.items()
            if needed is None or name.casefold() in needed
        }

    def _named(self, file: File, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> str:
        """Make what is read of a file a table, and return its name for a query."""
        name = f"ferry rows of {file.path}"
        if self._loaded is not None:
            self._parts = name, batches
            self._database.register(name, schema.empty_table())
        else:
            register(self._database, name, schema, batches, self._failures, self._ended)
            self._streams = True
        return DIALECT.quote(name)
