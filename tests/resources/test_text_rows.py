"""Rows of text are split into the values that they were written from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.contract.delimited import END, END_BYTE, Framing
from tableferry.resources.wires.text_rows import framed, tab_separated

WRITTEN = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_tab_separated_text_is_read_as_it_was_written(text: str) -> None:
    escaped = text
    for character, escape in WRITTEN:
        escaped = escaped.replace(character, escape)
    for backslash in ("\\\\", "\\x5C"):
        row = escaped.replace("\\\\", backslash) + "\t\\N\n"
        assert [column.to_pylist() for column in tab_separated(row.encode(), 2)] == [[text], [None]]


def test_a_lone_backslash_is_dropped_as_clickhouse_does() -> None:
    assert tab_separated(rb"a\qb\q\x5Cq\a" + b"\n", 1)[0].to_pylist() == ["aqbq\\q\a"]


TEXTS = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="~"))


@given(st.lists(st.tuples(TEXTS, st.none() | st.binary(), st.none() | st.integers()), min_size=1))
def test_framed_rows_are_read_as_they_were_written(
    rows: list[tuple[str | None, bytes | None, int | None]],
) -> None:
    framing = Framing.fresh()
    chunk = "".join(
        framing.field.join(
            (
                "" if text is None else text + END,
                "" if data is None else data.hex() + END_BYTE,
                "" if number is None else str(number),
            )
        )
        + framing.row
        for text, data, number in rows
    )
    texts, data, numbers = framed(chunk.encode(), framing, ["text", "bytes", "integer"])
    assert texts.to_pylist() == [text for text, _, _ in rows]
    assert data.to_pylist() == [value for _, value, _ in rows]
    assert numbers.to_pylist() == [None if n is None else str(n) for _, _, n in rows]
