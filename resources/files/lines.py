"""Lines of NDJSON that DuckDB does not read itself: long ones, of which it would read too many at
once, and those of a file with a byte order mark, which its reader of JSON refuses."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.resources.files.database import register
from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.folder import PIECE, File, once_per_version, opened
from tableferry.resources.files.reading import LONGEST
from tableferry.resources.keys.range import ROW

if TYPE_CHECKING:  # it takes a tenth of a second to import
    import duckdb

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
