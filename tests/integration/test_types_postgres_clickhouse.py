"""Every PostgreSQL type into ClickHouse, over both wires, through the real servers.

Values are written as SQL text, and read back as text or hexadecimal bytes over plain HTTP; what is
expected is computed by Python's own types, never by the product.
"""

# ruff: noqa: E501 -- one line per case reads like the table that it is

from __future__ import annotations

import contextlib
import datetime as dt
import math
import struct
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from resources.clickhouse import ClickHouseResource
from resources.clickhouse_types import declared_type
from resources.dialects import quote
from resources.errors import ValueRefused
from resources.keyrange import KeyRange
from resources.postgres import PostgresResource
from resources.tables import TableRef
from resources.types import ColumnOverride, conform, decimal_types, plan_copy, schema

pytestmark = pytest.mark.integration

REFUSED = object()
EVERYTHING = KeyRange("integer")


class Servers:
    """Both ends, each reached without the product's code as well."""

    def __init__(self, postgres_url: str, clickhouse_url: str) -> None:
        self.source = PostgresResource(url=postgres_url)
        self.target = ClickHouseResource(url=clickhouse_url)
        self.connection = psycopg.connect(postgres_url, autocommit=True)
        self.connection.execute("SET timezone = 'UTC'; CREATE SCHEMA IF NOT EXISTS typed")
        self.connection.execute("SET client_min_messages = error")
        parts = urllib.parse.urlsplit(clickhouse_url)
        self.database = parts.path.strip("/") or "default"
        self.http = f"http://{parts.hostname}:{parts.port}/"
        self.login = {
            "X-ClickHouse-User": parts.username or "default",
            "X-ClickHouse-Key": urllib.parse.unquote(parts.password or ""),
        }

    def clickhouse(self, sql: str) -> str:
        request = urllib.request.Request(self.http, sql.encode(), self.login)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def fill(self, type_: str, literals: list[str | None], nullable: bool = True) -> None:
        """`typed.t (id, x)` with ids from 1 on, in that order on disk."""
        self.connection.execute("DROP TABLE IF EXISTS typed.t")
        not_null = "" if nullable else " NOT NULL"
        self.connection.execute(f"CREATE TABLE typed.t (id int PRIMARY KEY, x {type_}{not_null})")
        with (
            self.connection.cursor() as cursor,
            cursor.copy("COPY typed.t FROM STDIN") as copy,
        ):
            for number, literal in enumerate(literals, start=1):
                copy.write_row((number, literal))

    def move(
        self, wire: str, read_back: str, version: str | None = None, **override: Any
    ) -> list[str | None]:
        """Through the product; the target's values in the order of the ids."""
        source = TableRef("postgres", "typed", "t")
        target = TableRef("clickhouse", self.database, f"typed_{wire}")
        plan = plan_copy(
            source,
            self.source.columns(source),
            target,
            key="id",
            overrides={"x": ColumnOverride(**override)},
            target_version=version,
        )
        columns = ", ".join(
            f"{quote('clickhouse', column.name)} {declared_type(column)}"
            for column in plan.target_columns
        )
        name = f"{self.database}.typed_{wire}"
        self.clickhouse(f"DROP TABLE IF EXISTS {name}")
        self.clickhouse(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree ORDER BY id")
        names = [column.name for column in plan.target_columns]
        if wire == "text":
            assert all(column.text_sql for column in plan.columns)
            with self.source.read_text(plan.select(EVERYTHING, "text")) as chunks:
                self.target.insert(target, names, chunks, "TabSeparated")
        else:
            with self.source.read_arrow(plan.select(EVERYTHING, "arrow")) as batches:
                conformed = [conform(batch, plan, {}) for batch in batches]
            self.target.insert(target, names, _ipc(schema(plan), conformed), "ArrowStream")
        answer = self.clickhouse(
            f"SELECT isNull(x), {read_back.format('x')} FROM {name} ORDER BY id FORMAT TSVRaw"
        )
        rows = [line.split("\t", 1) for line in answer.split("\n")[:-1]]
        return [None if null == "1" else value for null, value in rows]


def _ipc(schema_: Any, batches: list[Any]) -> list[bytes]:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema_) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return [sink.getvalue().to_pybytes()]


@pytest.fixture(scope="module")
def servers(stack):
    found = Servers(stack.postgres_url, stack.clickhouse_url)
    yield found
    found.connection.close()


def hexed(text: str) -> str:
    return text.encode().hex().upper()


def float_bits(format_: str) -> Callable[[str], object]:
    def read(text: str) -> object:
        number = float(text)
        return "nan" if math.isnan(number) else struct.pack(format_, number)

    return read


@dataclass
class Case:
    """One source type: which values to send, and what must arrive."""

    type: str
    values: st.SearchStrategy[Any]
    literal: Callable[[Any], str] = str
    expected: Callable[[Any], object] = str
    """What ClickHouse shows, or REFUSED."""
    read_back: str = "toString({})"
    normal: Callable[[str], object] = str
    wires: tuple[str, ...] = ("arrow", "text")
    examples: tuple[Any, ...] = ()
    override: tuple[tuple[str, str], ...] = ()
    long_calendar: bool = False


def ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda n: Decimal((n < 0, _digits(n), -scale)))


def _digits(number: int) -> tuple[int, ...]:
    return tuple(int(digit) for digit in str(abs(number)))


def same_decimal(text: str) -> Decimal:
    return Decimal(text)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
NASTY = (
    "", " ", "\t", "\r", "\n", "\r\n", "\\", "\\N", "\\n", "\\.", "NULL", "'", '"', "`", "a\tb",
    "\x01\x7f\x1f\b\f\v", "\U0001f600", "e\u0301", "\ufeff", "\ufffd", "\u2028", "trailing ", "\U0010ffff",
)  # fmt: skip


def pg_date(value: dt.date | str) -> str:
    return value if isinstance(value, str) else value.isoformat()


def ch_date(value: dt.date | str) -> object:
    if isinstance(value, str) or not 1900 <= value.year <= 2299:
        return REFUSED
    return value.isoformat()


def ch_timestamp(digits: int) -> Callable[[dt.datetime | str], object]:
    def expected(value: dt.datetime | str) -> object:
        if isinstance(value, str):
            return REFUSED
        text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
        text = text[: 19 + (digits + 1 if digits else 0)]
        return text if 1900 <= value.year <= 2299 else REFUSED

    return expected


def rounded_to(digits: int) -> Callable[[dt.datetime], dt.datetime]:
    unit = 10 ** (6 - digits)
    return lambda value: value.replace(microsecond=value.microsecond // unit * unit)


INSIDE = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2299, 12, 31, 23, 59, 59, 999999))
EDGE_MOMENTS = (
    dt.datetime(1900, 1, 1),
    dt.datetime(2299, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1),
    dt.datetime(1899, 12, 31, 23, 59, 59, 999999),
    dt.datetime(2300, 1, 1),
    dt.datetime(1, 1, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    "infinity",
    "-infinity",
    "4713-01-01 00:00:00 BC",
    "294276-12-31 23:59:59.999999",
)
EDGE_DATES = (
    dt.date(1900, 1, 1), dt.date(2299, 12, 31), dt.date(1899, 12, 31), dt.date(2300, 1, 1),
    dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1), "infinity", "-infinity",
    "4713-01-01 BC", "5874897-12-31",
)  # fmt: skip


def long_timestamp(value: dt.datetime | str) -> object:
    return REFUSED if isinstance(value, str) else value.isoformat(" ", "microseconds")


def _days(value: dt.date | str) -> object:
    if isinstance(value, str):
        return str({"4713-01-01 BC": -2440550 - 0, "5874897-12-31": 2145042905}[value])
    return str(value.toordinal() - dt.date(1970, 1, 1).toordinal())


def _utc(value: dt.datetime) -> object:
    return ch_timestamp(6)(value.astimezone(dt.UTC))


def _json(text: str) -> str:
    import json

    return json.dumps({"k": text}, ensure_ascii=False)


CASES = [
    Case("smallint", ints(16), examples=(-(2**15), 2**15 - 1)),
    Case("integer", ints(32), examples=(-(2**31), 2**31 - 1)),
    Case("bigint", ints(64), examples=(-(2**63), 2**63 - 1)),
    Case("oid", st.integers(0, 2**32 - 1), examples=(2**31, 2**32 - 1)),
    Case("numeric(9,2)", decimals(9, 2), normal=same_decimal, expected=same_decimal),
    Case(
        "numeric(38,10)",
        decimals(38, 10) | st.just(Decimal("NaN")),
        expected=lambda v: v if v.is_finite() else REFUSED,
        normal=same_decimal,
        examples=(Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001")),
    ),
    Case("numeric(38,38)", decimals(38, 38), "{:f}".format, lambda v: v, normal=same_decimal),
    Case("numeric(76,20)", decimals(76, 20), "{:f}".format, lambda v: v, normal=same_decimal),
    Case("numeric(5,-2)", st.integers(-99999, 99999).map(lambda n: n * 100)),
    Case("numeric(3,5)", decimals(3, 5), "{:f}".format, lambda v: v, normal=same_decimal),
    Case(
        "numeric",
        decimals(20, 4) | decimals(50, 20) | st.sampled_from([Decimal("NaN"), Decimal("Infinity")]),
        "{:f}".format,
        lambda v: v if v.is_finite() and abs(v) < 10**16 and v * 10**4 % 1 == 0 else REFUSED,
        normal=same_decimal,
        override=(("type", "Decimal(20, 4)"),),
        examples=(Decimal("1." + "0" * 100), Decimal("9999999999999999.9999"), Decimal(10**16)),
    ),
    Case("money", decimals(18, 2), expected=lambda v: v, normal=same_decimal,
         examples=(Decimal("-92233720368547758.08"), Decimal("92233720368547758.07"))),
    Case(
        "real",
        st.floats(width=32),
        repr,
        lambda v: float_bits("f")(repr(v)),
        normal=float_bits("f"),
        examples=(math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-45, 3.4028234663852886e38),
    ),
    Case(
        "double precision",
        st.floats(),
        repr,
        lambda v: float_bits("d")(repr(v)),
        normal=float_bits("d"),
        examples=(math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7976931348623157e308, 0.1),
    ),
    Case("boolean", st.booleans(), expected=lambda v: str(v).lower()),
    Case("text", TEXT, expected=hexed, read_back="hex({})", examples=NASTY),
    Case("character varying(20)", st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
         expected=hexed, read_back="hex({})", examples=NASTY),
    Case("character(20)", st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
         expected=lambda v: hexed(v.ljust(20)), read_back="hex({})", examples=NASTY),
    Case("bytea", st.binary(), lambda v: "\\x" + v.hex(), lambda v: v.hex().upper(), "hex({})",
         wires=("arrow",), examples=(b"", b"\0", b"\xff\xfe", b"\\x00")),
    Case("date", st.dates(), pg_date, ch_date, examples=EDGE_DATES),
    Case("date", st.dates(), pg_date, lambda v: REFUSED if v in ("infinity", "-infinity") else _days(v),
         override=(("type", "Int32"),), wires=("arrow",), examples=EDGE_DATES),
    Case("date", st.dates(), pg_date, pg_date, override=(("type", "String"),), examples=EDGE_DATES),
    Case("time", st.times(), expected=lambda v: v if isinstance(v, str) else v.isoformat("microseconds"),
         examples=(dt.time(0), dt.time.max, "24:00:00.000000")),
    Case("time(0)", st.times().map(lambda v: v.replace(microsecond=0)), examples=("24:00:00",)),
    Case("timestamp", st.datetimes() | INSIDE, expected=ch_timestamp(6), examples=EDGE_MOMENTS),
    Case("timestamp(3)", INSIDE.map(rounded_to(3)), expected=ch_timestamp(3)),
    Case("timestamp(0)", INSIDE.map(rounded_to(0)), expected=ch_timestamp(0)),
    Case("timestamptz", st.datetimes() | INSIDE, expected=ch_timestamp(6), examples=EDGE_MOMENTS),
    Case("timestamptz", INSIDE.map(lambda v: v.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5)))),
         expected=_utc),
    Case("date", st.dates(), pg_date, lambda v: REFUSED if isinstance(v, str) else v.isoformat(),
         examples=EDGE_DATES, long_calendar=True),
    Case("timestamp", st.datetimes(), expected=long_timestamp, examples=EDGE_MOMENTS, long_calendar=True),
    Case("timestamptz", st.datetimes(), expected=long_timestamp, examples=EDGE_MOMENTS, long_calendar=True),
    Case("uuid", st.uuids(), examples=(uuid.UUID(int=0), uuid.UUID(int=2**128 - 1))),
    Case("json", st.just('{"b": 1,  "a": "\\u00e4\\n\\t"}') | TEXT.map(_json),
         expected=hexed, read_back="hex({})"),
    Case("interval", st.sampled_from(["1 year 2 mons", "-3 days", "00:00:00.000001", "-01:00:00",
         "-178000000 years", "178000000 years", "2562047788:00:54.775807"])),
    Case("timetz", st.sampled_from(["12:00:00.123456+02:30", "24:00:00-15:59", "00:00:00+00"])),
    Case("inet", st.sampled_from(["1.2.3.4", "1.2.3.4/8", "::1", "::ffff:1.2.3.4/96"])),
    Case("cidr", st.sampled_from(["10.0.0.0/8", "::/0"])),
    Case("macaddr", st.sampled_from(["08:00:2b:01:02:03"])),
    Case("bit(3)", st.sampled_from(["101", "000"])),
    Case("bit varying", st.sampled_from(["", "101"])),
    Case("int4range", st.sampled_from(["[1,5)", "empty", "(,)"])),
    Case("tstzrange", st.sampled_from(['["2020-01-01 00:00:00+00",infinity)', "empty"])),
]  # fmt: skip


def check(servers: Servers, case: Case, values: list[Any]) -> None:
    literals = [None if value is None else case.literal(value) for value in values]
    expected = [None if value is None else case.expected(value) for value in values]
    refused = [number for number, value in enumerate(expected, start=1) if value is REFUSED]
    servers.fill(case.type, literals)
    for wire in case.wires:
        raises = pytest.raises(ValueRefused) if refused else contextlib.nullcontext()
        with raises as caught:
            version = servers.target.ping() if case.long_calendar else None
            got = servers.move(wire, case.read_back, version, **dict(case.override))
        if refused:
            error = caught.value
            assert (error.table, error.column) == ("postgres://typed.t", "x")
            assert int(error.key) == refused[0]
        else:
            assert [None if text is None else case.normal(text) for text in got] == expected


@pytest.mark.parametrize(
    "case",
    CASES,
    ids=lambda case: (
        " -> ".join([case.type, *dict(case.override).values()]) + " long" * case.long_calendar
    ),
)
def test_every_value_arrives_exactly_or_is_refused(servers, case):
    taken = [value for value in case.examples if case.expected(value) is not REFUSED]
    check(servers, case, [*taken, None])
    for value in case.examples:
        if value not in taken:
            check(servers, case, [None, value])

    @settings(
        max_examples=6,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.none() | case.values, max_size=50))
    def generated(values: list[Any]) -> None:
        check(servers, case, values)

    generated()


ARRAYS = [
    ("integer[]", "{1,NULL,-2147483648}", "[1,NULL,-2147483648]"),
    ("integer[]", "{}", "[]"),
    ("text[]", '{"a\'b","",NULL,"\U0001f600"}', "['a\\'b','',NULL,'\U0001f600']"),
    ("numeric(10,2)[]", "{1.50,-0.01}", "[1.5,-0.01]"),
    ("boolean[]", "{t,f}", "[true,false]"),
    ("uuid[]", "{00112233-4455-6677-8899-aabbccddeeff}", "['00112233-4455-6677-8899-aabbccddeeff']"),
    ("timestamptz[]", '{"2020-01-01 00:00:00.000001+00"}', "['2020-01-01 00:00:00.000001']"),
    ("date[]", "{2299-12-31}", "['2299-12-31']"),
    ("double precision[]", "{NaN,-0,0.1}", "[nan,-0,0.1]"),
    ("oid[]", "{4294967295}", "[4294967295]"),
    ("date[]", "{2300-01-01}", REFUSED),
    ("integer[]", "{{1,2},{3,4}}", REFUSED),
    ("integer[]", "[0:1]={1,2}", REFUSED),
    ("integer[]", None, REFUSED),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "literal", "expected"), ARRAYS)
def test_arrays(servers, type_, literal, expected):
    servers.fill(type_, ["{}", literal])
    if expected is REFUSED:
        with pytest.raises(ValueRefused) as refused:
            servers.move("arrow", "toString({})")
        assert int(refused.value.key) == 2
    else:
        assert servers.move("arrow", "toString({})") == ["[]", expected]


def test_enums_domains_generated_and_identity_columns(servers):
    servers.connection.execute(
        """DROP TABLE IF EXISTS typed.u; DROP TYPE IF EXISTS typed.mood; DROP DOMAIN IF EXISTS typed.cents;
        CREATE TYPE typed.mood AS ENUM ('sad', 'so so');
        CREATE DOMAIN typed.cents AS numeric(9,2) NOT NULL CHECK (value >= 0);
        CREATE TABLE typed.u (id bigint GENERATED ALWAYS AS IDENTITY, "Größe %s" typed.cents,
            mood typed.mood, moods typed.mood[], double numeric(10,2) GENERATED ALWAYS AS ("Größe %s" * 2) STORED);
        INSERT INTO typed.u ("Größe %s", mood, moods) VALUES (1.5, 'so so', '{sad,NULL}')"""
    )
    source = TableRef("postgres", "typed", "u")
    target = TableRef("clickhouse", servers.database, "typed_u")
    plan = plan_copy(source, servers.source.columns(source), target, key="id")
    assert [(column.name, column.type, column.nullable) for column in plan.target_columns] == [
        ("id", "Int64", False),
        ("Größe %s", "Decimal(9, 2)", False),
        ("mood", "String", True),
        ("moods", "Array(Nullable(String))", False),
        ("double", "Decimal(10, 2)", True),
    ]
    with servers.source.read_arrow(plan.select(EVERYTHING, "arrow")) as batches:
        rows = [conform(batch, plan, {}).to_pylist() for batch in batches]
    assert rows == [
        [
            {
                "id": 1,
                "Größe %s": Decimal("1.50"),
                "mood": "so so",
                "moods": ["sad", None],
                "double": Decimal("3.00"),
            }
        ]
    ]


def test_a_scan_finds_the_digits_of_a_bare_numeric(servers):
    servers.fill("numeric", ["12345.5", "-0.00070", "NaN", "-Infinity", None])
    table = TableRef("postgres", "typed", "t")
    columns = servers.source.columns(table)
    assert decimal_types(servers.source, table, columns, "clickhouse") == {"x": "Decimal(9, 4)"}
    assert decimal_types(servers.source, table, columns, "sqlserver") == {"x": "decimal(9,4)"}
    servers.fill("numeric", ["NaN", "1e50"])
    assert decimal_types(servers.source, table, columns, "sqlserver") == {}
    servers.fill("numeric", [])
    assert decimal_types(servers.source, table, columns, "clickhouse") == {}
