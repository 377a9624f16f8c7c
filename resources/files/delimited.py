"""CSV files as pyarrow reads them; what DuckDB does not read alike is refused."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pc

from tableferry.resources.contract.refusals import SHOWN
from tableferry.resources.files.database import opened as database_of
from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.folder import File, FileUnreadable, header, opened
from tableferry.resources.files.reading import LONGEST, reading
from tableferry.resources.files.store import Folder
from tableferry.resources.keys.range import ROW


def batches(
    file: File, wanted: Collection[str], fail: Callable[[Exception], None]
) -> pa.RecordBatchReader:
    """The rows of a file as texts, with their numbers in the column `ROW`.

    Args:
        file: the file.
        wanted: the columns that matter.
        fail: gets what fails, since the reader's consumer keeps only the text of it.
    """
    names = [name for name in header(file)[1] if name in wanted]
    schema = pa.schema([*(pa.field(name, pa.string()) for name in names), (ROW, pa.int64())])

    def rows() -> Iterator[pa.RecordBatch]:
        first = 1
        try:
            for batch in _texts(file):
                numbers = pa.arange(first, first + batch.num_rows)
                arrays = [batch.column(name) for name in names]
                yield pa.RecordBatch.from_arrays([*arrays, numbers], schema=schema)
                first += batch.num_rows
        except Exception as error:
            fail(error)
            raise

    return pa.RecordBatchReader.from_batches(schema, rows())


def _texts(file: File) -> Iterator[pa.RecordBatch]:
    delimiter, names = header(file)
    try:
        with _stream(file) as stream:
            reader = pc.open_csv(
                stream,
                # the first line is the header; a row has to fit into a block
                pc.ReadOptions(column_names=names, skip_rows=1, block_size=LONGEST),
                pc.ParseOptions(
                    delimiter=delimiter,
                    newlines_in_values=True,
                    # a line without a delimiter is a row only where there is one column
                    ignore_empty_lines=len(names) > 1,
                ),
                pc.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            try:
                yield from reader
            finally:
                # its thread reads ahead, and must not be waited for by one that holds Python's lock
                if isinstance(stream, _Ending):
                    stream.ended = True
                    with suppress(pa.ArrowException):
                        for _ in reader:
                            pass
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise file.unreadable(str(error)[:SHOWN]) from None


@contextmanager
def _stream(file: File) -> Iterator[Any]:
    """A file's bytes, unpacked; of this machine's files without Python."""
    if isinstance(file.store, Folder):
        with pa.OSFile(file.path) as raw:
            yield pa.CompressedInputStream(raw, file.compression) if file.compression else raw
    else:
        with opened(file) as stream:
            yield _Ending(stream)


class _Ending(io.RawIOBase):
    """A stream that can be made to end."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream, self.ended = stream, False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return b"" if self.ended else self._stream.read(size)


def require_alike(file: File, rows: int, total: object) -> None:
    """Refuse a file that pyarrow does not read as DuckDB does.

    Args:
        file: the file.
        rows: those that DuckDB read.
        total: its `row_hashes` of them.

    Raises:
        FileUnreadable: names the row and the column where they first differ, and both values.
    """
    names = header(file)[1]
    failures: list[Exception] = []
    with database_of(file.store, failures) as database:
        database.register("ferry_other", batches(file, names, failures.append))
        sql = f"SELECT count(*), {row_hashes(names)} FROM ferry_other"
        if database.execute(sql).fetchall() == [(rows, total)]:
            return
    raise _difference(file, names) or file.unreadable("two readers find other rows in it")


def row_hashes(names: Collection[str]) -> str:
    """An aggregate of rows of texts that differs where one of them does."""
    return f"sum({_hash(names)})"


def _hash(names: Collection[str]) -> str:
    return f"hash({', '.join(DIALECT.quote(name) for name in names)})"


def _difference(file: File, names: Collection[str]) -> FileUnreadable | None:
    """The first row that the two readers read differently."""
    failures: list[Exception] = []
    selected = ", ".join(DIALECT.quote(name) for name in names)
    own = f"(SELECT row_number() OVER () AS {ROW}, * FROM {reading(file, names)})"
    with database_of(file.store, failures) as database:

        def asked(sql: str) -> tuple[Any, ...] | None:
            database.register("ferry_other", batches(file, names, failures.append))
            # all of it: what is under way would be waited for when the next one is registered
            found = database.execute(sql).fetchall()
            return found[0] if found else None

        hashes = f"SELECT {ROW}, {_hash(names)} AS h FROM"
        found = asked(
            f"SELECT min({ROW}) FROM ({hashes} {own}) a FULL JOIN ({hashes} ferry_other) b "
            f"USING ({ROW}) WHERE a.h IS DISTINCT FROM b.h"
        )
        number = found and found[0]
        if number is None:
            return None
        texts = [
            asked(f"SELECT {selected} FROM {table} WHERE {ROW} = {number}")
            for table in (own, "ferry_other")
        ]
    own_texts, other_texts = texts
    if own_texts is None or other_texts is None:
        return file.unreadable(f"two readers do not find the same rows in it, from row {number} on")
    name, own_text, other_text = next(
        differing
        for differing in zip(names, own_texts, other_texts, strict=True)
        if differing[1] != differing[2]
    )
    return file.unreadable(
        f"column {name!r} of row {number} is {own_text!r} to one reader and {other_text!r} to "
        "another: a field in quotes should begin and end with them, and have those within doubled"
    )
