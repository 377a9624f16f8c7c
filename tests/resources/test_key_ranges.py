"""Key ranges in Python and in SQL agree on which key belongs to which, for any ranges and keys."""

from __future__ import annotations

import datetime as dt
import decimal
import re
import uuid
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tableferry.resources import registry
from tableferry.resources.contract.table_sql import (
    ENUMERATED,
    most_ranges,
    range_number,
    within,
    within_any,
)
from tableferry.resources.errors import InputError
from tableferry.resources.keys.cover import from_number, largest_number, to_bound, to_number
from tableferry.resources.keys.range import Bound, KeyKind, KeyRange
from tableferry.resources.types.type_map import Column

FILES = registry.system("files")
"""Its dialect is that of DuckDB, which the tests can ask without a server."""

KEY = Column("key", "BIGINT")

FEW = st.integers(-6, 6)
"""Bounds and keys of so few numbers that they often meet."""


@st.composite
def disjoint(draw: st.DrawFn, least: int = 1, most: int = 6) -> list[KeyRange]:
    """Ranges of integers in any order: some with gaps between them, some open, some with NULLs."""
    cuts = sorted(draw(st.sets(st.integers(-60, 60), min_size=least + 1, max_size=most + 1)))
    bounds: list[tuple[int | None, int | None]] = [*pairwise(cuts)]
    kept = [pair for pair in bounds if draw(st.integers(0, 5)) < 5] or bounds[:1]
    kept += [(None, cuts[0])] if draw(st.booleans()) else []
    kept += [(cuts[-1], None)] if draw(st.booleans()) else []
    ranges = [KeyRange("integer", *pair) for pair in kept]
    ranges += [KeyRange("integer", null=True)] if draw(st.booleans()) else []
    return draw(st.permutations(ranges))


def asked(expression: str, keys: Sequence[int | None]) -> list[Any]:
    """What DuckDB makes of an expression for each key, in order."""
    rows = ", ".join(f"({n}, {'NULL' if key is None else key})" for n, key in enumerate(keys))
    sql = f'SELECT {expression} FROM (VALUES {rows}) AS t(n, "key") ORDER BY n'
    return [row[0] for row in duckdb.sql(sql).fetchall()]


def keys_around(ranges: Sequence[KeyRange]) -> list[int | None]:
    """Each bound, its neighbours, far ends, and NULL."""
    bounds = {bound for r in ranges for bound in (r.lower, r.upper) if isinstance(bound, int)}
    near = {bound + step for bound in bounds for step in (-1, 0, 1)}
    return [*sorted(near | {-(10**6), 10**6}), None]


def number_in(ranges: Sequence[KeyRange], key: int | None) -> int:
    return next((n for n, one in enumerate(ranges) if one.contains(key)), -1)


def even(count: int, width: int = 10, first: int = 0) -> list[KeyRange]:
    """Ranges of one width, between two open ones; as many of them as said, in all."""
    cuts = [first + width * n for n in range(count - 1)]
    return [KeyRange("integer", *pair) for pair in pairwise([None, *cuts, None])]


@given(disjoint())
@example([KeyRange("integer", null=True)])
@example([KeyRange("integer")])
def test_sql_numbers_each_key_by_its_range(ranges: list[KeyRange]) -> None:
    keys = keys_around(ranges)
    expected = [number_in(ranges, key) for key in keys]
    assert asked(range_number(ranges, KEY, FILES), keys) == expected
    doubled = range_number(ranges, KEY, FILES, number_of=lambda n: str(n * 2 + 100))
    assert asked(doubled, keys) == [n if n < 0 else n * 2 + 100 for n in expected]


@given(disjoint(1, 30))
@example(even(40))
@example(even(40)[1:-1])
@example([*even(40)[::2], KeyRange("integer", null=True)])
def test_a_condition_is_true_for_all_rows_of_the_ranges(ranges: list[KeyRange]) -> None:
    keys = keys_around(ranges)
    selected = asked(within(ranges, KEY, FILES), keys)
    for key, chosen in zip(keys, selected, strict=True):
        belongs = number_in(ranges, key) >= 0
        assert chosen or not belongs
        if key is None or len(ranges) <= ENUMERATED:  # and then for no others
            assert bool(chosen) == belongs


@pytest.mark.parametrize("ranges", [even(17), even(40, 7, -100)])
def test_many_ranges_of_one_width_take_a_division(ranges: list[KeyRange]) -> None:
    keys = keys_around(ranges)
    sql = range_number(ranges, KEY, FILES)
    assert "//" in sql
    assert asked(sql, keys) == [number_in(ranges, key) for key in keys]


@pytest.mark.parametrize(
    "ranges",
    [
        even(ENUMERATED),
        even(17)[1:],
        even(17)[:-1],
        even(17)[::-1],
        [*even(17)[:-1], *(KeyRange("integer", *p) for p in ((150, 155), (155, None)))],
        even(17, 10, -(2**62)),
        even(17, 10, 2**62 - 150),
    ],
    ids=["few", "closed below", "closed above", "reversed", "uneven", "too low", "too high"],
)
def test_others_take_comparisons(ranges: list[KeyRange]) -> None:
    keys = keys_around(ranges)
    sql = range_number(ranges, KEY, FILES)
    assert "//" not in sql
    assert asked(sql, keys) == [number_in(ranges, key) for key in keys]


@pytest.mark.parametrize("first", [1 - 2**62, 2**62 - 1 - 150])
def test_a_division_goes_to_the_edge_of_64_bits(first: int) -> None:
    assert "//" in range_number(even(17, 10, first), KEY, FILES)


@given(st.lists(st.tuples(FEW, FEW).filter(lambda p: p[0] < p[1]), min_size=2, max_size=3))
@example([(0, 2), (1, 3)])
@example([(0, 3), (1, 2)])
@example([(0, 1), (0, 1)])
def test_ranges_that_overlap_have_no_numbers(pairs: list[tuple[int, int]]) -> None:
    ranges = [KeyRange("integer", *pair) for pair in pairs]
    shared = any(
        number_in([one], key) == 0 == number_in([other], key)
        for n, one in enumerate(ranges)
        for other in ranges[:n]
        for key in range(-6, 7)
    )
    if shared:
        with pytest.raises(ValueError, match="overlap"):
            range_number(ranges, KEY, FILES)
    else:
        range_number(ranges, KEY, FILES)


def test_two_ranges_that_are_open_below_overlap() -> None:
    with pytest.raises(ValueError, match="overlap"):
        range_number([KeyRange("integer", upper=1), KeyRange("integer", upper=2)], KEY, FILES)
    with pytest.raises(ValueError, match="overlap"):
        range_number([KeyRange("integer"), KeyRange("integer", 1, 2)], KEY, FILES)


ENDS = st.one_of(st.none(), FEW)
ANY = st.builds(KeyRange, st.just("integer"), ENDS, ENDS, st.booleans()).filter(
    lambda r: r.lower is None or r.upper is None or r.lower < r.upper
)


@given(st.lists(ANY, max_size=6))
def test_a_condition_of_any_ranges_is_true_for_their_rows_alone(ranges: list[KeyRange]) -> None:
    keys = keys_around(ranges)
    selected = asked(within_any(ranges, KEY, FILES), keys)
    expected = [any(key_range.contains(key) for key_range in ranges) for key in keys]
    assert [*map(bool, selected)] == expected


def test_ranges_that_follow_each_other_are_one_condition() -> None:
    pairs = [(20, None), (10, 20), (None, 5), (5, 7), (6, 8)]
    ranges = [KeyRange("integer", *pair) for pair in pairs]
    assert within_any(ranges, KEY, FILES) == '(("key" < 8) OR ("key" >= 10))'
    assert within_any([KeyRange("integer")], KEY, FILES) == '(("key" IS NOT NULL))'
    assert within_any([], KEY, FILES) == "(1 = 0)"


@given(ANY, ANY)
def test_two_ranges_overlap_if_a_key_belongs_to_both(one: KeyRange, other: KeyRange) -> None:
    keys = [None, *range(-8, 9)]
    assert one.overlaps(other) == any(one.contains(key) and other.contains(key) for key in keys)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        (None, None, True),
        (None, (5, None), True),
        ((1, 5), (5, 9), False),
        ((1, 6), (5, 9), True),
        ((1, 5), (9, None), False),
        ((5, None), (9, None), True),
        ((1, 5), None, True),
    ],
)
def test_parts_of_one_file_overlap_by_their_rows(
    one: tuple[int, int | None] | None, other: tuple[int, int | None] | None, overlap: bool
) -> None:
    first, second = (KeyRange("file", "a.csv", rows=rows) for rows in (one, other))
    assert first.overlaps(second) == second.overlaps(first) == overlap
    assert not first.overlaps(KeyRange("file", "b.csv", rows=other))


def test_a_file_contains_the_keys_that_are_its_name() -> None:
    one = KeyRange("file", "a.csv", rows=(1, 5))
    assert one.contains("a.csv")
    assert not one.contains("b.csv")
    assert not one.contains(None)


NAMES = st.text("ab.#%\x00\x7f0123456789", min_size=1, max_size=20)
ROWS = st.one_of(st.none(), st.tuples(st.integers(1, 10**11), st.none() | st.integers(2, 10**11)))


@given(NAMES, ROWS)
@example("a#0000000001..", None)
@example("a#0000000001..0000000009", (1, 9))
def test_the_name_of_a_file_range_reads_as_it(name: str, rows: tuple[int, int | None]) -> None:
    one = KeyRange("file", name, rows=rows)
    assert KeyRange.parse(one.name, "file") == one
    assert "..." not in one.name.rpartition("#")[0 if rows else 2]


INTEGERS = st.one_of(FEW, st.integers(-(2**64), 2**64), st.integers(-(10**10), 10**10))


@given(st.sets(INTEGERS, min_size=3, max_size=8), st.sampled_from([3, 5, 10, 19, 20, 38]))
@example({10**10 - 1, 10**10, 10**10 + 1}, 19)
@example({-10, -9, -1, 0, 99, 100}, 19)
@example({-100, -99, 999, 1000}, 3)
def test_names_of_integer_ranges_read_as_them_and_sort_by_key(
    numbers: set[int], digits: int
) -> None:
    cuts = sorted(numbers)
    ranges = [KeyRange("integer", *pair, digits=digits) for pair in pairwise([*cuts, None])]
    ranges.append(KeyRange("integer", null=True, digits=digits))
    names = [one.name for one in ranges]
    assert names == sorted(names)
    assert [
        KeyRange.parse(name, "integer", digits).contains(key)
        for name, key in zip(names, [*cuts, None], strict=True)
    ] == [True] * len(names)
    assert [(r.lower, r.upper) for r in (KeyRange.parse(n, "integer", digits) for n in names)] == [
        (r.lower, r.upper) for r in ranges
    ]


@pytest.mark.parametrize(
    ("bounds", "digits", "name"),
    [
        ((None, 1), 10, "..0000000001"),
        ((None, -1), 10, "-:..-1"),
        ((None, None), 10, ".."),
        ((None, 0), 10, "..0000000000"),
        ((1, 250_001), 10, "0000000001..0000250001"),
        ((1, 250), 3, "001..250"),
        ((-500, -250), 10, "-w499:-500..-250"),
        ((10**12, None), 19, "e12:1000000000000.."),
    ],
)
def test_names(bounds: tuple[int | None, int | None], digits: int, name: str) -> None:
    one = KeyRange("integer", *bounds, digits=digits)
    assert one.name == name
    assert KeyRange.parse(name, "integer", digits) == one


@pytest.mark.parametrize(
    ("name", "digits", "read"),
    [("001..250", 3, 3), ("001..250", 19, 3), ("00001..00250", 3, 5), ("0000000001..", 3, 10)],
)
def test_a_name_is_read_by_the_width_of_its_column_or_that_of_another_type(
    name: str, digits: int, read: int
) -> None:
    one = KeyRange.parse(name, "integer", digits)
    assert (one.name, one.digits) == (name, read)


@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [
        ("integer", "1..2", "that would be 0000000001..0000000002"),
        ("integer", "e03:0000000001..", "that would be 0000000001.."),
        ("integer", "0000000001", "no '..'"),
        ("integer", "a..b", "'a' is none"),
        ("integer", "0000000005..0000000005", "it ends where it begins"),
        ("date", "2024-01-01", "no '..'"),
        ("timestamp", "2024-01-01T00:00:00+00:00..", "UTC, without an offset"),
        ("text", "a..b", "no ' .. '"),
        ("text", "./b .. c", "that would be b .. c"),
        ("date", "0000000101..0000000201", "'0000000101' is none"),
        ("timestamp", "2024-01-01..2024-02-01", "that would be 2024-01-01T00:00:00.."),
        ("uuid", "1..2", "'1' is none"),
    ],
)
def test_what_names_no_range_is_refused(kind: KeyKind, name: str, why: str) -> None:
    with pytest.raises(InputError, match=f"is not a key range of {kind} keys: .*{why}"):
        KeyRange.parse(name, kind)


NUMBERED: dict[KeyKind, st.SearchStrategy[Any]] = {
    "integer": st.integers(-(2**63), 2**64),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "uuid": st.uuids(),
}


@pytest.mark.parametrize("kind", NUMBERED)
@given(st.data())
def test_bounds_have_numbers_in_their_order(kind: KeyKind, data: st.DataObject) -> None:
    one, other = data.draw(NUMBERED[kind]), data.draw(NUMBERED[kind])
    assert from_number(to_number(one), kind) == one
    assert (one < other) == (to_number(one) < to_number(other))
    assert to_number(one) <= largest_number(kind, 20)
    assert to_bound(one, kind) == to_bound(str(one), kind) == one


@pytest.mark.parametrize(
    ("kind", "digits", "largest"),
    [
        ("integer", 3, 255),
        ("integer", 5, 32767),
        ("integer", 10, 2147483647),
        ("integer", 19, 9223372036854775807),
        ("integer", 20, 18446744073709551615),
        ("integer", 4, 9999),
        ("uuid", 10, uuid.UUID(int=2**128 - 1)),
        ("date", 10, dt.date(9999, 12, 31)),
        ("timestamp", 10, dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ],
)
def test_the_largest_bound(kind: KeyKind, digits: int, largest: Bound) -> None:
    assert from_number(largest_number(kind, digits), kind) == largest


UTC2 = dt.timezone(dt.timedelta(hours=2))


@pytest.mark.parametrize(
    ("kind", "value", "bound"),
    [
        ("integer", decimal.Decimal("5.0"), 5),
        ("integer", decimal.Decimal(10) ** 30, 10**30),
        ("integer", "-7", -7),
        ("date", dt.datetime(2024, 1, 2, 3), dt.date(2024, 1, 2)),
        ("date", "2024-01-02 03:04", dt.date(2024, 1, 2)),
        ("timestamp", dt.date(2024, 1, 2), dt.datetime(2024, 1, 2)),
        ("timestamp", dt.datetime(2024, 1, 2, 3, tzinfo=UTC2), dt.datetime(2024, 1, 2, 1)),
        ("timestamp", "2024-01-02T03:00:00+02:00", dt.datetime(2024, 1, 2, 1)),
        ("text", "x", "x"),
        ("file", "x.csv", "x.csv"),
    ],
)
def test_values_of_servers_and_files_become_bounds(
    kind: KeyKind, value: object, bound: Bound
) -> None:
    assert to_bound(value, kind) == bound
    assert type(to_bound(value, kind)) is type(bound)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("integer", decimal.Decimal("5.5")),
        ("integer", decimal.Decimal("NaN")),
        ("integer", "1.5"),
        ("integer", True),
        ("text", 1),
        ("date", "today"),
        ("uuid", "x"),
        ("timestamp", dt.datetime(1, 1, 1, tzinfo=UTC2)),
    ],
)
def test_what_is_no_key_of_the_kind_is_refused(kind: KeyKind, value: object) -> None:
    with pytest.raises(InputError, match=f"should be a key of kind {kind}"):
        to_bound(value, kind)


def test_cases_are_not_nested_deeper_than_sql_server_takes() -> None:
    key = Column("k", "int", nullable=True)
    system = registry.system("sqlserver")
    ranges = [KeyRange("integer", 10 * at, 10 * at + 5) for at in range(most_ranges(system))]
    number = range_number([*ranges, KeyRange("integer", null=True)], key, system)
    deepest = depth = 0
    for word in re.findall(r"\b(?:CASE|END)\b", number):
        depth += 1 if word == "CASE" else -1
        deepest = max(deepest, depth)
    assert deepest <= 10
