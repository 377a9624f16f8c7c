"""Every table has an asset key of its own, which Dagster takes and which tells the table."""

from __future__ import annotations

import re
from collections.abc import Iterator

import dagster as dg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tableferry.assets.asset_keys import LONGEST, asset_key, key_part, name_of, table_of
from tableferry.resources.registry import system_names
from tableferry.resources.tables import TableRef

PIECES = st.sampled_from(
    ["_", "x", "_x0020_", "x0020_", "x005F", "_x", "0020", "ABCD", "a", "A", " ", ".", "ж", "😀"]
)
NAMES = st.one_of(
    st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=25),
    st.lists(PIECES, min_size=1, max_size=8).map("".join),
    st.from_regex(r"[A-Za-z0-9_]{1,40}", fullmatch=True),
)
AWKWARD = [
    "Order Details",
    "order-lines.2024",
    "Заказы",
    "select",
    'say "hi"',
    "it's",
    "a]b",
    "back`tick",
    "%",
    "😀",
    "\ud800",
]


@given(NAMES)
@example("_x0020_x0041_")
@example("a_x0020 b")
@example(" x0041_")
def test_a_part_is_taken_by_dagster_and_tells_the_name(name: str) -> None:
    part = key_part(name)
    assert re.fullmatch(r"[A-Za-z0-9_]+", part, re.ASCII)
    assert len(part) <= max(LONGEST, len(name))
    assert name_of(part) == name


@given(st.lists(NAMES, unique=True, min_size=2, max_size=30))
@example(["Order Details", "Order_x0020_Details", "Order_x005F_x0020_Details"])
@example([" x_" + "0" * 32, "_x0020_x_" + "0" * 32])
def test_no_two_names_share_a_part(names: list[str]) -> None:
    assert len({key_part(name) for name in names}) == len(names)


@given(st.lists(NAMES, unique_by=str.casefold, min_size=2, max_size=30))
def test_names_that_differ_in_more_than_case_do_so_after_the_mapping(names: list[str]) -> None:
    assert len({key_part(name).casefold() for name in names}) == len(names)


@given(st.from_regex(r"[A-Za-z0-9_]{1,60}", fullmatch=True))
@example("a" * 128)
def test_plain_names_stay_as_they_are(name: str) -> None:
    if not re.search(r"_x[0-9A-F]{4,}_", name):
        assert key_part(name) == name


@given(st.sampled_from(system_names()), NAMES, NAMES)
def test_a_key_tells_its_table(system: str, schema: str, name: str) -> None:
    table = TableRef(system, schema, name)  # type: ignore[arg-type]
    assert table_of(asset_key(table)) == table


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("orders", "orders"),
        ("Order Details", "Order_x0020_Details"),
        ("order-lines.2024", "order_x002D_lines_x002E_2024"),
        ("größe", "gr_x00F600DF_e"),
        ("😀", "_xD83DDE00_"),
        ("a_x0020_b", "a_x005F_x0020_b"),
    ],
)
def test_parts_can_be_read(name: str, part: str) -> None:
    assert key_part(name) == part


@pytest.mark.parametrize(
    "names", [["ж" * 128, "ж" * 127 + "Ж"], ["a b " * 32, "a b " * 31 + "c d "]]
)
def test_long_names_are_cut_and_told_apart(names: list[str]) -> None:
    parts = [key_part(name) for name in names]
    assert len(set(parts)) == 2
    for part in parts:
        assert len(part) <= LONGEST
        assert name_of(part) is None
    assert table_of(dg.AssetKey(["sqlserver", "dbo", parts[0]])) is None
    assert table_of(dg.AssetKey(["somebody", "elses"])) is None


def test_dagster_takes_all_of_them() -> None:
    tables = [TableRef("sqlserver", schema, name) for schema in AWKWARD for name in AWKWARD]
    specs = [dg.AssetSpec(asset_key(table)) for table in tables]
    assert len({spec.key for spec in specs}) == len(tables)

    @dg.multi_asset(specs=specs)
    def move() -> Iterator[dg.MaterializeResult]:
        yield from ()

    dg.Definitions(assets=[move]).get_repository_def()
