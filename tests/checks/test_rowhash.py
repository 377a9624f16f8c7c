"""The streaming comparison finds exactly what a comparison of whole tables would find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.rowhash import Compared, Layout, merge_rows
from checks.verdict import Difference
from resources.plan import ColumnPlan, CopyPlan
from resources.tables import Column, TableRef

Row = tuple[int, str | None, bytes | None]


def plan_of(primary_key: tuple[str, ...] = ()) -> CopyPlan:
    columns = tuple(
        ColumnPlan(Column(name, source), Column(name, target), f'"{name}"', arrow)
        for name, source, target, arrow in (
            ("id", "integer", "Int32", pa.int32()),
            ("note", "text", "String", pa.string()),
            ("raw", "bytea", "String", pa.binary()),
        )
    )
    return CopyPlan(
        TableRef("postgres", "public", "t"),
        TableRef("clickhouse", "warehouse", "t"),
        columns,
        columns[0],
        primary_key,
    )


def reader(rows: Sequence[Row], batch_rows: int, *, key_again: bool = True) -> pa.RecordBatchReader:
    """Rows as `Layout.query` reads them: the order number first, then all columns."""
    ordered = sorted(rows, key=lambda row: row[0])
    schema = pa.schema(
        [("k", pa.int64()), ("id", pa.int64()), ("note", pa.string()), ("raw", pa.binary())]
    )
    columns = [[row[0] for row in ordered], *([row[i] for row in ordered] for i in range(3))]
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)
    return pa.RecordBatchReader.from_batches(schema, table.to_batches(batch_rows))


def compare(
    own: Sequence[Row], other: Sequence[Row], *, batch: int = 3, limit: int = 20, **kwargs: object
) -> Compared:
    layout = Layout.of(plan_of(**kwargs))  # type: ignore[arg-type]
    return merge_rows(layout, reader(own, batch), reader(other, batch + 1), limit=limit)


ROWS = st.lists(
    st.tuples(
        st.integers(-3, 3),
        st.none() | st.sampled_from(["", "a", "b", "ab"]),
        st.none() | st.sampled_from([b"", b"\0", b"a"]),
    ),
    max_size=25,
)


@given(ROWS, ROWS, st.integers(1, 7))
def test_counts_are_those_of_whole_tables(own: list[Row], other: list[Row], batch: int) -> None:
    found = compare(own, other, batch=batch).differences
    only_own = Counter(row[0] for row in (Counter(own) - Counter(other)).elements())
    only_other = Counter(row[0] for row in (Counter(other) - Counter(own)).elements())
    paired = sum(min(only_own[key], only_other[key]) for key in only_own | only_other)
    assert found.different == paired
    assert found.missing_in_target == sum(only_own.values()) - paired
    assert found.extra_in_target == sum(only_other.values()) - paired


@given(ROWS, st.integers(1, 7))
def test_the_same_rows_in_any_order_agree(rows: list[Row], batch: int) -> None:
    compared = compare(rows, rows[::-1], batch=batch)
    assert compared.differences.rows == 0
    assert compared.source_rows == compared.target_rows == len(rows)


def test_null_is_not_the_empty_text_and_columns_have_bounds() -> None:
    found = compare([(1, None, b""), (2, "a", b"b")], [(1, "", None), (2, "ab", b"")]).differences
    assert found.by_column == {"note": 2, "raw": 2}
    assert found.examples[0] == Difference("1", "different", "note", None, "", {"id": "1"})
    assert found.examples[1] == Difference("1", "different", "raw", "", None, {"id": "1"})
    assert (found.named_by, found.primary_key) == (("id",), ())
    assert "no whole primary key" in found.naming()


def test_examples_come_in_key_order_up_to_the_limit() -> None:
    own = [(key, "x", None) for key in range(100)]
    other = [(key, "x", None) for key in range(50, 150)]
    found = compare(own, other, limit=7).differences
    assert [example.key for example in found.examples] == [str(key) for key in range(7)]
    assert (found.missing_in_target, found.extra_in_target) == (50, 50)


def test_a_sink_gets_every_difference() -> None:
    layout, all_of_them = Layout.of(plan_of()), list[Difference]()
    own = [(key, "x", None) for key in range(1000)]
    other = [(key, "y", None) for key in range(1000)]
    compared = merge_rows(
        layout, reader(own, 100), reader(other, 33), limit=5, sink=all_of_them.extend
    )
    assert compared.differences.different == len(all_of_them) == 1000
    assert [one.key for one in all_of_them] == [str(key) for key in range(1000)]
    assert len(compared.differences.examples) == 5


def test_rows_of_one_key_are_paired_by_the_primary_key() -> None:
    own = [(1, "a", b"1"), (1, "b", b"2")]
    other = [(1, "b", b"2!"), (1, "a", b"1")]
    found = compare(own, other, primary_key=("id", "note")).differences
    assert (found.different, found.by_column) == (1, {"raw": 1})
    moved = compare(own, [(1, "a", b"1"), (1, "c", b"2")], primary_key=("id", "note")).differences
    assert (moved.missing_in_target, moved.extra_in_target, moved.different) == (1, 1, 0)


def test_rows_are_named_by_their_whole_primary_key() -> None:
    own = [(1, "a", b"1"), (1, "b", b"2"), (2, "a", b"3")]
    other = [(1, "a", b"1"), (1, "b", b"2!"), (3, "z", b"4")]
    found = compare(own, other, primary_key=("note", "id")).differences
    assert [list(one.row.items()) for one in found.examples] == [
        [("note", "b"), ("id", "1")],
        [("note", "a"), ("id", "2")],
        [("note", "z"), ("id", "3")],
    ]
    assert found.naming() == "primary key (note, id)"


def test_the_key_is_named_beside_a_primary_key_that_lacks_it() -> None:
    found = compare([(1, "a", b"")], [(1, "a", b"x")], primary_key=("note",)).differences
    assert [one.row for one in found.examples] == [{"note": "a", "id": "1"}]
    assert (found.named_by, found.primary_key) == (("note", "id"), ("note",))


@pytest.mark.parametrize("side", ["source", "target"])
def test_rows_are_read_in_the_order_of_the_key(side: str) -> None:
    sql = Layout.of(plan_of(("id", "note"))).query(plan_of(), side, "1 = 1")  # type: ignore[arg-type]
    quoted = '"id"' if side == "source" else "`id`"
    assert sql.endswith(f"ORDER BY {quoted}")
