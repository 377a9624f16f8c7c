"""Which rows are read again after their sums were compared."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.checks.sides import Buckets
from tableferry.resources.contract.fields import Side
from tableferry.resources.contract.table_sql import joined
from tableferry.resources.digest.measure import DIGEST, ROWS
from tableferry.resources.keys.range import KeyRange

ALL: dict[Side, str] = {"source": "a > 1", "target": "b > 1"}


def buckets(unequal: Sequence[int], number: int) -> Buckets:
    figures = {bucket: {ROWS: 1, DIGEST: str(bucket)} for bucket in range(number)}
    damaged = figures | {bucket: {ROWS: 1, DIGEST: "-1"} for bucket in unequal}
    return Buckets(ALL, {"source": "a % 8", "target": "b % 8"}, number, figures, damaged)


def test_buckets_differ_by_their_sums_or_as_one_side_has_none() -> None:
    assert buckets([], 8).unequal == []
    assert buckets([6, 1], 8).unequal == [1, 6]
    one = {ROWS: 1, DIGEST: "1"}
    assert Buckets({}, {}, 8, {2: one, 5: one}, {5: one, 7: one}).unequal == [2, 7]


def test_the_rows_of_few_buckets_are_selected_and_else_all() -> None:
    assert buckets([1, 2, 3, 6], 8).rows_of_unequal() == {
        "source": "(a > 1) AND a % 8 IN (1, 2, 3, 6)",
        "target": "(b > 1) AND b % 8 IN (1, 2, 3, 6)",
    }
    assert buckets([1, 2, 3, 5, 6], 8).rows_of_unequal() == ALL
    assert buckets(range(4_000), 10_000).rows_of_unequal() != ALL
    assert buckets(range(4_001), 10_000).rows_of_unequal() == ALL


def test_neighbours_are_one_range() -> None:
    ranges = [
        KeyRange("integer", None, 1),
        KeyRange("integer", 1, 5),
        KeyRange("integer", 7, 9),
        KeyRange("integer", 9, None),
        KeyRange("integer", null=True),
    ]
    assert joined(ranges) == [
        KeyRange("integer", None, 5),
        KeyRange("integer", 7, None),
        KeyRange("integer", null=True),
    ]
