"""Whatever a table holds: after a transfer, every level says that both sides agree."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from checks import LEVELS, drill_down, reconcile, reconcile_all
from resources.clickhouse import ClickHouseResource
from resources.clickhouse_target import ClickHouseTarget
from resources.endpoint import Endpoint
from resources.keyrange import KeyRange
from resources.plan import CopyPlan
from resources.postgres import PostgresResource
from resources.tables import TableRef
from resources.target import Target, TargetOptions
from resources.types import conform, plan_copy, schema

pytestmark = pytest.mark.integration

EXAMPLES, TABLES = 20, 10
"""So many times, so many generated tables, side by side as key ranges of one table."""

RANGES = [KeyRange("integer", 1000 * i, 1000 * (i + 1)) for i in range(TABLES - 1)]
NO_KEY = KeyRange("integer", null=True)
EVERYTHING = KeyRange("integer")


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    units = st.integers(-(10**precision) + 1, 10**precision - 1)
    return units.map(lambda number: decimal.Decimal(number).scaleb(-scale, PRECISE))


PRECISE = decimal.Context(prec=80)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
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


def value_of(name: str) -> st.SearchStrategy[Any]:
    strategy = COLUMNS[name][1]
    return strategy if name in NEVER_NULL else st.none() | strategy


ROW = st.tuples(*(value_of(name) for name in COLUMNS))


@st.composite
def tables(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Rows of ten small tables; those of the last one have no key."""
    rows = []
    for number in range(TABLES):
        for row in draw(st.lists(ROW, max_size=3)):
            key = None if number == TABLES - 1 else 1000 * number + draw(st.integers(0, 999))
            rows.append((key, *row))
    return rows


@dataclass
class Hop:
    """Where the generated tables go."""

    plan: CopyPlan
    source: Endpoint
    target: Endpoint
    loader: Target
    url: str

    def transfer(self, rows: list[tuple[Any, ...]]) -> None:
        """Fill the source by a client of our own, and move both ranges of keys."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            name = self.plan.source.name
            connection.execute(f"TRUNCATE {name}")
            with connection.cursor().copy(f"COPY {name} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        for key_range in (EVERYTHING, NO_KEY):
            with (
                self.loader.attempt(
                    self.plan, key_range, TargetOptions(), owner="test", data_version="1"
                ) as attempt,
                self.source.read_arrow(self.plan.select(key_range, "arrow")) as reader,
            ):
                attempt.load_arrow(
                    (conform(batch, self.plan, {}) for batch in reader), schema(self.plan)
                )
                attempt.finalise()


@pytest.fixture(scope="module")
def hop(pg_url: str, ch_url: str) -> Iterator[Hop]:
    postgres, clickhouse = PostgresResource(url=pg_url), ClickHouseResource(url=ch_url)
    source = TableRef("postgres", "public", "any_values")
    target = TableRef("clickhouse", "warehouse", "any_values")
    declared = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())
    postgres.execute(
        f"DROP TABLE IF EXISTS any_values; CREATE TABLE any_values (id int, {declared})"
    )
    clickhouse.execute("DROP TABLE IF EXISTS any_values")
    plan = plan_copy(source, postgres.columns(source), target, key="id")
    loader = ClickHouseTarget(clickhouse)
    loader.prepare(plan, TargetOptions())
    yield Hop(plan, postgres, clickhouse, loader, pg_url)
    postgres.execute("DROP TABLE any_values")
    clickhouse.execute("DROP TABLE any_values")


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(rows=tables())
def test_clickhouse_agrees_after_a_transfer(hop: Hop, rows: list[tuple[Any, ...]]) -> None:
    hop.transfer(rows)
    for level in LEVELS:
        grouped = level in ("count", "checksum")
        ranges = [*(RANGES if grouped else [EVERYTHING]), NO_KEY]
        verdicts = reconcile_all(hop.plan, hop.source, hop.target, ranges, level)
        for verdict in verdicts.values():
            assert verdict.passed, (level, verdict.disagreeing, verdict.differences, verdict)
        assert sum(verdict.source["rows"] for verdict in verdicts.values()) == len(rows)


def test_nothing_is_found_where_nothing_differs(hop: Hop) -> None:
    edge = [None] * len(COLUMNS)
    for position, name in enumerate(COLUMNS):
        if name in NEVER_NULL:
            edge[position] = []  # type: ignore[call-overload]
    edge[list(COLUMNS).index("ratio")] = math.nan  # type: ignore[call-overload]
    hop.transfer([(1, *edge), (1, *edge), (None, *edge)])
    for key_range in (EVERYTHING, NO_KEY):
        found = drill_down(hop.plan, hop.source, hop.target, key_range)
        assert (found.rows, found.complete) == (0, True)
    assert reconcile(hop.plan, hop.source, hop.target, EVERYTHING, "full_hash").source["rows"] == 2
