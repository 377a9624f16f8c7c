"""Canonical values: equal where the values are equal, and readable."""

from __future__ import annotations

import datetime as dt
import math
import struct
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.canonical import canonical, shown
from checks.constants import NOT_FINITE
from checks.fields import Field, Kind
from resources.tables import Column


def field(kind: Kind, *, precision: int | None = None, scale: int = 0) -> Field:
    return Field(
        "x", kind, Column("x", "any"), Column("x", "any"), precision=precision, scale=scale
    )


@settings(deadline=None)  # the first call loads what polars loads late
@given(st.floats())
def test_floats_are_compared_by_their_bits(value: float) -> None:
    (series,) = canonical(field("float"), [pa.array([value, None], pa.float64())])
    expected = struct.unpack("<q", struct.pack("<d", math.nan if math.isnan(value) else value))[0]
    assert series.to_list() == [expected, None]


def test_zeros_differ_and_nans_do_not() -> None:
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
    values = pa.array([0.0, -0.0, math.nan, other_nan], pa.float64())
    zero, minus, nan, other = canonical(field("float"), [values])[0].to_list()
    assert zero != minus
    assert nan == other
    assert shown(field("float"), [minus]) == "-0.0"


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        (field("integer"), [-7], "-7"),
        (field("boolean"), [1], "true"),
        (field("decimal", precision=12, scale=2), [-5], "-0.05"),
        (field("decimal", precision=12, scale=2), [1234], "12.34"),
        (field("decimal", precision=12, scale=2), [NOT_FINITE], "not finite"),
        (field("date"), [-719162], "0001-01-01"),
        (field("time", scale=6), [86_399_999_999], "23:59:59.999999"),
        (field("timestamp", scale=6), [-1], "1969-12-31 23:59:59.999999"),
        (field("timestamp", scale=0), [1_000_000], "1970-01-01 00:00:01"),
        (field("timestamp", scale=3), [1], "1970-01-01 00:00:00.000001"),
        (field("timestamp", scale=7), [1], "1970-01-01 00:00:00.0000001"),
        (field("text"), ["é\n".encode()], "é\n"),
        (field("text"), [b"\xff"], "\\xff"),
        (field("bytes"), [b"\x00\xff"], "00ff"),
        (field("float"), [4607182418800017408], "1.0"),
        (field("integer"), [None], None),
    ],
)
def test_shown(column: Field, values: list[object], expected: str | None) -> None:
    assert shown(column, values) == expected


@given(st.uuids())
def test_a_uuid_is_shown_out_of_its_halves(value: uuid.UUID) -> None:
    raw = value.bytes_le
    halves = [int.from_bytes(half, "big", signed=True) for half in (raw[:8], raw[8:])]
    assert shown(field("uuid"), list(halves)) == str(value)


@given(st.datetimes())
def test_a_timestamp_is_shown_in_full(value: dt.datetime) -> None:
    micros = (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    assert shown(field("timestamp", scale=6), [micros]) == value.isoformat(" ", "microseconds")


def test_a_slice_of_lists_is_taken_as_it_is() -> None:
    items = replace(field("array"), item=field("float"))
    lists = pa.array([[9.0], [0.0, None], None, [], [-0.0]], pa.list_(pa.float64()))
    (sliced,) = canonical(items, [lists.slice(1)])
    (whole,) = canonical(items, [pa.array(lists.slice(1).to_pylist(), lists.type)])
    assert sliced.to_list() == whole.to_list() == [[0, None], None, [], [-(2**63)]]
    assert shown(items, [sliced[0].to_list()]) == "[0.0, NULL]"
