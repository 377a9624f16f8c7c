"""Lines of NDJSON that DuckDB does not read itself: long ones, of which it would read too many at
once, and those of a file with a byte order mark, which its reader of JSON refuses."""

from __future__ import annotations

import codecs
import threading
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.resources.files.database import register
from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.folder import PIECE, File, once_per_version, opened
from tableferry.resources.files.reading import LONGEST

if TYPE_CHECKING:  # it takes a tenth of a second to import
    import duckdb

LONG = 16 << 10
"""The length of a line that is long: DuckDB reads 2,048 of them at once, and holds each some ten
times while it takes them apart."""

_SCHEMA = pa.schema([("line", pa.string())])


def attached(
    database: duckdb.DuckDBPyConnection,
    file: File,
    failures: list[Exception],
    ended: threading.Event | None = None,
) -> str | None:
    """Make the lines of a file a table, and return its name; None if DuckDB reads them itself.

    See `database.register`.
    """
    if not _is_streamed(file):
        return None
    name = f"ferry lines of {file.path}"
    register(database, name, _SCHEMA, partial(_lines, file), failures, ended)
    return DIALECT.quote(name)


@once_per_version
def _is_streamed(file: File) -> bool:
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
    for at, lines in enumerate(_split(file)):
        text = lines.removeprefix(codecs.BOM_UTF8) if at == 0 else lines
        array = pc.split_pattern(pa.array([text], pa.large_binary()), b"\n")
        try:
            yield pa.record_batch([array.flatten().cast(pa.string())], schema=_SCHEMA)
        except pa.ArrowInvalid:
            raise file.unreadable("it is not UTF-8") from None


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
