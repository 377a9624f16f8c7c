"""Rows of text are split into the values that they were written from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.wires.text_rows import tab_separated

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
