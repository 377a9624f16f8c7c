"""Markers of key ranges: which share rows, and which cut a whole key space."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest

from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.markers import Marker, Published, range_key
from tableferry.resources.keys.range import KeyKind, KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column


def ranges(*bounds: int | None) -> list[KeyRange]:
    """The ranges between bounds."""
    return [KeyRange("integer", lower, upper) for lower, upper in pairwise(bounds)]


def plan() -> CopyPlan:
    table = TableRef("postgres", "public", "t")
    key = ColumnPlan(Column("id", "bigint"), Column("id", "bigint"), "id", pa.int64())
    return CopyPlan(table, table, (key,), key)


def test_stretches_of_a_file_share_rows_with_none_of_another() -> None:
    def of(file: str, *rows: int | None) -> KeyRange:
        return KeyRange("file", file, rows=(int(rows[0] or 0), rows[1]) if rows else None)

    assert of("a").overlaps(of("a", 1, 10))
    assert of("a", 1, 10).overlaps(of("a", 5, None))
    assert not of("a", 1, 10).overlaps(of("a", 10, None))
    assert not of("a").overlaps(of("b"))
    assert not of("a", 1, 10).overlaps(of("b", 1, 10))


def test_what_cannot_be_told_apart_shares_rows() -> None:
    low, high = ranges(None, 10, None)
    same = Marker(low.name, "v", key="id")
    assert same.overlaps(plan(), low) and not same.overlaps(plan(), high)
    assert replace(same, key="another").overlaps(plan(), high), "cut by another column"
    assert replace(same, range="2024-01-01..").overlaps(plan(), high), "by keys of another kind"


def test_retired_ranges_and_own_ones_are_not_foreign() -> None:
    low, high = ranges(None, 10, None)
    markers = {
        name: Marker(name, version, key="id", token=f"t{number}")
        for number, (name, version) in enumerate(
            [(low.name, "v"), ("0000000005..0000000020", "v"), ("0000000006..0000000007", "")]
        )
    }
    known = Published("1", {"1": markers}, transfer_ranges=frozenset([low.name, high.name]))
    assert [one.range for one in known.foreign("1", plan(), low)] == ["0000000005..0000000020"]
    assert [one.range for one in known.foreign("1", plan(), high)] == ["0000000005..0000000020"]
    assert set(known.of_target) == {low.name, "0000000005..0000000020"}
    assert known.token("1", low) == "t0" and known.token("1", high) == known.token("2", low) == ""


@pytest.mark.parametrize("kind", ["text", "file"])
def test_long_names_that_differ_in_case_alone_have_keys_of_their_own(kind: KeyKind) -> None:
    one, other = (KeyRange(kind, text * 150) for text in ("äb", "äB"))
    assert range_key(one.name) != range_key(other.name)
    assert len(range_key(one.name)) == 32 and range_key(one.name).islower()
