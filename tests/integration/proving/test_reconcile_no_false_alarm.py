"""Whatever a table holds: after a hop between any two systems, all levels say that they agree."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from tableferry.checks.levels import LEVELS
from tableferry.checks.reconcile import reconcile
from tableferry.resources.digest.measure import ROWS
from tableferry.resources.keys.range import KeyRange
from tests.integration.conftest import table_name
from tests.integration.support import looking
from tests.integration.support.pairs import PAIRS, Hop, graph
from tests.servers import Servers

pytestmark = pytest.mark.integration

TABLES = 10
"""So many generated tables at a time, side by side as key ranges of one table."""

KEYS = 1000
"""The keys of each table."""

TOGETHER = 5
"""So many times are moved and compared at once."""

RANGES = [KeyRange("integer", KEYS * i, KEYS * (i + 1)) for i in range(TABLES * TOGETHER)]
NO_KEY = KeyRange("integer", null=True)
EVERYTHING = KeyRange("integer")


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    units = st.integers(-(10**precision) + 1, 10**precision - 1)
    return units.map(lambda number: decimal.Decimal(number).scaleb(-scale, PRECISE))


PRECISE = decimal.Context(prec=80)
# a stored U+FFFD is refused on the way out of SQL Server, where it may stand for half a character
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufffd"), max_size=30
)
DAYS = st.dates(dt.date(1900, 1, 1), dt.date(2299, 12, 31))
MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2299, 12, 31))

COLUMNS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "small": ("smallint", st.integers(-(2**15), 2**15 - 1)),
    "big": ("bigint", st.integers(-(2**63), 2**63 - 1)),
    "yes": ("boolean", st.booleans()),
    "price": ("numeric(12,2)", decimals(12, 2)),
    "wide": ("numeric(38,10)", decimals(38, 10)),
    "tall": ("numeric(38,0)", decimals(38, 0)),
    "fine": ("numeric(38,38)", decimals(38, 38)),
    "part": ("numeric(18,18)", decimals(18, 18)),
    "ratio": ("double precision", st.floats()),
    "single": ("real", st.floats(width=32)),
    "note": ("text", TEXTS),
    "code": ("varchar(8)", TEXTS.map(lambda text: text[:8])),
    "fixed": ("char(5)", TEXTS.map(lambda text: text[:5])),
    "raw": ("bytea", st.binary(max_size=20)),
    "day": ("date", DAYS),
    "clock": ("time", st.times()),
    "clock3": (
        "time(3)",
        st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ),
    "moment": ("timestamp", MOMENTS),
    "instant": ("timestamptz", MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC))),
    "ident": ("uuid", st.uuids()),
    "items": ("integer[]", st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4)),
    "words": ("text[]", st.lists(st.none() | TEXTS, max_size=3)),
    "dates": ("date[]", st.lists(st.none() | DAYS, max_size=3)),
    "stamps": ("timestamp[]", st.lists(st.none() | MOMENTS, max_size=3)),
    "sums": ("numeric(20,4)[]", st.lists(st.none() | decimals(20, 4), max_size=3)),
    "reals": ("double precision[]", st.lists(st.none() | st.floats(), max_size=3)),
    "idents": ("uuid[]", st.lists(st.none() | st.uuids(), max_size=3)),
    "doc": ("jsonb", st.dictionaries(TEXTS, st.none() | st.integers(), max_size=2).map(Jsonb)),
    "span": ("interval", st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999))),
}
NEVER_NULL = {"items", "words", "dates", "stamps", "sums", "reals", "idents"}
"""A ClickHouse Array cannot be NULL."""


FINITE = st.floats(allow_nan=False, allow_infinity=False)
# a declared length counts UTF-16 units there
PLAIN = st.text(
    st.characters(max_codepoint=0xFFFC, exclude_categories=["Cs"], exclude_characters="\0"),
    max_size=5,
)
FOR_SQLSERVER = COLUMNS | {
    "code": ("varchar(8)", PLAIN),
    "fixed": ("char(5)", PLAIN),
    "ratio": ("double precision", FINITE),
    "single": ("real", st.floats(width=32, allow_nan=False, allow_infinity=False)),
}


@st.composite
def tables(
    draw: st.DrawFn, columns: dict[str, tuple[str, st.SearchStrategy[Any]]]
) -> list[tuple[Any, ...]]:
    """Rows of ten small tables; those of the last one have no key."""
    row = st.tuples(
        *(
            strategy if name in NEVER_NULL else st.none() | strategy
            for name, (_, strategy) in columns.items()
        )
    )
    rows = []
    for number in range(TABLES):
        for values in draw(st.lists(row, max_size=3)):
            key = None if number == TABLES - 1 else 1000 * number + draw(st.integers(0, 999))
            rows.append((key, *values))
    return rows


@dataclass
class Journey:
    """A source table that we fill, and the hops from it."""

    url: str
    hops: list[Hop]
    digits: int
    """How many a decimal with a point may have."""

    def transfer(self, rows: list[tuple[Any, ...]]) -> None:
        """Fill the source by a client of our own, then go all hops, rows without a key apart."""
        table = self.hops[0].plan.source.name
        with looking.postgres(self.url) as connection:
            connection.execute(f"TRUNCATE {table}".encode())
            with connection.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row([shortened(value, self.digits) for value in row])
        for hop in self.hops:
            for key_range in (EVERYTHING, NO_KEY):
                hop.move(key_range)


def shortened(value: object, digits: int) -> object:
    """A decimal with a point without the first of too many digits; any other value as it is."""
    if not isinstance(value, decimal.Decimal):
        return value
    sign, all_digits, exponent = value.as_tuple()
    if exponent == 0 or len(all_digits) <= digits:
        return value
    return decimal.Decimal((sign, all_digits[-digits:], exponent))


def assert_agrees(hop: Hop, count: int) -> None:
    """At every level."""
    for level in LEVELS:
        grouped = level in ("count", "checksum")
        ranges = [*(RANGES if grouped else [EVERYTHING]), NO_KEY]
        verdicts = hop.verdicts(level, ranges)
        for verdict in verdicts.values():
            assert verdict.passed, (hop.name, level, verdict.disagreeing, verdict)
        assert sum(verdict.source[ROWS] for verdict in verdicts.values()) == count
    outcome = hop.compared()
    assert outcome.equal, (hop.name, hop.compared(key=["id"]).differences)
    assert outcome.verdict.source[ROWS] == count


def journey(
    stack: Servers,
    folder: Path,
    columns: dict[str, tuple[str, st.SearchStrategy[Any]]],
    pairs: list[tuple[str, str]],
) -> Iterator[Journey]:
    declared = ", ".join(f"{name} {type_}" for name, (type_, _) in columns.items())
    through_sqlserver = any("sqlserver" in pair for pair in pairs)
    digits = looking.decimal_digits(stack.sqlserver_url) if through_sqlserver else 38
    with graph(stack, folder, pairs, table_name(), declared, without=["raw"]) as hops:
        yield Journey(stack.postgres_url, list(hops.values()), digits)


WITHOUT_SQLSERVER = [pair for pair in PAIRS if "sqlserver" not in pair]
WITH_SQLSERVER = [
    ("postgres", "clickhouse"),
    ("postgres", "files"),
    *(pair for pair in PAIRS if "sqlserver" in pair),
]


@pytest.fixture
def without_sqlserver(stack: Servers, tmp_path: Path) -> Iterator[Journey]:
    yield from journey(stack, tmp_path, COLUMNS, WITHOUT_SQLSERVER)


@pytest.fixture
def with_sqlserver(stack: Servers, tmp_path: Path) -> Iterator[Journey]:
    yield from journey(stack, tmp_path, FOR_SQLSERVER, WITH_SQLSERVER)


GENERATED = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


Rows = list[tuple[Any, ...]]


def generated(columns: dict[str, tuple[str, st.SearchStrategy[Any]]], times: int) -> list[Rows]:
    """So many times ten tables, some times together."""
    found: list[Rows] = []

    @settings(GENERATED, max_examples=times)
    @given(rows=tables(columns))
    def keep(rows: Rows) -> None:
        first = len(found) % TOGETHER * TABLES * KEYS
        found.append([(None if key is None else first + key, *values) for key, *values in rows])

    keep()
    return [
        [row for rows in found[start : start + TOGETHER] for row in rows]
        for start in range(0, times, TOGETHER)
    ]


TIMES = [TOGETHER, pytest.param(300 // TABLES, marks=pytest.mark.soak)]
"""In the long test three hundred tables on every pair."""


@pytest.mark.invariant("I10")
@pytest.mark.parametrize("times", TIMES)
def test_every_pair_without_sqlserver_agrees(without_sqlserver: Journey, times: int) -> None:
    assert_all_agree(without_sqlserver, generated(COLUMNS, times))


@pytest.mark.invariant("I10")
@pytest.mark.parametrize("times", TIMES)
def test_every_pair_with_sqlserver_agrees(with_sqlserver: Journey, times: int) -> None:
    assert_all_agree(with_sqlserver, generated(FOR_SQLSERVER, times))


def assert_all_agree(journey: Journey, moves: list[Rows]) -> None:
    for rows in moves:
        journey.transfer(rows)
        for hop in journey.hops:
            assert_agrees(hop, len(rows))


def test_nothing_is_found_where_nothing_differs(without_sqlserver: Journey) -> None:
    edge: list[Any] = [[] if name in NEVER_NULL else None for name in COLUMNS]
    edge[list(COLUMNS).index("ratio")] = math.nan
    without_sqlserver.transfer([(1, *edge), (1, *edge), (None, *edge)])
    for hop in without_sqlserver.hops:
        for key_range in (EVERYTHING, NO_KEY):
            assert hop.both(key_range).search().rows == 0, hop.name
        verdict = reconcile(hop.both(EVERYTHING), "full_hash")
        assert verdict.source[ROWS] == 2
