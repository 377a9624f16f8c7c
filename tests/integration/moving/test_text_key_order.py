"""Every server puts every text on the side of a bound on which its UTF-8 bytes are."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tableferry.assets.planning.ranges.boundaries import key_statistics
from tableferry.assets.planning.ranges.cutting import plan_ranges
from tableferry.resources import registry
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import predicate, qualified, range_number, within
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.keys.text import problem
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tests.chance import chance
from tests.integration.conftest import table_name

pytestmark = pytest.mark.integration

PARTS = (
    *("", "a", "A", "b", "ä", "a\u0308", "é", "ß", "z", "Z", "0", "10", "-", "_", "%", "[", "]"),
    *("~", "^", "\\", "'", '"', ".", "..", " ", "  ", "!", "\t", "\n", "\x01", "\x1f", "\x7f"),
    *("\u00a0", "\u0300", "\u200d", "\ud7ff", "\ue000", "\ufeff", "\ufffd", "\uffff"),
    *("\U00010000", "😀", "\U0001d49c", "\U0010ffff"),
)
BOUNDS = sorted(
    {
        *(
            "!",
            "0",
            "10",
            "A",
            "AB",
            "Aé",
            "Z",
            "a",
            "a b",
            "a!",
            "a-",
            "a%",
            "a_b",
            "a[b",
            "a~",
            "aa",
        ),
        *(
            "a'b",
            'a"b',
            "a\\b",
            "ab",
            "b",
            "ba",
            "z",
            "zz",
            "~",
            "\x7f",
            "ä",
            "é",
            "\ud7ff",
            "a\ud7ff",
        ),
        *("a\u0308", "a..b", "b" * 200),
    }
)


def texts(*, nul: bool = False) -> list[str]:
    """Texts about the bounds: each bound with something behind it, or less of it, and others."""
    numbers = chance("texts")
    parts = [*PARTS, "\0"] if nul else PARTS
    found = {"", "x" * 3000, "b" * 199, "b" * 201}
    found |= {bound[:-1] + part for bound in BOUNDS for part in ("", bound[-1], " ", "\t")}
    found |= {bound + part for bound in BOUNDS for part in parts}
    found |= {bound + "  " + part for bound in BOUNDS for part in ("\t", "\x1f", "!", "😀")}
    while len(found) < 2500:
        found.add("".join(numbers.choices(parts, k=numbers.randint(1, 5))))
    while len(found) < 3000:
        points = (numbers.randrange(0x110000) for _ in range(numbers.randint(1, 4)))
        text = "".join(map(chr, points))
        if all(unicodedata.category(one) != "Cs" and one != "\0" for one in text):
            found.add(text)
    return sorted(found)


def literal(system: str, text: str) -> str:
    return registry.system(system).dialect.literal(text).replace("\0", "\\0")


def in_code_page(text: str) -> bool:
    try:
        text.encode("cp1252")
    except UnicodeEncodeError:
        return False
    return "\x81" not in text


CASES = {
    "postgres text": ("postgres", "text"),
    "postgres text C": ("postgres", 'text COLLATE "C"'),
    "postgres varchar C.utf8": ("postgres", 'varchar(3000) COLLATE "pg_c_utf8"'),
    "postgres char": ("postgres", "char(40)"),
    "sqlserver nvarchar": ("sqlserver", "nvarchar(4000)"),
    "sqlserver nvarchar BIN2": ("sqlserver", "nvarchar(4000) COLLATE Latin1_General_100_BIN2"),
    "sqlserver nvarchar(max) CS": ("sqlserver", "nvarchar(max) COLLATE Latin1_General_CS_AS"),
    "sqlserver nchar": ("sqlserver", "nchar(40)"),
    "sqlserver varchar": ("sqlserver", "varchar(4000)"),
    "clickhouse String": ("clickhouse", "String"),
    "clickhouse LowCardinality": ("clickhouse", "LowCardinality(Nullable(String))"),
}


@pytest.fixture
def table(
    request: pytest.FixtureRequest, pg_url: str, ch_url: str, mssql_url: str
) -> Iterator[tuple[Endpoint, TableRef, Column, dict[int, str]]]:
    """A table with the texts that its key can hold, by number."""
    system, type_ = CASES[request.param]
    name = table_name()
    found = texts(nul=system == "clickhouse")
    if "char(40)" in type_:
        found = [text for text in found if len(text.encode("utf-16-le")) <= 80]
    if type_ == "varchar(4000)":
        found = [text for text in found if in_code_page(text)]
    rows = dict(enumerate(found))
    endpoint: PostgresResource | ClickHouseResource | SqlServerResource
    schema = {"postgres": "public", "sqlserver": "dbo", "clickhouse": "warehouse"}[system]
    reference = TableRef(system, schema, name)
    if system == "postgres":
        endpoint = PostgresResource(url=pg_url)
    elif system == "clickhouse":
        endpoint = ClickHouseResource(url=ch_url)
    else:
        endpoint = SqlServerResource(url=mssql_url)
    engine = " ENGINE = MergeTree ORDER BY n" if system == "clickhouse" else ""
    endpoint.execute(f"CREATE TABLE {qualified(reference)} (n int, k {type_}){engine}")
    for some in range(0, len(found), 500):
        values = ", ".join(
            f"({n}, {literal(system, rows[n])})" for n in range(some, min(some + 500, len(found)))
        )
        endpoint.execute(f"INSERT INTO {qualified(reference)} VALUES {values}")
    key = next(column for column in endpoint.columns(reference) if column.name == "k")
    yield endpoint, reference, key, rows
    endpoint.execute(f"DROP TABLE {qualified(reference)}")


@pytest.mark.parametrize("table", CASES, indirect=True)
def test_a_text_is_on_the_side_of_a_bound_where_its_bytes_are(
    table: tuple[Endpoint, TableRef, Column, dict[int, str]],
) -> None:
    endpoint, reference, key, rows = table
    assert all(problem(bound) is None for bound in BOUNDS)
    system, name = reference.system, qualified(reference)
    ranges = [KeyRange("text", *pair) for pair in pairwise([None, *BOUNDS, None])]
    places = [bound.encode() for bound in BOUNDS]
    wanted = {n: bisect_right(places, text.encode()) for n, text in rows.items()}
    number = range_number(ranges, key, system)
    seen = {
        int(n): int(place)
        for n, place in endpoint.query(f"SELECT n, {number} FROM {name} WHERE 1 = 1")
    }
    wrong = {rows[n]: (seen[n], wanted[n]) for n in rows if seen[n] != wanted[n]}
    assert not wrong
    for place, one in [*enumerate(ranges)][::4]:
        found = endpoint.query(f"SELECT n FROM {name} WHERE {predicate(key, one, system)}")
        there = {int(n) for (n,) in found}
        assert there == {n for n, at in wanted.items() if at == place}, one.name
    some = ranges[3:9]
    hull = endpoint.query(f"SELECT n FROM {name} WHERE {within(some, key, system)}")
    assert {int(n) for (n,) in hull} == {n for n, at in wanted.items() if 3 <= at < 9}


@pytest.mark.parametrize("table", CASES, indirect=True)
def test_ranges_cut_by_statistics_are_even_and_hold_every_row_once(
    table: tuple[Endpoint, TableRef, Column, dict[int, str]],
) -> None:
    endpoint, reference, key, rows = table
    stats = key_statistics(endpoint, reference, key)
    assert stats.rows == len(rows)
    ranges = plan_ranges(stats, {"count": 8}, "text")
    counts = []
    for one in ranges:
        condition = predicate(key, one, reference.system)
        query = f"SELECT count(*) FROM {qualified(reference)} WHERE {condition}"
        counts.append(int(endpoint.query(query)[0][0]))
    assert sum(counts) == len(rows)
    assert len(counts) >= 5 and max(counts) <= len(rows) // 2, counts
    assert reference.system.quote("k") in condition
