"""Rows that differ are found by their keys as they are found by buckets."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tableferry.checks import sides
from tableferry.checks.comparing import tables
from tableferry.checks.comparing.pairing import ComparisonScope, Pairing, pair
from tableferry.checks.comparing.tables import TableComparison, compare_tables
from tableferry.checks.sides import Comparison
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import qualified, range_number, within
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.types.type_map import Column
from tests.chance import chance
from tests.integration.conftest import table_name
from tests.integration.support.pairs import Place, places
from tests.servers import Servers

pytestmark = pytest.mark.integration

Row = tuple[int, int, str]
SYSTEMS = ("postgres", "sqlserver", "clickhouse")
COLUMNS = {
    "postgres": "(id bigint PRIMARY KEY, amount int NOT NULL, note text NOT NULL)",
    "sqlserver": "(id bigint NOT NULL PRIMARY KEY, amount int NOT NULL, note varchar(20) NOT NULL)",
    "clickhouse": "(id Int64, amount Int32, note String) ENGINE MergeTree ORDER BY id",
}


@pytest.fixture(scope="module")
def found(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Place]:
    return places(stack, tmp_path_factory.mktemp("files"))


class Pairs:
    """Makes pairs of tables, and drops them."""

    def __init__(self, found: dict[str, Place]) -> None:
        self.found, self._made = found, []

    def fill(self, system: str, rows: list[Row], columns: str = "") -> str:
        name, place = table_name(), self.found[system]
        self._made.append((place, name))
        table = qualified(place.table(name))
        place.endpoint.execute(f"CREATE TABLE {table} {columns or COLUMNS[system]}")
        for at in range(0, len(rows), 900):
            values = ", ".join(f"({i}, {a}, '{note}')" for i, a, note in rows[at : at + 900])
            place.endpoint.execute(f"INSERT INTO {table} VALUES {values}")
        return name

    def pairing(self, first: tuple[str, str], second: tuple[str, str]) -> Pairing:
        sides = [
            (self.found[system], self.found[system].table(name)) for system, name in (first, second)
        ]
        (a, source), (b, target) = sides
        return pair(
            source,
            a.endpoint.columns(source),
            target,
            b.endpoint.columns(target),
            ComparisonScope(),
        )

    def compare(self, first: tuple[str, str], second: tuple[str, str]) -> TableComparison:
        pairing = self.pairing(first, second)
        return compare_tables(pairing, *self.endpoints(first, second))

    def endpoints(self, *sides: tuple[str, str]) -> list[Endpoint]:
        return [self.found[system].endpoint for system, _ in sides]

    def drop(self) -> None:
        for place, name in self._made:
            place.drop(place.table(name))


@pytest.fixture
def pairs(found: dict[str, Place]) -> Iterator[Pairs]:
    made = Pairs(found)
    yield made
    made.drop()


def damaged(rows: list[Row], numbers: random.Random, share: float) -> list[Row]:
    """The rows, of which some have other values, some are missing, and others are new."""
    kept: list[Row] = []
    for i, amount, note in rows:
        what = numbers.random()
        if what < share / 3:
            kept.append((i, amount + 1, note))
        elif what < share / 2:
            kept.append((i, amount, note + "x"))
        elif what > share * 2 / 3:
            kept.append((i, amount, note))
        if what < share / 20:
            kept.append((i + 1, 0, "new"))
    return kept


def told(outcome: TableComparison) -> tuple[object, ...]:
    """What a comparison says of rows, whatever it has read for that."""
    found = outcome.differences
    if found is None:
        return (outcome.equal,)
    return (
        outcome.equal,
        replace(found, rows_compared=0, target_rows_compared=0, by_column={}),
        dict(sorted(found.by_column.items())),
        outcome.causes,
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("postgres", "postgres"),
        ("postgres", "clickhouse"),
        ("sqlserver", "postgres"),
        ("clickhouse", "sqlserver"),
    ],
)
@pytest.mark.parametrize("share", [0.1, 1])
def test_rows_are_found_by_key_as_by_buckets(
    pairs: Pairs, first: str, second: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = chance("by key", first, second, share)
    monkeypatch.setattr(tables, "LISTED", 7)
    monkeypatch.setattr(tables, "MOST_KEYS", 40)
    monkeypatch.setattr(sides, "BATCH_ROWS", 100)
    keys = sorted(numbers.sample(range(-(10**6), 10**6, 3), 900))
    rows = [(i, numbers.randrange(1000), f"note {i % 7}") for i in keys]
    one = first, pairs.fill(first, rows)
    two = second, pairs.fill(second, damaged(rows, numbers, share))
    asked = []
    search = tables.ComparisonByKey.search
    monkeypatch.setattr(
        tables.ComparisonByKey, "search", lambda *given: asked.append(1) or search(*given)
    )
    by_keys = pairs.compare(one, two)
    assert asked and not by_keys.equal
    monkeypatch.setattr(tables, "finds_by_key", lambda comparison: False)
    by_buckets = pairs.compare(one, two)
    assert told(by_keys) == told(by_buckets)
    for side in ("source", "target"):
        assert by_keys.read[side].counted == by_buckets.read[side].counted
        assert by_keys.read[side].again <= by_buckets.read[side].again


def test_rows_that_share_a_key_are_all_compared(pairs: Pairs) -> None:
    """ClickHouse keeps no key unique."""
    rows = [(i, i, "a") for i in range(40)]
    one = "postgres", pairs.fill("postgres", rows)
    again = [*rows, (7, 7, "a"), (8, 0, "b")]
    two = "clickhouse", pairs.fill("clickhouse", again)
    differences = pairs.compare(one, two).differences
    assert differences is not None
    assert (differences.extra_in_target, differences.rows) == (2, 2)
    assert {each.row["id"] for each in differences.examples} == {"7", "8"}


def test_few_rows_are_read_again_where_few_differ(pairs: Pairs) -> None:
    rows = [(i, i, "a") for i in range(5_000)]
    one = "postgres", pairs.fill("postgres", rows)
    two = "clickhouse", pairs.fill("clickhouse", [(i, i + (i == 4_321), n) for i, i, n in rows])
    outcome = pairs.compare(one, two)
    assert outcome.differences is not None
    assert outcome.differences.by_column == {"amount": 1}
    for read in outcome.read.values():
        assert (read.counted, read.again, read.sent) == (5_000, 10, 11)


@pytest.mark.parametrize(
    ("system", "columns"),
    [
        ("postgres", "(id bigint, amount int, note text)"),
        ("postgres", "(amount int, id bigint, note text, PRIMARY KEY (note, id))"),
        ("sqlserver", "(id decimal(20, 0) PRIMARY KEY, amount int, note varchar(20))"),
        ("clickhouse", "(id UInt64, amount Int32, note String) ENGINE MergeTree ORDER BY id"),
        ("clickhouse", "(id Nullable(Int64), amount Int32, note String) ENGINE Memory"),
    ],
)
def test_other_keys_are_found_by_buckets(pairs: Pairs, system: str, columns: str) -> None:
    """Without an index of the key, or where NULL or its order is in doubt."""
    one = "postgres", pairs.fill("postgres", [])
    two = system, pairs.fill(system, [], columns)
    both = Comparison(pairs.pairing(one, two).plan, *pairs.endpoints(one, two), ())
    assert not tables.finds_by_key(both)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_division_tells_the_range_of_a_row(pairs: Pairs, system: str) -> None:
    place = pairs.found[system]
    keys = [-(2**63), -101, -100, -99, -1, 0, 1, 10, 11, 2**31, 2**40, 2**63 - 1]
    name = pairs.fill(system, [(key, 0, "") for key in keys])
    table = place.table(name)
    (key, *_) = place.endpoint.columns(table)
    for low, width in ((-100, 11), (0, 1), (-(2**40), 2**37)):
        cuts = [low + width * number for number in range(20)]
        ranges = [KeyRange("integer", *two) for two in itertools.pairwise([None, *cuts, None])]
        number, unequal = (
            range_number(some, key, table.system)
            for some in (ranges, [*ranges[:-2], KeyRange("integer", cuts[-2], None)])
        )
        assert (number.count("CASE"), unequal.count("CASE") > 1) == (1, False)
        seen = dict(
            place.endpoint.query(
                f"SELECT id, {number} FROM {qualified(table)} "
                f"WHERE {within(ranges, key, table.system)}"
            )
        )
        assert {int(k): int(v) for k, v in seen.items()} == {
            each: sum(cut <= each for cut in cuts) for each in keys
        }


def test_ranges_of_other_widths_are_told_by_comparisons() -> None:
    from tableferry.resources.registry import system

    key = Column("id", "bigint", nullable=False)
    cuts = [*range(0, 200, 10), 201]
    ranges = [KeyRange("integer", *two) for two in itertools.pairwise([None, *cuts, None])]
    for some, column in ((ranges, key), (ranges[:-1], Column("id", "numeric(20,0)"))):
        assert " / " not in range_number(some, column, system("postgres"))
