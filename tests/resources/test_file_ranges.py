"""Key ranges that are files or have files, and the types that texts are read as."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.dialects import predicate
from tableferry.resources.errors import InputError
from tableferry.resources.files.exports import covered, file_name, range_of
from tableferry.resources.files.inference import WIDTH, inferred, united
from tableferry.resources.files.source import row_group_ranges
from tableferry.resources.files.types import from_text
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.ranges.sql import range_number
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

NAMES = ["a.csv", "2024/01/a b.parquet", "a..b.csv", "a...b.csv", "50%.csv", "x\ny.csv", "é😀'.csv"]
KEY = Column("_file", "FILE", nullable=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_partition_key_leads_back_to_its_file(name: str) -> None:
    key_range = KeyRange("file", name)
    assert KeyRange.parse(key_range.name, "file") == key_range
    assert "..." not in key_range.name and "\n" not in key_range.name
    assert key_range.contains(name) and not key_range.contains(f"{name}x")


def test_ordinary_names_are_partition_keys_as_they_are() -> None:
    assert KeyRange("file", "2024/01/a b..parquet").name == "2024/01/a b..parquet"


def test_rows_are_found_by_the_files_name() -> None:
    ranges = [KeyRange("file", "a.csv"), KeyRange("file", "it's.csv")]
    assert predicate(KEY, ranges[1], system("clickhouse")) == "`_file` = 'it\\'s.csv'"
    assert range_number(ranges, KEY, system("postgres")) == (
        "CASE WHEN \"_file\" = 'a.csv' THEN 0 WHEN \"_file\" = 'it''s.csv' THEN 1 ELSE -1 END"
    )
    on_sqlserver = predicate(KEY, ranges[0], system("sqlserver"))
    assert on_sqlserver.startswith("\"_file\" = N'a.csv' AND ")


@pytest.mark.parametrize(
    "text",
    [
        "files://orders/*.parquet",
        "files:///abs/in/**/*.csv",
        "files://../x.y/a.b.csv",
        "files://*.csv",
    ],
)
def test_a_reference_is_read_and_written(text: str) -> None:
    found = TableRef.parse(text)
    assert str(found) == text and found.system_name == "files"
    assert TableRef.parse(str(found)) == found


EXPORTED = [
    KeyRange("integer", None, 10),
    KeyRange("integer", -500, -3),
    KeyRange("integer", 10**12, None),
    KeyRange("integer", null=True),
    KeyRange("timestamp", dt.datetime(2024, 1, 1, 1, 2, 3), None),
    KeyRange("uuid", uuid.UUID(int=5), uuid.UUID(int=6)),
    KeyRange("text", 'A/B: "*?"', "x\\y|<z>"),
    KeyRange("text", "50%2F", "é"),
]
TYPES = {"integer": "bigint", "timestamp": "timestamp", "uuid": "uuid", "text": "text"}


@pytest.mark.parametrize("key_range", EXPORTED, ids=lambda one: one.name)
def test_the_name_of_a_file_leads_back_to_its_range(key_range: KeyRange) -> None:
    name = file_name(key_range)
    assert not set(name) & set('/\\:*?"<>|[]') and name[0] != "."
    key = Column("id", TYPES[key_range.kind])
    column = ColumnPlan(key, key, None, None)
    table = TableRef("postgres", "public", "t")
    found = range_of(name, CopyPlan(table, table, (column,), column))
    assert found is not None and found.name == key_range.name
    for other in (f"x{name}", name.replace("range_", ""), "range_.parquet", "range_1.parquet"):
        assert range_of(other, CopyPlan(table, table, (column,), column)) is None


def test_a_file_with_too_long_a_name_is_refused() -> None:
    with pytest.raises(InputError, match="more than 255 bytes"):
        file_name(KeyRange("text", "é" * 100, "é" * 99))


BOUNDS = st.one_of(st.none(), st.integers(0, 6))
PARTS = st.tuples(BOUNDS, BOUNDS).filter(lambda one: None in one or one[0] < one[1])  # type: ignore[operator]


@given(PARTS, st.lists(PARTS, max_size=4))
def test_a_range_is_covered_if_every_key_is(
    one: tuple[int | None, int | None], by: list[tuple[int | None, int | None]]
) -> None:
    own, others = KeyRange("integer", *one), [KeyRange("integer", *part) for part in by]
    keys = [key for key in range(-2, 9) if own.contains(key)]
    wanted = all(any(part.contains(key) for part in others) for key in keys)
    assert covered(own, others) is wanted
    for other in others:
        assert own.overlaps(other) is any(other.contains(key) for key in keys)


def test_integers_unite_in_the_narrowest_that_holds_all() -> None:
    assert united(["TINYINT", "INTEGER"]) == "INTEGER"
    assert united(["UINTEGER", "INTEGER"]) == "BIGINT"
    assert united(["UBIGINT", "BIGINT"]) == "DECIMAL(20,0)"
    assert united(["DECIMAL(9,2)", "DECIMAL(12,0)"]) == "DECIMAL(14,2)"
    assert united(["BIGINT", "VARCHAR"]) is None
    assert united(["DOUBLE", "BIGINT"]) is None


def test_texts_without_values_are_texts() -> None:
    assert inferred([(0,) * WIDTH]) == "VARCHAR FROM TEXT"


def test_declared_types_are_read() -> None:
    assert from_text("numeric(12, 2)") == "DECIMAL(12,2) FROM TEXT"
    assert from_text("varchar") == "VARCHAR FROM TEXT"
    with pytest.raises(InputError, match="texts cannot be read as 'geometry'"):
        from_text("geometry")


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 40))
def test_row_group_ranges_cover_the_file(groups: list[int], most: int) -> None:
    found = list(row_group_ranges("a.parquet", groups, most))
    if found == [KeyRange("file", "a.parquet")]:
        assert sum(groups) <= most or sum(1 for group in groups if group) <= 1
        return
    bounds = [one.rows for one in found if one.rows is not None]
    starts = {sum(groups[:n]) + 1 for n in range(len(groups))}
    assert bounds[0][0] == 1 and bounds[-1][1] is None
    assert [past for _, past in bounds[:-1]] == [first for first, _ in bounds[1:]]
    for first, past in bounds:
        end = sum(groups) + 1 if past is None else past
        assert first in starts and end > first
        # no more than asked for, but for a single row group
        within = [n for n, group in enumerate(groups) if group and sum(groups[:n]) + 1 >= first]
        within = [n for n in within if sum(groups[: n + 1]) < end]
        assert end - first <= most or len(within) == 1


@pytest.mark.parametrize("name", ["a b..parquet", "50%.parquet", "x#1.parquet"])
@pytest.mark.parametrize("rows", [(1, 5_000_001), (5_000_001, None), (1, 10**11)])
def test_a_partition_key_leads_back_to_a_row_group_range(
    name: str, rows: tuple[int, int | None]
) -> None:
    stretch = KeyRange("file", name, rows=rows)
    assert KeyRange.parse(stretch.name, "file") == stretch
    alike = KeyRange("file", stretch.name)
    assert KeyRange.parse(alike.name, "file") == alike and alike.name != stretch.name


def test_rows_of_a_row_group_range_are_found_by_file_and_number() -> None:
    first, last = row_group_ranges("a.parquet", [5, 5, 5], 10)
    assert predicate(KEY, first, system("clickhouse")) == (
        "`_file` = 'a.parquet' AND `_row` >= 1 AND `_row` < 11"
    )
    assert predicate(KEY, last, system("postgres")) == '"_file" = \'a.parquet\' AND "_row" >= 11'
    assert first.name == "a.parquet#0000000001..0000000011"
