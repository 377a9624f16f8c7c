"""Constants that ClickHouse compares keys with, exactly and by its index."""

from __future__ import annotations

import pytest

from tableferry.resources.registry import system
from tableferry.resources.types.type_map import Column


@pytest.mark.parametrize(
    ("type_", "bound", "expected"),
    [
        ("Int64", 5, "5"),
        ("Decimal(9, 0)", -5, "toDecimal32('-5', 0)"),
        ("Nullable(Decimal(18, 0))", 5, "toDecimal64('5', 0)"),
        ("Decimal(9, 0)", 10**20, f"toDecimal128('{10**20}', 0)"),
        ("Decimal128(0)", 10**37, f"toDecimal128('{10**37}', 0)"),
        ("Decimal(38, 0)", 10**38, f"toDecimal256('{10**38}', 0)"),
    ],
)
def test_a_bound_is_as_wide_as_its_column_or_wider(type_: str, bound: int, expected: str) -> None:
    assert system("clickhouse").dialect.bound(bound, Column("id", type_)) == expected
