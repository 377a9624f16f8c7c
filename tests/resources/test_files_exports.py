"""The files that key ranges are written to."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.errors import InputError
from tableferry.resources.files.exports import covered, file_name, range_of
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

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
