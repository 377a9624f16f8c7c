"""Every PostgreSQL type into ClickHouse, over both wires, through the real servers.

Values are written as SQL text, and read back as text or hexadecimal bytes over plain HTTP; what is
expected is computed by Python's own types, never by the product.
"""

# ruff: noqa: E501 -- one line per case reads like the table that it is

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import strategies as st

from tableferry.resources.columns.conform import conform
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.columns.scan import decimal_types
from tableferry.resources.errors import ValueRefused
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tests.integration.support.typed_servers import (
    EVERYTHING,
    REFUSED,
    Case,
    ClickHouseEnd,
    PostgresEnd,
    check_all,
    end,
    move,
)
from tests.integration.support.typed_values import (
    CHARACTERS,
    NASTY,
    decimals,
    float_bits,
    hexed,
    ints,
)

pytestmark = pytest.mark.integration


source = end(PostgresEnd, "pg_url")
target = end(ClickHouseEnd, "ch_url")


def same_decimal(text: str) -> Decimal:
    return Decimal(text)


TEXT = st.text(CHARACTERS)


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
    Case("character varying(20)", st.text(CHARACTERS, max_size=20),
         expected=hexed, read_back="hex({})", examples=NASTY),
    Case("character(20)", st.text(CHARACTERS, max_size=20),
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
         "-178000000 years", "178000000 years"])),
    Case("interval", st.just("2562047788:00:54.775807")),
    Case("timetz", st.sampled_from(["12:00:00.123456+02:30", "24:00:00-15:59", "00:00:00+00"])),
    Case("inet", st.sampled_from(["1.2.3.4", "1.2.3.4/8", "::1", "::ffff:1.2.3.4/96"])),
    Case("cidr", st.sampled_from(["10.0.0.0/8", "::/0"])),
    Case("macaddr", st.sampled_from(["08:00:2b:01:02:03"])),
    Case("bit(3)", st.sampled_from(["101", "000"])),
    Case("bit varying", st.sampled_from(["", "101"])),
    Case("int4range", st.sampled_from(["[1,5)", "empty", "(,)"])),
    Case("tstzrange", st.sampled_from(['["2020-01-01 00:00:00+00",infinity)', "empty"])),
]  # fmt: skip


@pytest.mark.invariant("I14")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_value_arrives_exactly_or_is_refused(source, target, case):
    check_all(source, target, case)


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
def test_arrays(source, target, type_, literal, expected):
    case = Case(type_, st.nothing(), expected=lambda value: expected if value == literal else value)
    source.fill(type_, ["{}", literal])
    if expected is REFUSED:
        with pytest.raises(ValueRefused) as refused:
            move(source, target, case, "arrow")
        assert int(refused.value.key) == 2
    else:
        assert move(source, target, case, "arrow") == ["[]", expected]


def test_enums_domains_generated_and_identity_columns(source, target):
    source.connection.execute(
        f"""SET search_path = {source.schema};
        CREATE TYPE mood AS ENUM ('sad', 'so so');
        CREATE DOMAIN cents AS numeric(9,2) NOT NULL CHECK (value >= 0);
        CREATE TABLE u (id bigint GENERATED ALWAYS AS IDENTITY, "Größe %s" cents,
            mood mood, moods mood[], double numeric(10,2) GENERATED ALWAYS AS ("Größe %s" * 2) STORED);
        INSERT INTO u ("Größe %s", mood, moods) VALUES (1.5, 'so so', '{{sad,NULL}}')"""
    )
    table = TableRef("postgres", source.schema, "u")
    plan = plan_copy(
        table,
        source.resource.columns(table),
        TableRef("clickhouse", target.database, "typed_u"),
        key="id",
    )
    assert [(column.name, column.type, column.nullable) for column in plan.target_columns] == [
        ("id", "Int64", False),
        ("Größe %s", "Decimal(9, 2)", True),
        ("mood", "String", True),
        ("moods", "Array(Nullable(String))", False),
        ("double", "Decimal(10, 2)", True),
    ]
    with source.resource.read_arrow(plan.select(EVERYTHING, "arrow")) as batches:
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


def test_a_scan_finds_the_digits_of_a_bare_numeric(source):
    def found(target):
        columns = source.resource.columns(source.table)
        scanned = decimal_types(source.resource, source.table, columns, system(target))
        return {name: (one.type, one.not_numbers) for name, one in scanned.items()}

    source.fill("numeric", ["12345.5", "-0.00070", "NaN", "-Infinity", None])
    assert found("clickhouse") == {"x": ("Decimal(9, 4)", True)}
    assert found("sqlserver") == {"x": ("decimal(9,4)", True)}
    source.fill("numeric", ["12345.5", "-0.00070", None])
    assert found("sqlserver") == {"x": ("decimal(9,4)", False)}
    source.fill("numeric", ["NaN", "1e50"])
    assert found("sqlserver") == {"x": (None, True)}
    source.fill("numeric", [])
    assert found("clickhouse") == {}
