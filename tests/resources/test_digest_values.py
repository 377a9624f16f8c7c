"""Canonical forms, as a person reads them."""

from __future__ import annotations

import datetime as dt
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.contract.fields import Field, Kind
from tableferry.resources.digest.definition import shown
from tableferry.resources.types.type_map import Column


def field(kind: Kind, *, scale: int = 0, item: Field | None = None) -> Field:
    return Field("x", kind, Column("x", "any"), Column("x", "any"), scale=scale, item=item)


@pytest.mark.parametrize(
    ("column", "form", "expected"),
    [
        (field("integer"), "-7", "-7"),
        (field("boolean"), "1", "true"),
        (field("decimal", scale=2), "-0.05", "-0.05"),
        (field("decimal", scale=2), "NaN", "NaN"),
        (field("date"), "-719162", "0001-01-01"),
        (field("date"), "infinity", "infinity"),
        (field("time", scale=6), "86399999999", "23:59:59.999999"),
        (field("timestamp", scale=6), "-1", "1969-12-31 23:59:59.999999"),
        (field("timestamp", scale=0), "1000000", "1970-01-01 00:00:01"),
        (field("timestamp", scale=3), "1", "1970-01-01 00:00:00.000001"),
        (field("timestamp", scale=7), "1", "1970-01-01 00:00:00.0000001"),
        (field("text"), "é\n", "é\n"),
        (field("text"), b"\xff", "\\xff"),
        (field("bytes"), b"\x00\xff", "00ff"),
        (field("uuid"), "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", None),
        (field("integer"), None, None),
        (field("array", item=field("integer")), "0:", "[]"),
        (field("array", item=field("integer")), "3:5,~,-3", "[5, NULL, -3]"),
        (field("array", item=field("text")), "3:4:a,é,~,1:~", "[a,é, NULL, ~]"),
        (field("array", item=field("date")), "1:0", "[1970-01-01]"),
    ],
)
def test_shown(column: Field, form: str | bytes | None, expected: str | None) -> None:
    if column.kind == "uuid":
        expected = str(form)
    assert shown(column, form) == expected


@given(st.floats(allow_nan=False))
def test_a_float_is_shown_out_of_its_bits(value: float) -> None:
    bits = struct.unpack("<q", struct.pack("<d", value))[0]
    assert shown(field("float"), str(bits)) == repr(value)


@given(st.datetimes())
def test_a_timestamp_is_shown_in_full(value: dt.datetime) -> None:
    micros = (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    expected = value.isoformat(" ", "microseconds")
    assert shown(field("timestamp", scale=6), str(micros)) == expected
