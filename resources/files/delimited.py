"""CSV files, and lines of NDJSON, that DuckDB does not read itself.

A CSV file that DuckDB reads differently than pyarrow is refused. Lines of NDJSON are cut here where
they are long, as DuckDB would read too many at once, and in files with a byte order mark, which its
reader of JSON refuses.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from tableferry.resources.contract.batches import combined
from tableferry.resources.contract.endpoint import BATCH_ROWS
from tableferry.resources.errors import SHOWN, shortened
from tableferry.resources.files.database import opened as database_of
from tableferry.resources.files.database import register
from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.folder import (
    PIECE,
    File,
    FileUnreadable,
    header,
    once_per_version,
    opened,
)
from tableferry.resources.files.reading import LONGEST, reading
from tableferry.resources.files.store import Folder
from tableferry.resources.keys.range import ROW

if TYPE_CHECKING:
    import duckdb


BLOCK_BYTES = 1 << 20
"""Bytes that pyarrow parses at once, where no row is longer."""

_BY_PYARROW = "ferry_other"
"""The table of what pyarrow reads, where it is compared with what DuckDB reads."""


def stream(
    file: File, columns: Collection[str], longest: int
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Read some columns of a file as texts, with the rows' numbers in the column `ROW`.

    Args:
        file: the file.
        columns: the columns.
        longest: the most bytes of a row, see `row_length`.

    Returns:
        The schema, and the rows, which are read as they are asked for.
    """
    names = [name for name in header(file)[1] if name in columns]
    schema = pa.schema([*(pa.field(name, pa.string()) for name in names), (ROW, pa.int64())])

    def rows() -> Iterator[pa.RecordBatch]:
        first = 1
        for batch in combined(_texts(file, longest), BATCH_ROWS):
            numbers = pa.arange(first, first + batch.num_rows)
            arrays = [batch.column(name) for name in names]
            yield pa.RecordBatch.from_arrays([*arrays, numbers], schema=schema)
            first += batch.num_rows

    return schema, rows()


def _texts(file: File, longest: int) -> Iterator[pa.RecordBatch]:
    delimiter, names = header(file)
    # with each byte a quote, doubled, and each field in quotes
    written = 2 * max(longest, sum(len(name.encode()) for name in names)) + 3 * len(names)
    try:
        with _opened(file) as source:
            reader = arrow_csv.open_csv(
                source,
                # the first line is the header; a row has to fit into a block, of which pyarrow
                # reads 32 ahead
                arrow_csv.ReadOptions(
                    column_names=names,
                    skip_rows=1,
                    block_size=min(LONGEST, max(BLOCK_BYTES, written + 2)),
                ),
                arrow_csv.ParseOptions(
                    delimiter=delimiter,
                    newlines_in_values=True,
                    # a line without a delimiter is a row only where there is one column
                    ignore_empty_lines=len(names) > 1,
                ),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            try:
                yield from reader
            finally:
                # its thread reads ahead: whoever waits for it must not hold Python's lock
                if isinstance(source, _Stoppable):
                    source.ended = True
                    with suppress(pa.ArrowException):
                        for _ in reader:
                            pass
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise file.unreadable(str(error)[:SHOWN]) from None


@contextmanager
def _opened(file: File) -> Iterator[Any]:
    """Open a file and decompress it; a local one without Python."""
    if isinstance(file.store, Folder):
        with pa.OSFile(file.path) as raw:
            yield pa.CompressedInputStream(raw, file.compression) if file.compression else raw
    else:
        with opened(file) as source:
            yield _Stoppable(source)


class _Stoppable(io.RawIOBase):
    """A stream that can be ended early."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream, self.ended = stream, False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return b"" if self.ended else self._stream.read(size)


def require_alike(file: File, rows: int, total: object, longest: int) -> None:
    """Refuse a file that pyarrow reads differently from DuckDB.

    Args:
        file: the file.
        rows: the number of rows that DuckDB read.
        total: DuckDB's `row_hashes` of them.
        longest: DuckDB's `row_length` of them.

    Raises:
        FileUnreadable: names the row and the column where they first differ, and both values.
    """
    names = header(file)[1]
    failures: list[Exception] = []
    with database_of(file.store, failures) as database:
        register(database, _BY_PYARROW, *stream(file, names, longest), failures)
        sql = f"SELECT count(*), {row_hashes(names)} FROM {_BY_PYARROW}"
        if database.execute(sql).fetchall() == [(rows, total)]:
            return
    raise _difference(file, names, longest) or file.unreadable("two readers find other rows in it")


def row_hashes(names: Collection[str]) -> str:
    """An aggregate over rows of texts, which shows any difference."""
    return f"sum({_hash(names)})"


def row_length(names: Collection[str]) -> str:
    """An aggregate: the most bytes that the texts of a row have."""
    return f"max({' + '.join(f'coalesce(strlen({DIALECT.quote(name)}), 0)' for name in names)})"


def _hash(names: Collection[str]) -> str:
    return f"hash({', '.join(DIALECT.quote(name) for name in names)})"


def _difference(file: File, names: Collection[str], longest: int) -> FileUnreadable | None:
    """The error that names the first row that the two readers read differently."""
    failures: list[Exception] = []
    selected = ", ".join(DIALECT.quote(name) for name in names)
    by_duckdb = f"(SELECT row_number() OVER () AS {ROW}, * FROM {reading(file, names)})"
    with database_of(file.store, failures) as database:

        def first_row(sql: str) -> tuple[Any, ...] | None:
            register(database, _BY_PYARROW, *stream(file, names, longest), failures)
            # all rows: the next registration would wait for a query that is not at its end
            rows = database.execute(sql).fetchall()
            return rows[0] if rows else None

        hashes = f"SELECT {ROW}, {_hash(names)} AS h FROM"
        row = first_row(
            f"SELECT min({ROW}) FROM ({hashes} {by_duckdb}) a FULL JOIN ({hashes} {_BY_PYARROW}) b "
            f"USING ({ROW}) WHERE a.h IS DISTINCT FROM b.h"
        )
        number = row and row[0]
        if number is None:
            return None
        texts, other_texts = (
            first_row(f"SELECT {selected} FROM {table} WHERE {ROW} = {number}")
            for table in (by_duckdb, _BY_PYARROW)
        )
    if texts is None or other_texts is None:
        return file.unreadable(f"two readers do not find the same rows in it, from row {number} on")
    name, text, other_text = next(
        differing
        for differing in zip(names, texts, other_texts, strict=True)
        if differing[1] != differing[2]
    )
    return file.unreadable(
        f"column {name!r} of row {number} is {shortened(repr(text))} to one reader and "
        f"{shortened(repr(other_text))} to another: a field in quotes should "
        "begin and end with them, and have those within doubled"
    )


LONG = 2 << 10
"""The length of a line that is long: DuckDB reads 2,048 of them at once, holds each some ten times
while it takes them apart, and some dozens of such chunks as a result."""

_BLANKS = " \t\r"
_SCHEMA = pa.schema([("line", pa.string()), (ROW, pa.int64())])


def attached(
    database: duckdb.DuckDBPyConnection, file: File, failures: list[Exception]
) -> str | None:
    """Make the lines of a file a table, and return its name; None if DuckDB reads them itself.

    See `database.register`.
    """
    if not is_streamed(file):
        return None
    name = f"ferry lines of {file.path}"
    register(database, name, *lines(file), failures)
    return DIALECT.quote(name)


def lines(file: File) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Read the lines of a file that are not blank, with their numbers, from 1, in `ROW`.

    Returns:
        The schema, and the lines, which are read as they are asked for.
    """
    return _SCHEMA, _lines(file)


@once_per_version
def is_streamed(file: File) -> bool:
    """Whether a file has a long line, or begins with a byte order mark."""
    first = True
    for lines in _split(file):
        if first and lines.startswith(codecs.BOM_UTF8):
            return True
        # a line that goes on in the next piece is as long as one
        if _has_long_line(lines):
            return True
        first = False
    return False


def _has_long_line(lines: bytes) -> bool:
    start = 0
    while len(lines) - start > LONG:
        end = lines.rfind(b"\n", start, start + LONG + 1)
        if end < 0:
            return True
        start = end + 1
    return False


def _lines(file: File) -> Iterator[pa.RecordBatch]:
    next_number = 1
    for at, split in enumerate(_split(file)):
        text = split.removeprefix(codecs.BOM_UTF8) if at == 0 else split
        array = pc.split_pattern(pa.array([text], pa.large_binary()), b"\n").flatten()
        try:
            array = pc.utf8_trim(array.cast(pa.string()), _BLANKS)
        except pa.ArrowInvalid:
            raise file.unreadable("it is not UTF-8") from None
        array = array.filter(pc.not_equal(array, ""))
        numbers = pa.arange(next_number, next_number + len(array))
        next_number += len(array)
        yield pa.record_batch([array, numbers], schema=_SCHEMA)


def _split(file: File) -> Iterator[bytes]:
    """Read some whole lines at a time, without the last line break."""
    held: list[bytes] = []
    size = 0
    try:
        with opened(file) as stream:
            while piece := stream.read(PIECE):
                end = piece.rfind(b"\n")
                if end >= 0:
                    yield b"".join([*held, piece[:end]])
                    held, size = [], 0
                held.append(piece[end + 1 :])
                size += len(held[-1])
                if size > LONGEST:
                    raise file.unreadable(f"a line has more than {LONGEST} bytes")
    except (OSError, EOFError, ValueError) as error:
        raise file.unreadable(error) from None
    yield b"".join(held)
