"""Key ranges that are files, and the types that texts are read as."""

from __future__ import annotations

import pytest

from resources.dialects import predicate
from resources.errors import InputError
from resources.files.types import from_text, inferred, united
from resources.keys.range import KeyRange
from resources.keys.sql import range_number
from resources.tables import Column, TableRef

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
    assert predicate(KEY, ranges[1], "clickhouse") == "`_file` = 'it\\'s.csv'"
    assert range_number(ranges, KEY, "postgres") == (
        "CASE WHEN \"_file\" = 'a.csv' THEN 0 WHEN \"_file\" = 'it''s.csv' THEN 1 ELSE -1 END"
    )
    on_sqlserver = predicate(KEY, ranges[0], "sqlserver")
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
    assert str(found) == text and found.system == "files"
    assert TableRef.parse(str(found)) == found


def test_integers_unite_in_the_narrowest_that_holds_all() -> None:
    assert united(["TINYINT", "INTEGER"]) == "INTEGER"
    assert united(["UINTEGER", "INTEGER"]) == "BIGINT"
    assert united(["UBIGINT", "BIGINT"]) == "DECIMAL(20,0)"
    assert united(["DECIMAL(9,2)", "DECIMAL(12,0)"]) == "DECIMAL(14,2)"
    assert united(["BIGINT", "VARCHAR"]) is None
    assert united(["DOUBLE", "BIGINT"]) is None


def test_texts_without_values_are_texts() -> None:
    nothing = (0,) * 9 + (None, None)
    assert inferred([nothing]) == "VARCHAR FROM TEXT"  # type: ignore[list-item]


def test_declared_types_are_read() -> None:
    assert from_text("numeric(12, 2)") == "DECIMAL(12,2) FROM TEXT"
    assert from_text("varchar") == "VARCHAR FROM TEXT"
    with pytest.raises(InputError, match="'geometry' is no type that texts are read as"):
        from_text("geometry")
