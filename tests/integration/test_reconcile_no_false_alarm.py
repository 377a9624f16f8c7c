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

from checks.drilldown import drill_down
from checks.reconcile import reconcile, reconcile_all
from checks.verdict import LEVELS
from resources.clickhouse.resource import ClickHouseResource
from resources.clickhouse.target import ClickHouseTarget
from resources.endpoint import Endpoint
from resources.keys.range import KeyRange
from resources.plan import CopyPlan
from resources.postgres.resource import PostgresResource
from resources.sqlserver.resource import SqlServerResource
from resources.sqlserver.target import SqlServerTarget
from resources.tables import TableRef
from resources.target import Target, TargetOptions
from resources.types.conform import conform, schema
from resources.types.planner import plan_copy
from tests.integration.conftest import table_name

pytestmark = pytest.mark.integration

NAME = table_name()
TABLES = 10
"""So many generated tables at a time, side by side as key ranges of one table."""

RANGES = [KeyRange("integer", 1000 * i, 1000 * (i + 1)) for i in range(TABLES - 1)]
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
class Hop:
    """One way that the generated tables go."""

    plan: CopyPlan
    source: Endpoint
    target: Endpoint
    loader: Target

    def transfer(self) -> None:
        """Move all rows, those without a key as a range of their own."""
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

    def assert_agrees(self, count: int) -> None:
        """At every level."""
        for level in LEVELS:
            grouped = level in ("count", "checksum")
            ranges = [*(RANGES if grouped else [EVERYTHING]), NO_KEY]
            verdicts = reconcile_all(self.plan, self.source, self.target, ranges, level)
            for verdict in verdicts.values():
                assert verdict.passed, (level, verdict.disagreeing, verdict.differences, verdict)
            assert sum(verdict.source["rows"] for verdict in verdicts.values()) == count


class Journey:
    """A source table that we fill, and the hops from it."""

    def __init__(self, url: str) -> None:
        self.url, self.postgres = url, PostgresResource(url=url)
        declared = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())
        self.postgres.execute(
            f"DROP TABLE IF EXISTS {NAME}; CREATE TABLE {NAME} (id int, {declared})"
        )
        self.hops: list[Hop] = []

    def add(self, target: Endpoint, schema_name: str, loader: Target) -> None:
        """One more hop, from where the last one went."""
        table = TableRef(target.system, schema_name, NAME)
        target.execute(f"DROP TABLE IF EXISTS {schema_name}.{NAME}")
        last = self.hops[-1] if self.hops else None
        source = last.plan.target if last else TableRef("postgres", "public", NAME)
        endpoint: Endpoint = last.target if last else self.postgres
        plan = plan_copy(source, endpoint.columns(source), table, key="id")
        loader.prepare(plan, TargetOptions())
        self.hops.append(Hop(plan, endpoint, target, loader))

    def transfer(self, rows: list[tuple[Any, ...]]) -> None:
        """Fill the source by a client of our own, then go all hops."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"TRUNCATE {NAME}")
            with connection.cursor().copy(f"COPY {NAME} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        for hop in self.hops:
            hop.transfer()

    def close(self) -> None:
        self.postgres.execute(f"DROP TABLE {NAME}")
        for hop in self.hops:
            hop.target.execute(f"DROP TABLE {hop.plan.target.schema}.{NAME}")


@pytest.fixture
def direct(pg_url: str, ch_url: str) -> Iterator[Journey]:
    journey, clickhouse = Journey(pg_url), ClickHouseResource(url=ch_url)
    journey.add(clickhouse, "warehouse", ClickHouseTarget(clickhouse))
    yield journey
    journey.close()


@pytest.fixture
def by_sqlserver(pg_url: str, mssql_url: str, ch_url: str) -> Iterator[Journey]:
    journey, clickhouse = Journey(pg_url), ClickHouseResource(url=ch_url)
    sqlserver = SqlServerResource(url=mssql_url)
    journey.add(sqlserver, "dbo", SqlServerTarget(sqlserver))
    journey.add(clickhouse, "warehouse", ClickHouseTarget(clickhouse))
    yield journey
    journey.close()


GENERATED = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


@pytest.mark.parametrize("times", [5, pytest.param(60, marks=pytest.mark.soak)])
def test_clickhouse_agrees_after_a_transfer(direct: Journey, times: int) -> None:
    @settings(GENERATED, max_examples=times)
    @given(rows=tables(COLUMNS))
    def agrees(rows: list[tuple[Any, ...]]) -> None:
        direct.transfer(rows)
        direct.hops[0].assert_agrees(len(rows))

    agrees()


@pytest.mark.parametrize("times", [3, pytest.param(25, marks=pytest.mark.soak)])
def test_both_hops_agree_by_way_of_sqlserver(by_sqlserver: Journey, times: int) -> None:
    @settings(GENERATED, max_examples=times)
    @given(rows=tables(FOR_SQLSERVER))
    def agrees(rows: list[tuple[Any, ...]]) -> None:
        by_sqlserver.transfer(rows)
        for hop in by_sqlserver.hops:
            hop.assert_agrees(len(rows))

    agrees()


def test_nothing_is_found_where_nothing_differs(direct: Journey) -> None:
    edge: list[Any] = [[] if name in NEVER_NULL else None for name in COLUMNS]
    edge[list(COLUMNS).index("ratio")] = math.nan
    direct.transfer([(1, *edge), (1, *edge), (None, *edge)])
    hop = direct.hops[0]
    for key_range in (EVERYTHING, NO_KEY):
        found = drill_down(hop.plan, hop.source, hop.target, key_range)
        assert found.rows == 0
    assert reconcile(hop.plan, hop.source, hop.target, EVERYTHING, "full_hash").source["rows"] == 2
