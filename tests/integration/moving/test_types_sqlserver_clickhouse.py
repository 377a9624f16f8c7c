"""Every SQL Server type into ClickHouse, through the real servers of the stack.

Values are written as T-SQL literals and read back over plain HTTP; what is expected is computed by
Python's own types, never by the product.
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
    ClickHouseEnd,
    SqlServerEnd,
    check_all,
    end,
)
from tests.integration.support.typed_values import (
    EDGES,
    NASTY,
    decimals,
    exactly,
    float_bits,
    hexed,
    ints,
    plain,
    quoted,
    ticks,
    unicode_literal,
)

pytestmark = pytest.mark.integration


source = end(SqlServerEnd, "mssql_url")
target = end(ClickHouseEnd, "ch_url")


def held(value):
    """What DateTime64 of every release shows for an ISO timestamp."""
    return value if "1900" <= value[:4] <= "2299" else REFUSED


TEXT = st.characters(codec="utf-8", exclude_characters="\0\ufffd")
ONE = ("arrow",)


def with_text(value):
    return REFUSED if "\ufffd" in value else hexed(value)


CASES = [
    Case("tinyint", st.integers(0, 255), examples=(0, 255), wires=ONE),
    Case("smallint", ints(16), examples=(-(2**15), 2**15 - 1), wires=ONE),
    Case("int", ints(32), examples=(-(2**31), 2**31 - 1), wires=ONE),
    Case("bigint", ints(64), examples=(-(2**63), 2**63 - 1), wires=ONE),
    Case("bit", st.integers(0, 1), expected=lambda v: str(bool(v)).lower(), wires=ONE),
    Case("decimal(9,2)", decimals(9, 2), plain, lambda v: v, normal=Decimal, wires=ONE),
    Case("decimal(38,10)", decimals(38, 10), plain, lambda v: v, normal=Decimal, wires=ONE,
         examples=(Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001"))),
    Case("numeric(38,38)", decimals(38, 38), plain, lambda v: v, normal=Decimal, wires=ONE),
    Case("money", decimals(18, 4), plain, lambda v: v, normal=Decimal, wires=ONE,
         examples=(Decimal("-922337203685477.5808"), Decimal("922337203685477.5807"))),
    Case("smallmoney", decimals(9, 4), plain, lambda v: v, normal=Decimal, wires=ONE),
    # not as a number, which has no negative zero on Babelfish
    Case("float", st.floats(allow_nan=False, allow_infinity=False), "CAST('{:.17e}' AS float)".format, float_bits("d"),
         normal=float_bits("d"), wires=ONE, examples=(-0.0, 0.1, 1.7976931348623157e308, 2.2250738585072014e-308, 5e-324, 9007199254740993.0)),
    Case("real", st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False), "{:.17e}".format, float_bits("f"),
         normal=float_bits("f"), wires=ONE, examples=(3.4028234663852886e38, 1.1754943508222875e-38, 0.10000000149011612)),
    Case("nvarchar(50)", st.text(TEXT, max_size=25), unicode_literal, with_text, "hex({})", wires=ONE, examples=NASTY),
    Case("nvarchar(max)", st.text(TEXT), unicode_literal, with_text, "hex({})", wires=ONE, examples=(*NASTY, "x" * 9000)),
    Case("nchar(20)", st.text(TEXT, max_size=10).filter(lambda v: max(v, default="") <= "\uffff"), unicode_literal,
         lambda v: hexed(v.ljust(20)), "hex({})", wires=ONE, examples=("", "ä")),
    Case("varchar(50)", st.text("abc äöü€ '\\\t\n", max_size=50), unicode_literal, hexed, "hex({})", wires=ONE, examples=("", " ", "ä€")),
    Case("char(5)", st.text("abc", max_size=5), unicode_literal, lambda v: hexed(v.ljust(5)), "hex({})", wires=ONE),
    Case("text", st.text("abc", max_size=50), unicode_literal, hexed, "hex({})", wires=ONE, examples=("",)),
    Case("ntext", st.text(TEXT, max_size=50), unicode_literal, with_text, "hex({})", wires=ONE, examples=("", "\U0001f600")),
    Case("varbinary(50)", st.binary(max_size=50), lambda v: "0x" + v.hex(), lambda v: v.hex().upper(), "hex({})", wires=ONE, examples=(b"", b"\0\xff")),
    Case("varbinary(max)", st.binary(), lambda v: "0x" + v.hex(), lambda v: v.hex().upper(), "hex({})", wires=ONE, examples=(b"", b"x" * 9000)),
    Case("binary(4)", st.binary(min_size=4, max_size=4), lambda v: "0x" + v.hex(), lambda v: v.hex().upper(), "hex({})", wires=ONE),
    Case("image", st.binary(max_size=50), lambda v: "0x" + v.hex(), lambda v: v.hex().upper(), "hex({})", wires=ONE),
    Case("date", st.dates(), quoted, lambda v: held(v.isoformat()), wires=ONE,
         examples=(dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1900, 1, 1), dt.date(2299, 12, 31))),
    Case("date", st.dates(), quoted, str, wires=ONE, long_calendar=True, examples=(dt.date(1, 1, 1), dt.date(9999, 12, 31))),
    Case("date", st.dates(), quoted, str, wires=ONE, override=(("type", "String"),), examples=(dt.date(1, 1, 1),)),
    Case("time(7)", ticks(2000, 2000).map(lambda v: v[11:]), quoted, str, wires=ONE,
         examples=("00:00:00.0000000", "23:59:59.9999999")),
    Case("time(3)", ticks(2000, 2000).map(lambda v: v[11:23]), quoted, str, wires=ONE),
    Case("time(0)", ticks(2000, 2000).map(lambda v: v[11:19]), quoted, str, wires=ONE),
    Case("datetime2(7)", ticks(1900, 2299) | ticks(1, 9999), quoted, held, wires=ONE, examples=EDGES),
    Case("datetime2(7)", ticks(1, 9999), quoted, str, wires=ONE, examples=EDGES, long_calendar=True),
    Case("datetime2(7)", ticks(1, 9999), quoted, str, wires=ONE, examples=EDGES, override=(("type", "String"),)),
    Case("datetime2(6)", ticks(1900, 2299).map(exactly(6)), quoted, held, wires=ONE, examples=tuple(map(exactly(6), EDGES))),
    Case("datetime2(3)", ticks(1900, 2299).map(exactly(3)), quoted, held, wires=ONE, examples=tuple(map(exactly(3), EDGES))),
    Case("datetime2(0)", ticks(1900, 2299).map(exactly(0)), quoted, held, wires=ONE, examples=tuple(map(exactly(0), EDGES))),
    Case("datetime", ticks(1900, 2299).map(lambda v: v[:22] + "0"), quoted, held, wires=ONE,
         examples=("2020-01-01 00:00:00.003", "2020-01-01 00:00:00.997", "1753-01-01 00:00:00.000", "9999-12-31 23:59:59.997")),
    Case("smalldatetime", ticks(1900, 2078).map(lambda v: v[:16] + ":00"), quoted, held, wires=ONE),
    Case("datetimeoffset(7)", ticks(1900, 2299), lambda v: f"'{v} +00:00'", held, wires=ONE, examples=EDGES),
    Case("datetimeoffset(3)", ticks(1900, 2299).map(exactly(3)), lambda v: f"'{v} +00:00'", held, wires=ONE),
    Case("datetimeoffset(7)", ticks(1900, 2299), lambda v: f"'{v} +02:30'", lambda v: REFUSED, wires=ONE),
    Case("datetimeoffset(7)", ticks(1900, 2299), lambda v: f"'{v} -13:59'", lambda v: f"{v} -13:59", wires=ONE, override=(("type", "String"),)),
    Case("uniqueidentifier", st.uuids(), quoted, wires=ONE, examples=(uuid.UUID(int=0), uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"))),
    Case("money", decimals(18, 4), plain, lambda v: v, normal=Decimal, wires=ONE, override=(("type", "String"),)),
]  # fmt: skip


@pytest.mark.invariant("I14")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_value_arrives_exactly_or_is_refused(source, target, case):
    check_all(source, target, case, max_examples=2)
