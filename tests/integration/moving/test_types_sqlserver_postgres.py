"""Every SQL Server type into PostgreSQL, through the real servers of the stack.

Values are written as T-SQL literals and read back as PostgreSQL prints them; what is expected is
computed by Python's own types, never by the product.
"""

# ruff: noqa: E501 -- one line per case reads like the table that it is

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import pytest
from hypothesis import strategies as st

from tests.integration.support.typed_servers import (
    REFUSED,
    Case,
    PostgresEnd,
    SqlServerEnd,
    check_all,
    end,
    move,
)
from tests.integration.support.typed_values import (
    EDGES,
    NASTY,
    decimals,
    exactly,
    float_bits,
    ints,
    plain,
    quoted,
    ticks,
    unicode_literal,
)

pytestmark = pytest.mark.integration


source = end(SqlServerEnd, "mssql_url")
target = end(PostgresEnd, "pg_url")


ONE = ("arrow",)
TEXT = st.characters(codec="utf-8", exclude_characters="\0\ufffd")


def text(value):
    return REFUSED if "\ufffd" in value else value


def shortest(digits):
    """What PostgreSQL prints of an ISO time: no zeros at its end; more than six digits refused."""

    def expected(value):
        whole, _, fraction = value.partition(".")
        if fraction[digits:].strip("0"):
            return REFUSED
        fraction = fraction[:digits].rstrip("0")
        return f"{whole}.{fraction}" if fraction else whole

    return expected


def zoned(value):
    shown = shortest(6)(value)
    return shown if shown is REFUSED else f"{shown}+00"


def hexed(value):
    return value.hex()


def text_case(type_, strategy, **more):
    return Case(type_, strategy, unicode_literal, text, "x", wires=ONE, **more)


def number_case(type_, strategy, **more):
    return Case(type_, strategy, plain, lambda v: v, "x", wires=ONE, **more)


def case(type_, strategy, literal=str, expected=str, read_back="x::text", **more):
    return Case(type_, strategy, literal, expected, read_back, wires=ONE, **more)


SIX = ticks(1, 9999).map(lambda v: v[:-1] + "0")
CASES = [
    case("tinyint", st.integers(0, 255), examples=(0, 255)),
    case("smallint", ints(16), examples=(-(2**15), 2**15 - 1)),
    case("int", ints(32), examples=(-(2**31), 2**31 - 1)),
    case("bigint", ints(64), examples=(-(2**63), 2**63 - 1)),
    case("bit", st.integers(0, 1), expected=lambda v: str(bool(v)).lower()),
    number_case("decimal(9,2)", decimals(9, 2)),
    number_case("decimal(38,10)", decimals(38, 10), examples=(Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001"))),
    number_case("numeric(38,38)", decimals(38, 38)),
    number_case("money", decimals(18, 4), examples=(Decimal("-922337203685477.5808"), Decimal("922337203685477.5807"))),
    case("float", st.floats(allow_nan=False, allow_infinity=False), "CAST('{:.17e}' AS float)".format, float_bits("d"), "x", normal=float_bits("d"),
         examples=(-0.0, 0.1, 1.7976931348623157e308, 2.2250738585072014e-308, 5e-324, 9007199254740993.0)),
    case("real", st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False), "{:.17e}".format, float_bits("f"), "x", normal=float_bits("f"),
         examples=(3.4028234663852886e38, 1.1754943508222875e-38, 0.10000000149011612)),
    text_case("nvarchar(50)", st.text(TEXT, max_size=25), examples=NASTY),
    text_case("nvarchar(max)", st.text(TEXT), examples=(*NASTY, "x" * 9000)),
    case("nchar(20)", st.text(TEXT, max_size=10).filter(lambda v: max(v, default="") <= "\uffff"), unicode_literal, lambda v: v.ljust(20), "x", examples=("", "ä")),
    text_case("varchar(50)", st.text("abc äöü€ '\\\t\n", max_size=50), examples=("", " ", "ä€")),
    text_case("text", st.text("abc", max_size=50), examples=("",)),
    text_case("xml", st.just("<a>ä&amp;</a>")),
    text_case("nvarchar(max)", st.text("äb😀", max_size=3), override=(("type", "character varying(3)"),), examples=("", "äb😀")),
    Case("nvarchar(max)", st.nothing(), unicode_literal, lambda v: REFUSED if len(v) > 3 else v, "x", wires=ONE,
         override=(("type", "character varying(3)"),), examples=("abc", "äb😀c")),
    case("varbinary(50)", st.binary(max_size=50), lambda v: "0x" + v.hex(), hexed, "encode(x, 'hex')", examples=(b"", b"\0\xff")),
    case("varbinary(max)", st.binary(), lambda v: "0x" + v.hex(), hexed, "encode(x, 'hex')", examples=(b"", b"x" * 9000)),
    case("binary(4)", st.binary(min_size=4, max_size=4), lambda v: "0x" + v.hex(), hexed, "encode(x, 'hex')"),
    case("date", st.dates(), quoted, examples=(dt.date(1, 1, 1), dt.date(9999, 12, 31))),
    case("time(7)", SIX.map(lambda v: v[11:]), quoted, shortest(6), examples=("00:00:00.0000000", "23:59:59.9999990", "23:59:59.9999999")),
    case("time(3)", ticks(2000, 2000).map(lambda v: v[11:23]), quoted, shortest(3)),
    case("time(0)", ticks(2000, 2000).map(lambda v: v[11:19]), quoted),
    case("datetime2(7)", SIX, quoted, shortest(6), examples=(*EDGES, "2020-01-01 00:00:00.1234560")),
    case("datetime2(7)", ticks(1, 9999), quoted, str, override=(("type", "text"),), examples=EDGES),
    case("datetime2(6)", ticks(1, 9999).map(exactly(6)), quoted, shortest(6), examples=tuple(map(exactly(6), EDGES))),
    case("datetime2(0)", ticks(1, 9999).map(exactly(0)), quoted, str),
    case("datetime", ticks(1900, 2299).map(lambda v: v[:22] + "0"), quoted, shortest(3),
         examples=("2020-01-01 00:00:00.003", "2020-01-01 00:00:00.997", "1753-01-01 00:00:00.000", "9999-12-31 23:59:59.997")),
    case("smalldatetime", ticks(1900, 2078).map(lambda v: v[:16] + ":00"), quoted),
    case("datetimeoffset(7)", SIX, lambda v: f"'{v} +00:00'", zoned, examples=EDGES),
    case("datetimeoffset(3)", ticks(1, 9999).map(exactly(3)), lambda v: f"'{v} +00:00'", zoned),
    case("datetimeoffset(7)", ticks(1900, 2299), lambda v: f"'{v} +02:30'", lambda v: REFUSED),
    case("datetimeoffset(7)", ticks(1900, 2299), lambda v: f"'{v} -13:59'", lambda v: f"{v} -13:59", override=(("type", "text"),)),
    case("uniqueidentifier", st.uuids(), quoted, examples=(uuid.UUID(int=0), uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"))),
]  # fmt: skip


@pytest.mark.invariant("I14")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_value_arrives_exactly_or_is_refused(source, target, case):
    check_all(source, target, case, max_examples=2)


def test_clamping_keeps_instants_and_cuts_the_seventh_digit(source, target):
    if not source.seventh_digit:
        pytest.skip("this server keeps six digits")
    clamped = case(
        "datetimeoffset(7)", st.nothing(), quoted, str, override=(("on_overflow", "clamp"),)
    )
    source.fill("datetimeoffset(7)", ["'2020-01-01 02:00:00.1234567 +02:00'"])
    assert move(source, target, clamped, "arrow") == ["2020-01-01 00:00:00.123456+00"]
