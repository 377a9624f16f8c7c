"""Bounds of text keys: what they may hold, where they part keys, and how ranges are named."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from dagster._core.definitions.partitions.utils import (
    raise_error_on_invalid_partition_key_substring,
)
from hypothesis import example, given
from hypothesis import strategies as st

from tableferry.resources import registry
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.errors import InputError
from tableferry.resources.keys.cover import to_bound
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.keys.text import MOST_CHARACTERS, problem, separator
from tableferry.resources.types.type_map import Column

NAMED = st.characters(min_codepoint=0x20, max_codepoint=0xD7FF)
BOUNDS = st.one_of(
    st.text(st.sampled_from("aB-. /%'\"~é"), min_size=1, max_size=6),
    st.text(NAMED, min_size=1, max_size=12),
).filter(lambda text: problem(text) is None)
KEYS = st.one_of(
    st.text(st.sampled_from("aAb \t\0'%_~\uffff😀é"), max_size=6),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)


@given(st.sets(BOUNDS, min_size=1, max_size=30))
@example({"null", "..", ".", "...", "a..b", "./a", " a", "a b", "a%2Eb", "%", "a,b", "a. .b"})
def test_a_name_says_its_bounds_and_dagster_takes_it(bounds: set[str]) -> None:
    cuts = [None, *sorted(bounds), None]
    ranges = [KeyRange("text", *pair) for pair in pairwise(cuts)]
    names = [one.name for one in ranges]
    assert [KeyRange.parse(name, "text") for name in names] == ranges
    assert len({*names, "null"}) == len(names) + 1
    raise_error_on_invalid_partition_key_substring(names)
    assert all(name.isprintable() or max(name) >= "\xad" for name in names)


@given(st.sets(BOUNDS.filter(lambda text: "%" not in KeyRange("text", text).name), max_size=30))
@example({"AB", "AB-", "AB-1", "AB!", "A", "#1", "-", "(x", ".a", "/", "a b", "ab", "a"})
def test_names_sort_as_text_in_key_order(bounds: set[str]) -> None:
    names = [KeyRange("text", *pair).name for pair in pairwise([None, *sorted(bounds), None])]
    assert sorted(names) == names


@pytest.mark.parametrize(
    ("lower", "upper", "name"),
    [
        (None, None, ".."),
        (None, "AB", ".. AB"),
        ("AB", "AB-10", "AB .. AB-10"),
        ("Züri West", None, "Züri West .."),
        ("-5", "100%", "./-5 .. 100%25"),
        ("a. .b", "a..b", "a.%20.b .. a%2E.b"),
        ("a b", "a\xa0b", "a b .. a%C2%A0b"),
    ],
)
def test_names_can_be_read(lower: str | None, upper: str | None, name: str) -> None:
    key_range = KeyRange("text", lower, upper)
    assert key_range.name == name
    assert KeyRange.parse(name, "text") == key_range


@pytest.mark.parametrize("name", ["", "AB", "AB..AC", "AB .. AC ", "A\tB .. ", "😀 ..", "x .. %0A"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is not a key range of text keys"):
        KeyRange.parse(name, "text")


@given(KEYS, KEYS)
@example("a", "a" + "b" * MOST_CHARACTERS)
@example("a" * MOST_CHARACTERS, "a" * MOST_CHARACTERS + "b")
@example("a", "a b")
@example("😀", "😁")
def test_a_separator_parts_two_keys_in_the_order_of_their_bytes(one: str, other: str) -> None:
    low, high = sorted({one, other}, key=str.encode)[:2] if one != other else ("", "x")
    cut = separator(low, high)
    if cut is None:
        # nothing that begins the upper key is a bound above the lower one
        beginnings = (high[:length] for length in range(1, len(high) + 1))
        assert all(problem(text) or text.encode() <= low.encode() for text in beginnings)
    else:
        assert problem(cut) is None
        assert low.encode() < cut.encode() <= high.encode()
        assert separator(low, cut) == cut, "there is a shorter one"


@pytest.mark.parametrize(
    ("bound", "why"),
    [
        ("", "is empty"),
        ("a ", "ends with a blank"),
        ("a\tb", r"holds U\+0009, which is a control character"),
        ("a😀", r"holds U\+1F600, which is sorted differently by SQL Server"),
        ("x" * (MOST_CHARACTERS + 1), "has 201 characters"),
    ],
)
def test_why_a_text_is_no_bound(bound: str, why: str) -> None:
    assert re.search(why, problem(bound) or "")


@pytest.mark.parametrize(
    ("system", "type_", "kind"),
    [
        ("postgres", "text", "text"),
        ("postgres", "character varying(40)", "text"),
        ("postgres", "character(10)", "text"),
        ("postgres", "citext", "text"),
        ("sqlserver", "nvarchar(40)", "text"),
        ("sqlserver", "varchar(max)", "text"),
        ("clickhouse", "String", "text"),
        ("clickhouse", "LowCardinality(String)", "text"),
        ("postgres", "enum", None),
        ("postgres", "xml", None),
        ("postgres", "jsonb", None),
        ("sqlserver", "ntext", None),
        ("sqlserver", "xml", None),
        ("clickhouse", "Enum8('a' = 1)", None),
        ("clickhouse", "FixedString(4)", None),
    ],
)
def test_which_texts_can_be_keys(system: str, type_: str, kind: str | None) -> None:
    column = Column("k", type_)
    if kind:
        assert key_kind(column, registry.system(system))[0] == kind
    else:
        with pytest.raises(InputError, match="uuid or text column"):
            key_kind(column, registry.system(system))


def test_a_number_is_no_bound_of_texts() -> None:
    with pytest.raises(InputError, match="should be a key of kind text"):
        to_bound(5, "text")
