"""Every possible key is in exactly one range, ranges are even, and growth leaves them alone."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tableferry.assets.planning.ranges.boundaries import MAX_RANGES, KeyStatistics
from tableferry.assets.planning.ranges.cutting import (
    RangeGrowth,
    block_growth,
    extend_ranges,
    find_range,
    like_range,
    plan_ranges,
    top_bound,
)
from tableferry.resources import registry
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract.catalog import BUCKETS
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import Bound, KeyKind, KeyRange
from tableferry.resources.types.type_map import Column

KEYS: dict[KeyKind, st.SearchStrategy[Any]] = {
    "integer": st.one_of(
        st.integers(-1000, 1000), st.integers(-(2**63), 2**63 - 1), st.just(2**63 - 1)
    ),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "uuid": st.uuids(),
}
SPECS: dict[KeyKind, st.SearchStrategy[dict[str, Any]]] = {
    kind: st.one_of(
        st.fixed_dictionaries({"rows": st.integers(1, 20)}),
        st.fixed_dictionaries({"count": st.integers(1, 12)}),
        st.fixed_dictionaries(
            {"bounds": st.sets(keys, min_size=2, max_size=6).map(sorted)},
        ),
        st.fixed_dictionaries(
            {
                "bounds": st.sets(keys, min_size=2, max_size=2).map(sorted),
                "count": st.integers(1, 12),
            }
        ),
    )
    for kind, keys in KEYS.items()
}


def statistics_of(keys: Sequence[Any], nullable: bool = False) -> KeyStatistics:
    """Exact statistics, as percentile_disc defines them."""
    ordered = sorted(keys)
    if not ordered:
        return KeyStatistics(0, nullable=nullable)
    buckets = min(BUCKETS, 10 * len(ordered))
    quantiles = [ordered[max(0, -(-i * len(ordered) // buckets) - 1)] for i in range(buckets + 1)]
    return KeyStatistics(len(ordered), ordered[0], ordered[-1], tuple(quantiles), nullable)


def depths(ranges: Sequence[KeyRange], keys: Sequence[Bound]) -> list[int]:
    return [sum(key_range.contains(key) for key in keys) for key_range in ranges]


def assert_partition(ranges: Sequence[KeyRange], keys: Sequence[Any], nullable: bool) -> None:
    """Open at both ends, no gap, no overlap; and the same seen from the keys."""
    bounded = sorted(
        (r for r in ranges if not r.null), key=lambda r: (r.lower is not None, r.lower)
    )
    assert bounded[0].lower is None
    assert bounded[-1].upper is None
    for below, above in pairwise(bounded):
        assert below.upper is not None and below.upper == above.lower
        assert below.lower is None or below.lower < below.upper  # type: ignore[operator]
    for key in [*keys, *([None] if nullable else [])]:
        assert sum(key_range.contains(key) for key_range in ranges) == 1, key
    names = [key_range.name for key_range in ranges]
    assert len(set(names)) == len(names)
    in_key_order = [*bounded, *(r for r in ranges if r.null)]
    by_name = sorted(ranges, key=lambda r: r.name)
    assert by_name == in_key_order, "names should sort as text in key order"


@st.composite
def tables(draw: st.DrawFn) -> tuple[KeyKind, list[Any], dict[str, Any], bool]:
    kind = draw(st.sampled_from(sorted(KEYS)))
    keys = draw(st.lists(KEYS[kind], max_size=60))
    return kind, keys, draw(SPECS[kind]), draw(st.booleans())


@given(tables(), st.data())
def test_every_possible_key_is_in_exactly_one_range(
    table: tuple[KeyKind, list[Any], dict[str, Any], bool], data: st.DataObject
) -> None:
    kind, keys, spec, nullable = table
    ranges = plan_ranges(statistics_of(keys, nullable), spec, kind, 19)
    others = data.draw(st.lists(KEYS[kind], max_size=20))
    edges = [bound for r in ranges for bound in (r.lower, r.upper) if bound is not None]
    assert_partition(ranges, [*keys, *others, *edges], nullable)


@given(tables())
def test_a_name_is_read_back_as_the_same_range(
    table: tuple[KeyKind, list[Any], dict[str, Any], bool],
) -> None:
    kind, keys, spec, nullable = table
    ranges = plan_ranges(statistics_of(keys, nullable), spec, kind, 19)
    for key_range in ranges:
        assert KeyRange.parse(key_range.name, kind, 19) == key_range
    by_name = {key_range.name: key_range for key_range in ranges}
    for name, key_range in by_name.items():
        assert find_range(name, by_name) == name
        if not key_range.null:
            lower, upper = ("" if b is None else b for b in (key_range.lower, key_range.upper))
            assert find_range(f"{lower}..{upper}", by_name) == name
    for key in keys:
        found = find_range(str(key), by_name)
        assert found is not None and by_name[found].contains(key)


@given(st.lists(st.integers(1 - 10**38, 10**38 - 1), max_size=60), st.integers(1, 20))
@example([1 - 10**38, -(10**26), -(10**25), -(10**12), 0, 10**20, 10**38 - 1], 1)
def test_decimals_of_38_digits_are_cut_as_integers_are(keys: list[int], rows: int) -> None:
    ranges = plan_ranges(statistics_of(keys), {"rows": rows}, "integer", 38)
    edges = [bound for r in ranges for bound in (r.lower, r.upper) if bound is not None]
    assert_partition(ranges, [*keys, *edges], nullable=False)
    for key_range in ranges:
        assert KeyRange.parse(key_range.name, "integer", 38) == key_range


@given(st.sets(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50))
def test_names_sort_as_text_in_key_order(bounds: set[int]) -> None:
    cuts = [None, *sorted(bounds), None]
    ranges = [KeyRange("integer", *pair, digits=19) for pair in pairwise(cuts)]
    names = [*(key_range.name for key_range in ranges), "null"]
    assert sorted(names) == names
    assert [KeyRange.parse(name, "integer", 19) for name in names[:-1]] == ranges


@pytest.mark.parametrize(
    ("lower", "upper", "name"),
    [
        (None, 1, "..0000000001"),
        (1, 250_001, "0000000001..0000250001"),
        (9_999_750_001, 10_000_000_001, "9999750001..10000000001"),
        (10_000_000_001, None, "e10:10000000001.."),
        (1_700_000_000_000, 1_700_086_400_000, "e12:1700000000000..1700086400000"),
        (None, -500, "-:..-500"),
        (-500, -250, "-w499:-500..-250"),
        (-250, 250_001, "-w749:-250..250001"),
    ],
)
def test_wide_keys_make_names_that_can_be_read(
    lower: int | None, upper: int | None, name: str
) -> None:
    key_range = KeyRange("integer", lower, upper, digits=19)
    assert key_range.name == name
    assert KeyRange.parse(name, "integer", 19) == key_range


def test_names_stay_when_the_column_is_widened() -> None:
    names = ["..00251", "00251..30001", "30001.."]
    known = [KeyRange.parse(name, "integer", 10) for name in names]
    assert [key_range.name for key_range in known] == names
    grown = extend_ranges(known, statistics_of([200_000]), {"rows": 1}, "integer", 10)
    added = [key_range.name for key_range in grown.add]
    assert added == ["30001..200001", "e05:200001.."]
    assert sorted([*names[:2], *added]) == [*names[:2], *added]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1..250001", "0000000001..0000250001"),
        ("1..250,001", "0000000001..0000250001"),
        ("1_000", "0000000001..0000250001"),
        ("250001", "0000250001..1700000000000"),
        ("1700000000000..", "e12:1700000000000.."),
        ("e12:1700000000000..", "e12:1700000000000.."),
        ("0", "..0000000001"),
        ("-5", "..0000000001"),
        ("0..1", "..0000000001"),
        ("-9 .. 1", "..0000000001"),
        ("1700000000000..1800000000000", "e12:1700000000000.."),
        (" 0000000001..0000250001 ", "0000000001..0000250001"),
        ("null", "null"),
        ("NULL", "null"),
        ("1..250002", None),
        ("1..1", None),
        ("1700000000000..5", None),
        ("one", None),
        ("", None),
    ],
)
def test_a_range_is_found_by_what_one_types(text: str, found: str | None) -> None:
    cuts = [None, 1, 250_001, 1_700_000_000_000, None]
    ranges = [KeyRange("integer", *pair, digits=19) for pair in pairwise(cuts)]
    ranges.append(KeyRange("integer", null=True, digits=19))
    assert find_range(text, {key_range.name: key_range for key_range in ranges}) == found


@pytest.mark.parametrize(
    ("text", "like"),
    [
        ("1..250002", ["0000000001..0000250001", "0000250001..1700000000000"]),
        ("..2", ["..0000000001", "0000000001..0000250001"]),
        ("250,001 .. 250,002", ["0000250001..1700000000000"]),
        ("0000000001-0000250001", ["0000000001..0000250001"]),
        ("nulls", ["null"]),
        ("?", []),
    ],
)
def test_ranges_that_may_have_been_meant_are_named(text: str, like: list[str]) -> None:
    cuts = [None, 1, 250_001, 1_700_000_000_000, None]
    ranges = [KeyRange("integer", *pair, digits=19) for pair in pairwise(cuts)]
    ranges.append(KeyRange("integer", null=True, digits=19))
    found = like_range(text, {key_range.name: key_range for key_range in ranges})
    assert found[: len(like)] == like and bool(found) is bool(like)


@settings(max_examples=200)
@given(tables(), st.data())
def test_growth_never_changes_a_finite_range_and_loses_no_key(
    table: tuple[KeyKind, list[Any], dict[str, Any], bool], data: st.DataObject
) -> None:
    kind, keys, spec, nullable = table
    ranges = plan_ranges(statistics_of(keys, nullable), spec, kind, 19)
    for _ in range(data.draw(st.integers(1, 3))):
        keys = keys + data.draw(st.lists(KEYS[kind], min_size=1, max_size=20))
        top = top_bound(ranges)
        seen = keys
        if data.draw(st.booleans()):  # statistics of the growth alone do as well
            seen = [key for key in keys if top is None or key >= top]
        grown = extend_ranges(ranges, statistics_of(seen, nullable), spec, kind, 19)
        assert_growth(ranges, grown)
        ranges = [*grown.keep, *grown.add]
        assert_partition(ranges, keys, nullable)


def assert_growth(before: Sequence[KeyRange], grown: RangeGrowth) -> None:
    assert set(grown.keep) | set(grown.retire) == set(before)
    assert not set(grown.keep) & set(grown.retire)
    assert not set(grown.add) & set(before)
    assert all(retired.upper is None and not retired.null for retired in grown.retire)


@example(("date", [dt.date(2000, 1, 1)] * 4 + [dt.date(7000, 1, 1)], {"rows": 4}, False))
@given(tables())
def test_an_unchanged_table_does_not_grow(
    table: tuple[KeyKind, list[Any], dict[str, Any], bool],
) -> None:
    kind, keys, spec, nullable = table
    stats = statistics_of(keys, nullable)
    ranges = plan_ranges(stats, spec, kind, 19)
    grown = extend_ranges(ranges, stats, spec, kind, 19)
    assert (grown.retire, grown.add) == ((), ())


@given(st.lists(KEYS["integer"], min_size=1, max_size=300, unique=True), st.integers(1, 40))
def test_ranges_by_rows_hold_at_most_so_many(keys: list[int], rows: int) -> None:
    ranges = plan_ranges(statistics_of(keys), {"rows": rows}, "integer", 19)
    # within one bucket of the statistics on either side
    assert max(depths(ranges, keys)) <= rows + 1 + 2 * len(keys) / min(BUCKETS, 10 * len(keys))
    assert len(ranges) <= -(-len(keys) // rows) + 1


SKEWED = {
    "two clusters far apart": [*range(1, 1001), *range(10**15, 10**15 + 1000)],
    "dense head, sparse tail": [*range(5000), *(10**6 * i for i in range(1, 1001))],
    "squares": [i * i for i in range(4000)],
    "negative and positive": [-(10**12) + i for i in range(1500)] + list(range(1500)),
    "one outlier": [*range(3000), 2**62],
}


@pytest.mark.parametrize("keys", SKEWED.values(), ids=SKEWED)
@pytest.mark.parametrize("spec", [{"count": 8}, {"rows": 250}], ids=str)
def test_skewed_and_sparse_keys_make_even_ranges(keys: list[int], spec: dict[str, int]) -> None:
    ranges = plan_ranges(statistics_of(keys), spec, "integer", 19)
    pieces = spec.get("count") or -(-len(keys) // spec["rows"])
    *finite, top = depths(ranges, keys)
    assert top == 0
    assert len(finite) == pieces
    assert max(finite) - min(finite) <= 0.1 * len(keys) / pieces + 2


def test_repeated_keys_make_fewer_ranges_with_distinct_bounds() -> None:
    keys = [1] * 900 + [2] * 50 + [3] * 50
    ranges = plan_ranges(statistics_of(keys), {"rows": 100}, "integer")
    assert [r.name for r in ranges] == [
        "..0000000002",
        "0000000002..0000000004",
        "0000000004..",
    ]


def test_the_first_column_of_a_composite_key_cuts_at_its_values() -> None:
    keys = [tenant for tenant in (10, 20, 30) for _ in range(1000)]
    ranges = plan_ranges(statistics_of(keys), {"count": 3}, "integer")
    assert depths(ranges, keys) == [1000, 1000, 1000, 0]


def test_an_empty_table_is_one_range_and_is_cut_when_it_has_rows() -> None:
    ranges = plan_ranges(KeyStatistics(0, nullable=True), {"rows": 10}, "integer")
    assert [r.name for r in ranges] == ["..", "null"]
    assert extend_ranges(ranges, KeyStatistics(0), {"rows": 10}, "integer").add == ()
    grown = extend_ranges(ranges, statistics_of(range(1, 21)), {"rows": 10}, "integer")
    assert [r.name for r in grown.retire] == [".."]
    assert [r.name for r in grown.add] == [
        "..0000000011",
        "0000000011..0000000021",
        "0000000021..",
    ]


def test_a_last_range_that_is_not_full_has_room_to_grow_to_a_full_one() -> None:
    ranges = plan_ranges(statistics_of(range(1, 1201)), {"rows": 1000}, "integer")
    assert [r.name for r in ranges] == [
        "..0000000601",
        "0000000601..0000001601",
        "0000001601..",
    ]


SMALL: dict[KeyKind, Callable[[int], Any]] = {
    "integer": lambda number: number - 5,
    "date": lambda number: dt.date(2024, 1, 1) + dt.timedelta(days=number),
    "timestamp": lambda number: dt.datetime(2024, 1, 1) + dt.timedelta(seconds=number),
    "uuid": lambda number: uuid.UUID(int=number * 7919 << 100),
    "text": lambda number: f"k{number:03d}",
}


@pytest.mark.parametrize("kind", SMALL)
def test_a_small_table_is_one_range_until_it_outgrows_it(kind: KeyKind) -> None:
    keys, spec = [SMALL[kind](number) for number in range(200)], {"rows": 100}
    ranges = plan_ranges(statistics_of(keys[:100], nullable=True), spec, kind)
    assert [r.name for r in ranges] == ["..", "null"]
    slightly_more = statistics_of(keys[:150], nullable=True)
    assert extend_ranges(ranges, slightly_more, spec, kind) == RangeGrowth(tuple(ranges), (), ())
    grown = extend_ranges(ranges, statistics_of(keys, nullable=True), spec, kind)
    assert [r.name for r in (*grown.retire, *grown.keep)] == ["..", "null"]
    assert depths(grown.add, keys)[:2] == [100, 100]
    assert sum(depths(grown.add, keys)) == 200
    larger = plan_ranges(statistics_of(keys[:101]), spec, kind)
    assert [count for count in depths(larger, keys[:101]) if count] in ([51, 50], [50, 51])


def test_other_cuts_than_by_rows_do_not_wait_until_a_table_is_large() -> None:
    stats = statistics_of(range(1, 21))
    assert len(plan_ranges(stats, {"count": 2}, "integer")) == 3
    whole = plan_ranges(stats, {"rows": 100}, "integer")
    for spec in ({"count": 2}, {"width": 10}, {"bounds": [1, 11]}):
        grown = extend_ranges(whole, stats, spec, "integer")
        assert [r.name for r in grown.retire] == [".."]
        assert len(grown.add) >= 3
    assert extend_ranges(whole, KeyStatistics(0), {"count": 2}, "integer").add == ()


def test_small_growth_makes_one_new_range_that_takes_later_growth() -> None:
    spec = {"rows": 1000}
    ranges = plan_ranges(statistics_of(range(1, 3001)), spec, "integer")
    assert ranges[-1].name == "0000003001.."
    grown = extend_ranges(ranges, statistics_of(range(1, 3011)), spec, "integer")
    assert [r.name for r in grown.add] == ["0000003001..0000004001", "0000004001.."]
    ranges = [*grown.keep, *grown.add]
    assert extend_ranges(ranges, statistics_of(range(1, 3901)), spec, "integer").add == ()
    more = extend_ranges(ranges, statistics_of(range(4001, 9001)), spec, "integer")
    assert len(more.add) == 6


def test_daily_rows_of_a_date_key_do_not_make_a_range_a_day() -> None:
    days = [dt.date(2013, 1, 1) + dt.timedelta(days=i // 900) for i in range(900 * 365)]
    ranges = plan_ranges(statistics_of(days), {"rows": 100_000}, "date")
    later = days + [dt.date(2014, 1, 1)] * 900
    grown = extend_ranges(ranges, statistics_of(later), {"rows": 100_000}, "date")
    assert grown.add == (), "the last range was planned with room for this"


def test_null_joins_later_if_the_column_becomes_nullable() -> None:
    ranges = plan_ranges(statistics_of([1, 2]), {"count": 1}, "integer")
    grown = extend_ranges(ranges, statistics_of([1, 2], nullable=True), {"count": 1}, "integer")
    assert [r.name for r in grown.add] == ["null"]
    assert grown.retire == ()


@pytest.mark.parametrize(
    ("kind", "low", "high", "spec", "names"),
    [
        ("integer", 5, 25, {"width": 10}, ["..10", "10..20", "20..30", "30.."]),
        ("integer", -25, -5, {"width": 10}, ["..-20", "-20..-10", "-10..0", "0.."]),
        ("integer", 5, 25, {"bounds": [1, 11]}, ["..1", "1..11", "11.."]),
        (
            "integer",
            5,
            25,
            {"bounds": [1, 21], "width": 10},
            ["..1", "1..11", "11..21", "21..31", "31.."],
        ),
        (
            "integer",
            5,
            15,
            {"bounds": [1, 21], "count": 2},
            ["..1", "1..11", "11..21", "21.."],
        ),
        (
            "date",
            dt.date(2023, 11, 30),
            dt.date(2024, 1, 31),
            {"width": "month"},
            ["..2023-12-01", "2023-12-01..2024-01-01", "2024-01-01..2024-02-01", "2024-02-01.."],
        ),
        (
            "date",
            dt.date(2023, 11, 30),
            dt.date(2024, 1, 31),
            {"width": "year"},
            ["..2024-01-01", "2024-01-01..2025-01-01", "2025-01-01.."],
        ),
        (
            "date",
            dt.date(1970, 1, 1),
            dt.date(1970, 1, 8),
            {"width": 7},
            ["..1970-01-08", "1970-01-08..1970-01-15", "1970-01-15.."],
        ),
        (
            "timestamp",
            dt.datetime(2024, 1, 1, 12),
            dt.datetime(2024, 1, 2, 12),
            {"width": "day"},
            [
                "..2024-01-02T00:00:00",
                "2024-01-02T00:00:00..2024-01-03T00:00:00",
                "2024-01-03T00:00:00..",
            ],
        ),
        (
            "timestamp",
            dt.datetime(2024, 1, 1, 0, 30),
            dt.datetime(2024, 1, 1, 1),
            {"width": 3600},
            [
                "..2024-01-01T01:00:00",
                "2024-01-01T01:00:00..2024-01-01T02:00:00",
                "2024-01-01T02:00:00..",
            ],
        ),
        (
            "date",
            dt.date(9999, 12, 30),
            dt.date.max,
            {"width": "day"},
            ["..9999-12-31", "9999-12-31.."],
        ),
    ],
)
def test_ranges_by_width_and_bounds(
    kind: KeyKind, low: Bound, high: Bound, spec: dict[str, Any], names: list[str]
) -> None:
    ranges = plan_ranges(KeyStatistics(2, low, high, (low, high)), spec, kind, 3)
    if kind == "integer":
        # written without the padding
        numbers = [
            f"{'' if r.lower is None else r.lower}..{'' if r.upper is None else r.upper}"
            for r in ranges
        ]
        assert numbers == names
    else:
        assert [r.name for r in ranges] == names


def test_growth_by_width_goes_on_in_steps() -> None:
    stats = KeyStatistics(2, 5, 25, (5, 25))
    ranges = plan_ranges(stats, {"width": 10}, "integer")
    grown = extend_ranges(ranges, KeyStatistics(1, 45, 45, (45, 45)), {"width": 10}, "integer")
    assert [(r.lower, r.upper) for r in grown.add] == [(30, 40), (40, 50), (50, None)]


def test_declared_bounds_grow_with_the_declaration_only() -> None:
    ranges = plan_ranges(KeyStatistics(0), {"bounds": [1, 11]}, "integer")
    stats = statistics_of(range(1, 1000))
    assert extend_ranges(ranges, stats, {"bounds": [1, 11]}, "integer").add == ()
    grown = extend_ranges(ranges, stats, {"bounds": [1, 11, 21]}, "integer")
    assert [(r.lower, r.upper) for r in grown.add] == [(11, 21), (21, None)]


def test_random_uuids_are_cut_evenly_at_readable_bounds_and_do_not_grow_at_the_top() -> None:
    spread = range(0, 2**16, 16)
    keys = [uuid.UUID(int=i << 112) for i in spread]
    ranges = plan_ranges(statistics_of(keys), {"rows": 1024}, "uuid")
    assert depths(ranges, keys) == [1024] * 4 + [0]
    assert all(str(r.upper).endswith("-0000-0000-0000-000000000000") for r in ranges[:-1])
    more = [*keys, *(uuid.UUID(int=(i + 15 << 112) + 1) for i in spread)]
    assert depths(ranges, more)[-1] == 1
    assert extend_ranges(ranges, statistics_of(more), {"rows": 1024}, "uuid").add == ()


def test_uuids_in_order_of_time_grow_like_a_serial() -> None:
    def version_7(second: int) -> uuid.UUID:
        return uuid.UUID(int=(1_700_000_000_000 + 1000 * second << 80) + (7 << 76) + (2 << 62))

    keys = [version_7(i) for i in range(4000)]
    ranges = plan_ranges(statistics_of(keys), {"rows": 1000}, "uuid")
    assert depths(ranges, keys) == [1000] * 4 + [0]
    later = [version_7(i) for i in range(4000, 4400)]
    grown = extend_ranges(ranges, statistics_of(later), {"rows": 1000}, "uuid")
    assert len(grown.add) == 2
    much_later = [version_7(i) for i in range(4000, 4950)]
    ranges = [*grown.keep, *grown.add]
    assert extend_ranges(ranges, statistics_of(much_later), {"rows": 1000}, "uuid").add == ()


def test_timestamps_are_cut_at_whole_units() -> None:
    start = dt.datetime(2024, 1, 1, 0, 0, 0, 123456)
    keys = [start + dt.timedelta(seconds=97 * i) for i in range(10_000)]
    for key_range in plan_ranges(statistics_of(keys), {"count": 4}, "timestamp")[:-1]:
        assert isinstance(key_range.upper, dt.datetime)
        assert (key_range.upper.second, key_range.upper.microsecond) == (0, 0)


def test_the_largest_key_of_a_type_leaves_the_last_range_open() -> None:
    ranges = plan_ranges(statistics_of([1, 32767]), {"count": 1}, "integer", 5)
    assert [r.name for r in ranges] == [".."]
    ranges = plan_ranges(statistics_of([2, 2**63 - 1]), {"width": 2**62}, "integer", 19)
    assert [r.upper for r in ranges] == [2**62, None]


def test_thousands_of_ranges_are_refused() -> None:
    stats = statistics_of([*range(1, 1001), *range(10**15, 10**15 + 1000)])
    with pytest.raises(InputError, match=f"more than {MAX_RANGES} key ranges; cut by rows"):
        plan_ranges(stats, {"width": 1000}, "integer", 19)
    with pytest.raises(InputError, match="this would make 100000 key ranges"):
        plan_ranges(stats, {"count": 100_000}, "integer", 19)


@given(
    sizes=st.lists(st.integers(0, 10**6), min_size=1, max_size=5).map(sorted),
    count=st.integers(1, 50),
)
@example(sizes=[0, 101], count=4)
@example(sizes=[8, 10**6], count=8)
def test_stretches_of_blocks_cover_a_table_as_it_grows(sizes: list[int], count: int) -> None:
    known: list[KeyRange] = []
    for blocks in sizes:
        growth = block_growth(known, blocks, count, 10_000, 19)
        assert len(growth.add) <= count + 1
        assert not growth.retire or growth.retire == (known[-1],)
        known = [*growth.keep, *growth.add]
        assert known[0].lower is None and known[-1].upper is None
        assert all(one.upper == above.lower for one, above in pairwise(known))
        assert all(int(str(one.lower)) % 10_000 == 0 for one in known[1:])
        assert [one.name for one in known] == sorted(one.name for one in known)
        assert blocks * 10_000 <= int(str(known[-1].lower or 0)), "the open range is empty"
        assert block_growth(known, blocks, count, 10_000, 19).add == ()


def test_more_stretches_than_the_event_log_bears_are_refused() -> None:
    known = [KeyRange("integer", lower, lower + 1) for lower in range(MAX_RANGES)]
    known += [KeyRange("integer", MAX_RANGES)]
    with pytest.raises(InputError, match="key ranges"):
        block_growth(known, 10_000, 8, 10_000, 19)


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ({"bounds": [3, 1]}, "integer", "strictly ascending"),
        ({"bounds": ["a", "b"]}, "integer", "'a' should be a key of kind integer"),
        ({"width": "day"}, "integer", "needs a date or timestamp key"),
        ({"width": 10}, "uuid", "give rows or count"),
    ],
)
def test_a_spec_that_does_not_fit_is_refused(
    spec: dict[str, Any], kind: KeyKind, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plan_ranges(KeyStatistics(0), spec, kind)


@pytest.mark.parametrize(
    ("system", "type_", "expected"),
    [
        ("postgres", "smallint", ("integer", 5)),
        ("postgres", "integer", ("integer", 10)),
        ("postgres", "bigint", ("integer", 19)),
        ("postgres", "date", ("date", 10)),
        ("postgres", "timestamp(3) without time zone", ("timestamp", 10)),
        ("postgres", "timestamp with time zone", ("timestamp", 10)),
        ("postgres", "uuid", ("uuid", 10)),
        ("sqlserver", "tinyint", ("integer", 3)),
        ("sqlserver", "datetime2(7)", ("timestamp", 10)),
        ("sqlserver", "datetimeoffset(3)", ("timestamp", 10)),
        ("sqlserver", "uniqueidentifier", ("uuid", 10)),
        ("clickhouse", "DateTime64(6, 'UTC')", ("timestamp", 10)),
        ("postgres", "numeric(9,0)", ("integer", 18)),
        ("postgres", "numeric(3,-2)", ("integer", 18)),
        ("sqlserver", "decimal(38,0)", ("integer", 38)),
        ("clickhouse", "Nullable(Decimal(19, 0))", ("integer", 38)),
    ],
)
def test_key_kinds(system: Any, type_: str, expected: tuple[str, int]) -> None:
    assert key_kind(Column("k", type_), registry.system(system)) == expected


@pytest.mark.parametrize(
    "type_", ["enum", "jsonb", "numeric(10,2)", "numeric", "numeric(39,0)", "boolean"]
)
def test_other_keys_are_refused(type_: str) -> None:
    with pytest.raises(
        InputError, match="should be an integer, date, timestamp, uuid or text column"
    ):
        key_kind(Column("k", type_), registry.system("postgres"))


@pytest.mark.parametrize("system", ["postgres", "sqlserver", "clickhouse"])
def test_a_decimal_that_may_be_no_key_is_told_one_that_may(system: str) -> None:
    types = registry.system(system)
    fractions = Column("k", types.types.decimal(38, 1))
    with pytest.raises(InputError, match="which may hold fractions") as refused:
        key_kind(fractions, types)
    example = str(refused.value).rpartition("such as ")[2]
    assert key_kind(Column("k", example), types) == ("integer", 38)
