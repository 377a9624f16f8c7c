"""Ranges as the statements of a source read them: few, but none for longer than it may take.

The server, its table and its catalog are real; how many rows a range has is claimed, and they are
read by waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.digest.stretches import FIRST_ROWS, FIRST_VALUES, GROWTH, stretches
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tests.chance import chance
from tests.integration.support import looking
from tests.servers import own

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("nothing_known")]

KEY = Column("id", "integer")
TABLE = TableRef("postgres", "public", own("stretches"))
IN_ORDER = f"CREATE TABLE {TABLE.name} AS SELECT g AS id FROM generate_series(1, 2000) g"
INDEX = f"CREATE INDEX ON {TABLE.name} (id)"


@pytest.fixture
def make(pg_url: str) -> Iterator[Callable[..., None]]:
    """Makes the table by these statements."""
    drop = f"DROP TABLE IF EXISTS {TABLE.name}"
    yield lambda *sql: looking.ask_postgres(pg_url, drop, *sql, f"ANALYZE {TABLE.name}")
    looking.ask_postgres(pg_url, drop)


@pytest.fixture
def limited(make: Callable[..., None], pg_url: str) -> Callable[[float | str], Endpoint]:
    """The server, with so many seconds for a statement, and a table whose index finds ranges."""
    make(IN_ORDER, INDEX)
    return lambda longest: PostgresResource(url=pg_url).within_budget(
        "postgres", limits={"longest_statement": longest}
    )


@pytest.fixture
def server(limited: Callable[[float | str], Endpoint]) -> Endpoint:
    return limited(1.0)


def ranges_of(count: int) -> list[KeyRange]:
    middle = [KeyRange("integer", at * 10, at * 10 + 10) for at in range(count)]
    ends = KeyRange("integer", None, 0), KeyRange("integer", count * 10, None)
    return [ends[0], *middle, ends[1], KeyRange("integer", null=True)]


def rows_of(ranges: Sequence[KeyRange], each: int = 100_000) -> dict[str, int]:
    return {one.name: each for one in ranges[1:-2]}


def read(
    server: Endpoint,
    ranges: Sequence[KeyRange],
    rows: Mapping[str, int],
    rate: float = 1e9,
    columns: int = 15,
    most: int | None = None,
) -> list[int]:
    """The rows of each statement, which reads so many of them in a second."""
    sizes, seen = [], []
    for part in stretches(server, TABLE, KEY, ranges, columns=columns, rows=rows, most=most):
        assert 0 < len(part) <= (most or len(ranges))
        sizes.append(sum(rows.get(each.name, 0) for each in part))
        seen += part
        time.sleep(sizes[-1] / rate)
    assert seen == ranges, "each of them once, and in order"
    return sizes


def test_a_small_table_is_one_statement_however_long_the_way_to_it_is(server: Endpoint) -> None:
    ranges = ranges_of(100)
    for rate in (1e9, 2_000, 2_000):
        assert len(read(server, ranges, rows_of(ranges, 10), rate)) == 1
    assert len(read(server, ranges_of(2), {})) == 1, "nobody asks how large it is"


@pytest.mark.parametrize("rate", [1_000_000, 4_000_000])
def test_no_statement_but_the_first_takes_longer(server: Endpoint, rate: int) -> None:
    ranges = ranges_of(40)
    sizes = read(server, ranges, rows_of(ranges), rate)
    assert sizes[0] <= FIRST_VALUES / 15
    assert max(sizes[1:]) <= rate
    assert len(sizes) <= 4_000_000 / rate * 3 + 5, "and they are no more than needed"


def test_what_one_reading_has_taken_the_next_one_knows(server: Endpoint) -> None:
    ranges, rate = ranges_of(10), 300_000
    first = read(server, ranges, rows_of(ranges), rate)
    again = read(server, ranges, rows_of(ranges), rate)
    assert first[0] > rate >= again[0]
    assert len(read(server, ranges, rows_of(ranges), columns=0)) == 1, "of other columns, nothing"


def test_a_sudden_speed_is_not_believed_at_once(server: Endpoint) -> None:
    ranges = ranges_of(1000)
    sizes = read(server, ranges, rows_of(ranges), columns=0)
    assert sizes[0] <= FIRST_ROWS and sizes[1] <= GROWTH * FIRST_ROWS


SCATTERED = f"{IN_ORDER} ORDER BY md5(g::text)"


@pytest.mark.parametrize("made", [(SCATTERED, INDEX), (IN_ORDER,)], ids=["scattered", "no index"])
def test_a_table_that_each_statement_would_read_whole_is_not_cut(
    server: Endpoint, make: Callable[..., None], made: Sequence[str]
) -> None:
    ranges = ranges_of(400)
    make(*made)
    assert len(read(server, ranges, rows_of(ranges))) == 1
    assert len(read(server, ranges, rows_of(ranges), most=100)) == 5


def test_without_a_limit_all_ranges_are_one_statement(
    limited: Callable[[float | str], Endpoint], pg_url: str
) -> None:
    ranges = ranges_of(400)
    for server in (limited("none"), PostgresResource(url=pg_url)):
        assert len(read(server, ranges, rows_of(ranges))) == 1
    assert read(limited(1.0), [], {}) == []


def test_the_size_of_many_ranges_is_asked_once(
    server: Endpoint, pg_url: str, nothing_known: Callable[[], None]
) -> None:
    grown = f"UPDATE pg_class SET reltuples = 8e7 WHERE relname = '{TABLE.name}'"
    assert len(read(server, ranges_of(8), {})) == 1
    looking.ask_postgres(pg_url, grown)
    assert len(read(server, ranges_of(8), {})) == 1, "it was asked a moment ago"
    nothing_known()
    assert len(read(server, ranges_of(8), {})) > 4


def test_every_range_is_read_once_and_in_order(server: Endpoint) -> None:
    random = chance("stretches")
    for _ in range(20):
        ranges = ranges_of(random.randint(1, 60))
        rows = {each.name: random.randrange(10**9) for each in ranges}
        read(server, ranges, rows, rate=1e12, columns=3, most=random.randint(1, 20))
