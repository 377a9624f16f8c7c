"""Framed rows: no value can end a field, whatever is in it, without being noticed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableferry.resources.contract.delimited import (
    FIELD,
    ROW,
    Framing,
    TerminatorInData,
    framed_rows,
    text_bytes,
)
from tableferry.resources.registry import system

FRAMING = Framing("~abcdefghf", "~abcdefghr")
PIECES = st.lists(
    st.sampled_from([*FRAMING.field, *FRAMING.row, FRAMING.field[:-1], FRAMING.row[1:], "~", "x"]),
    max_size=12,
).map("".join)


@settings(deadline=None)
@given(st.lists(st.lists(PIECES, min_size=3, max_size=3), max_size=5))
def test_rows_are_split_as_they_were_joined_or_refused(rows: list[list[str]]) -> None:
    """A reader that looks for the first terminator from the left, as bcp does."""
    texts = [FRAMING.field.join(row) + FRAMING.row for row in rows]
    batch = pa.record_batch([pa.array(texts, pa.string())], ["x"])
    inside = any(
        mark in value for row in rows for value in row for mark in (FRAMING.field, FRAMING.row)
    )
    if inside:
        with pytest.raises(TerminatorInData):
            list(framed_rows([batch], FRAMING, 3))
        return
    data = b"".join(framed_rows([batch], FRAMING, 3)).decode()
    assert [row.split(FRAMING.field) for row in data.split(FRAMING.row)[:-1]] == rows


@settings(deadline=None)
@given(
    st.lists(st.text()),
    st.integers(0, 5),
    st.integers(0, 5),
    st.sampled_from([pa.string(), pa.large_string()]),
)
def test_bytes_of_slices(texts: list[str], start: int, length: int, type_: pa.DataType) -> None:
    array = pa.array(texts, type_).slice(min(start, len(texts)), length)
    assert text_bytes(array) == "".join(array.to_pylist()).encode()


def test_terminators_are_fresh_printable_and_short_enough_for_bcp() -> None:
    found = [Framing.fresh() for _ in range(50)]
    assert len({mark for one in found for mark in (one.field, one.row)}) == 100
    for one in found:
        for mark in (one.field, one.row):
            assert len(mark) == 10
            assert mark.rfind("~") == 0
            assert mark.isascii() and mark.isprintable()


@pytest.mark.parametrize("columns", [1, 2, 39, 40, 500, 1600])
def test_wide_rows_are_concatenated_by_calls_of_at_most_40_arguments(columns: int) -> None:
    sql = system("postgres").dialect.framed_row([f"c{n}" for n in range(columns)])
    assert sql.count(FIELD) == columns - 1
    assert sql.count(ROW) == 1
    assert FRAMING.in_query(sql).count(FRAMING.field) == columns - 1
    flat = sql.replace("concat(", "").replace(")", "")
    assert [part for part in flat.split(", ") if part.startswith("c")] == [
        f"c{n}" for n in range(columns)
    ]
