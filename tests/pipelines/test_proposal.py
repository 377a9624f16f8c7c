"""Keys and sizes of ranges that `ferry init` proposes."""

from __future__ import annotations

import pytest

from tableferry.pipelines.onboarding.proposal import choose_key, range_rows
from tableferry.resources.contract.catalog import TableSize
from tableferry.resources.registry import system
from tableferry.resources.types.type_map import Column


@pytest.mark.parametrize(
    ("size", "rows"),
    [
        (TableSize(0), 250_000),
        (TableSize(10**9), 2_500_000),
        (TableSize(10**6, 265 * 10**6), 500_000),
        (TableSize(10**6, 10**11), 10_000),
        (TableSize(10**6, 10**7), 1_000_000),
        (TableSize(10**9, 10**13), 2_500_000),
    ],
)
def test_ranges_go_by_size(size: TableSize, rows: int) -> None:
    assert range_rows(size) == rows


def test_a_key_that_no_index_begins_with_is_not_chosen() -> None:
    columns = [Column("a", "text"), Column("n", "integer", nullable=True)]
    key, why, possible = choose_key(columns, (), system("postgres"))
    assert (key, [one.name for one in possible]) == (None, ["n"])
    assert "no primary key" in why
    assert choose_key(columns, ("n",), system("postgres"))[0] is None, "its NULLs would be a range"
