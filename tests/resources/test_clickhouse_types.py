"""How a declared type says that it takes NULL."""

from __future__ import annotations

import pytest

from tableferry.resources.clickhouse.types import declared_type, split_type
from tableferry.resources.types.type_map import Column


@pytest.mark.parametrize(
    ("declared", "type_", "nullable"),
    [
        ("Int64", "Int64", False),
        ("Nullable(DateTime64(6, 'UTC'))", "DateTime64(6, 'UTC')", True),
        ("LowCardinality(String)", "LowCardinality(String)", False),
        ("LowCardinality(Nullable(String))", "LowCardinality(String)", True),
        ("Array(Nullable(Int32))", "Array(Nullable(Int32))", False),
    ],
)
def test_nullable_is_folded_out_and_in(declared: str, type_: str, nullable: bool) -> None:
    assert split_type(declared) == (type_, nullable)
    assert declared_type(Column("x", type_, nullable=nullable)) == declared


def test_arrays_cannot_be_nullable() -> None:
    assert declared_type(Column("x", "Array(Int32)", nullable=True)) == "Array(Int32)"


@pytest.mark.parametrize(
    ("declared", "nullable"),
    [
        ("Variant(Int64, String)", True),
        ("Dynamic(max_types=3)", True),
        ("Geometry", True),
        ("Point", False),
        ("SimpleAggregateFunction(anyLast, Nullable(Int64))", True),
        ("SimpleAggregateFunction(anyLast, Dynamic)", True),
        ("SimpleAggregateFunction(max, Int64)", False),
        ("AggregateFunction(max, Nullable(Int64))", False),
        ("Tuple(a Nullable(Int32))", False),
        ("Map(String, Nullable(String))", False),
        ("JSON(a Nullable(Int64))", False),
        ("Nullable(JSON)", True),
    ],
)
def test_null_is_read_from_the_type_not_from_its_spelling(declared: str, nullable: bool) -> None:
    assert split_type(declared)[1] == nullable
