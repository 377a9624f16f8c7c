"""Rows of text: split into columns, or with their number where the bytes do not tell it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

BACKSLASH = "\0"
"""A placeholder for escaped backslashes; the texts of these systems cannot hold it."""

ESCAPES = {
    "\\\\": BACKSLASH,
    "\\x5C": BACKSLASH,
    "\\t": "\t",
    "\\n": "\n",
    "\\r": "\r",
    "\\b": "\b",
    "\\f": "\f",
    "\\v": "\v",
    "\\a": "\a",
    "\\": "",
    BACKSLASH: "\\",
}
"""The characters for escape sequences, in the order of replacement. As in ClickHouse, a backslash
before any other character is dropped."""


def tab_separated(chunk: bytes, count: int) -> list[pa.ChunkedArray]:
    r"""Split rows for ClickHouse into columns, as PostgreSQL's COPY and our T-SQL write them.

    Fields end at tabs, rows at newlines, NULL is `\N`; values escape both, carriage returns and
    backslashes.
    https://www.postgresql.org/docs/current/sql-copy.html#id-1.9.3.55.9.2

    Args:
        chunk: whole rows.
        count: the number of columns.
    """
    names = [str(position) for position in range(count)]
    table = csv.read_csv(
        pa.BufferReader(chunk),
        csv.ReadOptions(column_names=names, block_size=len(chunk) + 1, use_threads=False),
        csv.ParseOptions(
            delimiter="\t", quote_char=False, escape_char=False, ignore_empty_lines=False
        ),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.large_string()),
            null_values=["\\N"],
            strings_can_be_null=True,
        ),
    )
    return [_unescaped(column) for column in table.columns]


def _unescaped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pc.any(pc.match_substring(column, "\\")).as_py():
        return column
    for escape, character in ESCAPES.items():
        column = pc.replace_substring(column, escape, character)
    return column


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
