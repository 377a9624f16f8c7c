"""The streaming comparison finds exactly what a comparison of whole tables would find."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.checks import row_tally
from tableferry.checks.row_tally import Compared, merge_rows
from tableferry.checks.rowhash import RowLayout, RowStream
from tableferry.checks.table_side import Digests, TableSide
from tableferry.checks.verdict import Difference
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.fields import Side
from tableferry.resources.digest.fields import fields
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

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


def number_of(*values: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=8).digest()) - 2**63


def reader(
    rows: Sequence[Row], batch_rows: int, identity: Sequence[int] = (0,)
) -> pa.RecordBatchReader:
    """Rows as `RowLayout.query` reads them: order numbers, digest, then all columns."""
    framed = [
        (row[0], number_of(*(row[i] for i in identity)), number_of(*row), str(row[0]), *row[1:])
        for row in rows
    ]
    framed.sort(key=lambda row: row[:3])
    schema = pa.schema(
        [
            *((name, pa.int64()) for name in ("key", "identity", "digest")),
            ("id", pa.string()),
            ("note", pa.string()),
            ("raw", pa.binary()),
        ]
    )
    columns = list(zip(*framed, strict=True)) or [[]] * 6
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)
    return pa.RecordBatchReader.from_batches(schema, table.to_batches(batch_rows))


def compare(
    own: Sequence[Row],
    other: Sequence[Row],
    *,
    batch: int = 3,
    limit: int = 20,
    primary_key: tuple[str, ...] = (),
) -> Compared:
    plan = plan_of(primary_key)
    identity = [("id", "note", "raw").index(name) for name in primary_key or ("id",)]
    own_rows, other_rows = reader(own, batch, identity), reader(other, batch + 1, identity)
    layout = RowLayout.of(plan, fields(plan))
    return merge_rows(
        layout, RowStream(own_rows, layout), RowStream(other_rows, layout), limit=limit
    )


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


def test_examples_are_bounded_by_their_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tally, "EXAMPLE_LETTERS", 10_000)
    own = [(key, f"{key}" + "x" * 1_000, None) for key in range(100)]
    other = [(key, f"{key}" + "x" * 500 + "y" * 500, None) for key in range(100)]
    found = compare(own, other, limit=10_000).differences
    assert (found.different, len(found.examples)) == (100, 5)
    assert found.examples[0].source == own[0][1], "what is kept is whole: causes are guessed of it"


def test_a_long_value_is_shown_where_it_differs() -> None:
    same = "x" * 1_000_000
    shown = Difference("1", "different", "note", f"{same}a{same}", f"{same}b").shown()
    assert [len(text) < 1_100 for text in shown] == [True, True]
    assert [text[500:510] for text in shown] == ["xxxxaxxxxx", "xxxxb (1,0"]
    assert Difference("1", "different", "note", None, "x").shown() == ("NULL", "x")


def test_a_sink_gets_every_difference() -> None:
    layout, all_of_them = RowLayout.of(plan_of(), fields(plan_of())), list[Difference]()
    own = [(key, "x", None) for key in range(1000)]
    other = [(key, "y", None) for key in range(1000)]
    streams = RowStream(reader(own, 100), layout), RowStream(reader(other, 33), layout)
    compared = merge_rows(layout, *streams, limit=5, sink=all_of_them.extend)
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
def test_rows_are_read_in_the_order_of_the_key(side: Side) -> None:
    plan = plan_of(("id", "note"))
    sqls: dict[Side, str] = {"source": "digest", "target": "digest"}
    shown = {each.name: each.name for each in fields(plan)}
    digests = Digests(sqls, sqls, {"source": shown, "target": shown})
    table = TableSide(plan, side, PostgresResource(url="postgresql://nobody@nowhere/nothing"))
    sql = table.row_query(RowLayout.of(plan, fields(plan)), digests, "1 = 1")
    quoted = '"id"' if side == "source" else "`id`"
    assert sql.endswith(f"ORDER BY {quoted}, 2")


def test_without_values_rows_are_counted() -> None:
    own, other = (reader(rows, 3).read_all().select([0, 1, 2]) for rows in (OWN, OTHER))
    layout = RowLayout.of(plan_of(), ())
    streams = (RowStream(rows.to_reader(), layout) for rows in (own, other))
    found = merge_rows(layout, *streams).differences
    assert (found.missing_in_target, found.extra_in_target, found.different) == (1, 1, 1)
    assert found.examples == ()


OWN: list[Row] = [(1, "a", b""), (2, "b", b""), (3, "c", b"")]
OTHER: list[Row] = [(2, "b", b""), (3, "C", b""), (4, "d", b"")]
