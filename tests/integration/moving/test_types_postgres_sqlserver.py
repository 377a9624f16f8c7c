"""Every PostgreSQL type into SQL Server, through the real servers of the stack.

Values are written as SQL text and read back by ODBC; what is expected is computed by Python's own
types, never by the product.
"""

# ruff: noqa: E501 -- one line per case reads like the table that it is

from __future__ import annotations

import datetime as dt
import json
import math
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
)
from tests.integration.support.typed_values import CHARACTERS, NASTY, decimals, float_bits, ints

pytestmark = pytest.mark.integration


source = end(PostgresEnd, "pg_url")
target = end(SqlServerEnd, "mssql_url")


def same(value):
    return value


def finite(format_):
    read = float_bits(format_)
    return lambda value: read(value) if math.isfinite(value) else REFUSED


def fits(units):
    return lambda text: text if len(text.encode("utf-16-le")) <= 2 * units else REFUSED


def moment(value):
    return REFUSED if isinstance(value, str) else value


BETWEEN_DOUBLES = dt.time(2, 43, 43, 1781)
"""A time of which doubles make 9823001780.999998 microseconds."""
MOMENTS = (
    dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    "infinity", "-infinity", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59.999999", "10000-01-01 00:00:00",
)  # fmt: skip
DATES = (
    dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1900, 1, 1), "infinity", "-infinity",
    "4713-01-01 BC", "5874897-12-31", "10000-01-01",
)  # fmt: skip
# reading rows, the driver takes a leading U+FEFF of nvarchar(max) for a byte order mark and drops it;
# the shorter nvarchar has it below
NO_MARK = st.characters(codec="utf-8", exclude_characters="\0\ufeff")
ONE = ("arrow",)
LONG = "x" * 5000 + "\U0001f600"

CASES = [
    Case("smallint", ints(16), expected=same, read_back="{}", wires=ONE, examples=(-(2**15), 2**15 - 1)),
    Case("integer", ints(32), expected=same, read_back="{}", wires=ONE, examples=(-(2**31), 2**31 - 1)),
    Case("bigint", ints(64), expected=same, read_back="{}", wires=ONE, examples=(-(2**63), 2**63 - 1)),
    Case("bigint", ints(64) | ints(32), expected=lambda v: v if -(2**31) <= v < 2**31 else REFUSED,
         read_back="{}", wires=ONE, override=(("type", "int"),), examples=(2**31 - 1, 2**31)),
    Case("oid", st.integers(0, 2**32 - 1), expected=same, read_back="{}", wires=ONE, examples=(2**32 - 1,)),
    Case("numeric(9,2)", decimals(9, 2), expected=same, read_back="{}", wires=ONE),
    Case("numeric(38,10)", decimals(38, 10) | st.just(Decimal("NaN")), expected=lambda v: v if v.is_finite() else REFUSED,
         read_back="{}", wires=ONE, examples=(Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001"))),
    Case("numeric(38,38)", decimals(38, 38), "{:f}".format, same, read_back="{}", wires=ONE),
    Case("numeric", decimals(20, 4) | decimals(50, 20) | st.sampled_from([Decimal("NaN"), Decimal("Infinity")]), "{:f}".format,
         lambda v: v if v.is_finite() and abs(v) < 10**16 and v * 10**4 % 1 == 0 else REFUSED,
         read_back="{}", wires=ONE, override=(("type", "decimal(20,4)"),)),
    Case("money", decimals(18, 2), expected=same, read_back="{}", wires=ONE,
         examples=(Decimal("-92233720368547758.08"), Decimal("92233720368547758.07"))),
    Case("real", st.floats(width=32), repr, finite("f"), "{}", float_bits("f"), ONE,
         examples=(math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-45, 3.4028234663852886e38)),
    Case("double precision", st.floats(), repr, finite("d"), "{}", float_bits("d"), ONE,
         examples=(math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7976931348623157e308, 0.1)),
    Case("boolean", st.booleans(), expected=same, read_back="{}", wires=ONE),
    Case("text", st.text(NO_MARK), expected=same, read_back="{}", wires=ONE,
         examples=(*(text for text in NASTY if text != "\ufeff"), LONG)),
    Case("character varying(20)", st.text(CHARACTERS, max_size=20), expected=fits(20), read_back="{}", wires=ONE,
         examples=(*NASTY, "\U0001f600" * 10, "\U0001f600" * 11)),
    Case("character(20)", st.text(CHARACTERS, max_size=20), expected=lambda v: fits(20)(v.ljust(20)),
         read_back="{}", wires=ONE, examples=("", "ä  ")),
    Case("bytea", st.binary(), lambda v: "\\x" + v.hex(), same, "{}", bytes, ONE, examples=(b"", b"\0", b"\xff\xfe", b"x" * 9000)),
    Case("date", st.dates(), expected=moment, read_back="{}", wires=ONE, examples=DATES),
    Case("time", st.times(), expected=moment, read_back="{}", wires=ONE, examples=(dt.time(0), dt.time.max, "24:00:00", BETWEEN_DOUBLES)),
    Case("time(0)", st.times().map(lambda v: v.replace(microsecond=0)), expected=same, read_back="{}", wires=ONE),
    Case("timestamp", st.datetimes(), expected=moment, read_back="{}", wires=ONE, examples=MOMENTS),
    Case("timestamp(3)", st.datetimes().map(lambda v: v.replace(microsecond=v.microsecond // 1000 * 1000)),
         expected=same, read_back="{}", wires=ONE),
    Case("timestamptz", st.datetimes(), expected=lambda v: REFUSED if isinstance(v, str) else v.replace(tzinfo=dt.UTC),
         read_back="{}", wires=ONE, examples=MOMENTS),
    Case("uuid", st.uuids(), expected=same, read_back="{}", normal=lambda v: uuid.UUID(str(v)), wires=ONE,
         examples=(uuid.UUID(int=0), uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"))),
    Case("json", st.text(CHARACTERS).map(lambda v: json.dumps({"k": v}, ensure_ascii=False)), expected=same, read_back="{}", wires=ONE),
    Case("interval", st.sampled_from(["1 year 2 mons", "-3 days", "00:00:00.000001"]), expected=same, read_back="{}", wires=ONE),
    Case("timetz", st.sampled_from(["12:00:00.123456+02:30", "24:00:00-15:59"]), expected=same, read_back="{}", wires=ONE),
    Case("inet", st.sampled_from(["1.2.3.4", "1.2.3.4/8", "::ffff:1.2.3.4/96"]), expected=same, read_back="{}", wires=ONE),
    Case("bit(3)", st.sampled_from(["101", "000"]), expected=same, read_back="{}", wires=ONE),
    Case("int4range", st.sampled_from(["[1,5)", "empty", "(,)"]), expected=same, read_back="{}", wires=ONE),
    Case("integer[]", st.lists(st.none() | ints(32)).map(json.dumps),
         lambda v: v.replace("[", "{").replace("]", "}"), json.loads, "{}", json.loads, ONE,
         examples=("[]", "[1, null]")),
]  # fmt: skip


@pytest.mark.invariant("I14")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_value_arrives_exactly_or_is_refused(source, target, case):
    check_all(source, target, case, max_examples=3)
