"""Key ranges that are files, or row groups of files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.contract.table_sql import predicate, range_number
from tableferry.resources.files.source import row_group_ranges
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

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
