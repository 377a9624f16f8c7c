r"""Rows of text for ClickHouse, taken apart: what PostgreSQL's COPY and our T-SQL write.

Fields end at tabs, rows at newlines, NULL is `\N`, and both characters, carriage returns and the
backslash are escaped in values.
https://www.postgresql.org/docs/current/sql-copy.html#id-1.9.3.55.9.2
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pyarrow.csv as csv

BACKSLASH = "\0"
"""Stands for an escaped backslash meanwhile; no text of these systems holds it."""

ESCAPES = {
    "\\\\": BACKSLASH,
    "\\x5C": BACKSLASH,
    "\\t": "\t",
    "\\n": "\n",
    "\\r": "\r",
    "\\b": "\b",
    "\\f": "\f",
    "\\v": "\v",
    BACKSLASH: "\\",
}
"""In this order."""


def columns_of(chunk: bytes, count: int) -> list[pa.ChunkedArray]:
    """The fields of whole rows as texts, column by column.

    Args:
        chunk: whole rows.
        count: how many columns there are.
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
    texts = pl.Series("x", column)
    if not texts.str.contains("\\", literal=True).any():
        return column
    expression = pl.col("x")
    for escape, character in ESCAPES.items():
        expression = expression.str.replace_all(escape, character, literal=True)
    return pa.chunked_array([texts.to_frame().select(expression)["x"].to_arrow()])
