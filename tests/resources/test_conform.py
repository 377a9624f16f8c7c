"""Values through `conform`: what arrives in the sink's batch, or what is refused and how."""

# ruff: noqa: E501 -- one line per case reads like the table that it is

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Context, Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.columns.conform import conform
from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.errors import InputError, SchemaDrift, ValueRefused
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

POSTGRES = TableRef("postgres", "public", "t")
SQLSERVER = TableRef("sqlserver", "dbo", "t")
CLICKHOUSE = TableRef("clickhouse", "warehouse", "t")
TO_POSTGRES = TableRef("postgres", "copies", "t")
US = pa.timestamp("us")
UTC = pa.timestamp("us", tz="UTC")
U1 = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
UUIDS = pa.ListArray.from_arrays([0, 1], pa.array([U1.bytes], pa.uuid()))
PG_EPOCH_DAYS = 10957
PG_EPOCH_US = PG_EPOCH_DAYS * 86_400_000_000


def days(number):
    """A date as ADBC sends PostgreSQL's own day number: shifted to 1970, wrapping around."""
    wrapped = (number + PG_EPOCH_DAYS + 2**31) % 2**32 - 2**31
    return pa.array([wrapped], pa.int32()).view(pa.date32())


def moment(number, type_=US):
    wrapped = (number + PG_EPOCH_US + 2**63) % 2**64 - 2**63
    return pa.array([wrapped], pa.int64()).view(type_)


def send(source, type_, target, array, **override):
    """One column next to a key column 101, 102, ..., through `conform`."""
    columns = [
        Column("id", "int" if source is SQLSERVER else "integer", False),
        Column("x", type_),
    ]
    plan = plan_copy(source, columns, target, key="id", overrides={"x": ColumnOverride(**override)})
    keys = pa.array(range(101, 101 + len(array)), pa.int32())
    counts: dict[str, int] = {}
    batch = conform(pa.record_batch([keys, array], ["id", "x"]), plan, counts)
    assert batch.schema.names == ["id", "x"]
    assert batch.column(1).type == plan.columns[1].arrow_type
    return batch.column(1), counts


TAKEN = [
    # source, type, target, override, what the source sends, what the sink gets
    (POSTGRES, "integer", CLICKHOUSE, None, pa.array([1, None], pa.int32()), [1, None]),
    (POSTGRES, "oid", CLICKHOUSE, None, pa.array([2**32 - 1], pa.int64()), [2**32 - 1]),
    (POSTGRES, "bigint", SQLSERVER, "int", pa.array([-(2**31), 2**31 - 1]), [-(2**31), 2**31 - 1]),
    (
        POSTGRES,
        "numeric(38,10)",
        SQLSERVER,
        None,
        pa.array(["9999999999999999999999999999.9999999999", "-0.0000000001", "0.0000000000", None]),
        [Decimal("9999999999999999999999999999.9999999999"), Decimal("-1e-10"), Decimal("0e-10"), None],
    ),
    (POSTGRES, "numeric(76,0)", CLICKHOUSE, None, pa.array(["-" + "9" * 76]), [Decimal("-" + "9" * 76)]),
    (POSTGRES, "numeric", SQLSERVER, "decimal(38,2)", pa.array(["9" * 36 + ".99"]), [Decimal("9" * 36 + ".99")]),
    (POSTGRES, "numeric", SQLSERVER, "decimal(5,2)", pa.array(["-123.45", "7"]), [Decimal("-123.45"), Decimal("7.00")]),
    (POSTGRES, "numeric(10,0)", CLICKHOUSE, "Int64", pa.array(["-9999999999"]), [-9999999999]),
    (POSTGRES, "money", SQLSERVER, None, pa.array(["-92233720368547758.08"]), [Decimal("-92233720368547758.08")]),
    (POSTGRES, "real", CLICKHOUSE, None, pa.array([float("inf"), -0.0], pa.float32()), [float("inf"), -0.0]),
    (POSTGRES, "double precision", SQLSERVER, None, pa.array([5e-324, -0.0, None]), [5e-324, -0.0, None]),
    (POSTGRES, "boolean", SQLSERVER, None, pa.array([True, None]), [True, None]),
    (POSTGRES, "text", SQLSERVER, None, pa.array(["", " ", "\t\r\n\\", "\U0001f600", None]), ["", " ", "\t\r\n\\", "\U0001f600", None]),
    (POSTGRES, "character varying(2)", SQLSERVER, None, pa.array(["äö", "\U0001f600"]), ["äö", "\U0001f600"]),
    (POSTGRES, "character(3)", CLICKHOUSE, None, pa.array(["a  "]), ["a  "]),
    (POSTGRES, "bytea", SQLSERVER, None, pa.array([b"", b"\0\xff"]), [b"", b"\0\xff"]),
    (POSTGRES, "bytea", CLICKHOUSE, "FixedString(2)", pa.array([b"\0\xff"]), [b"\0\xff"]),
    (POSTGRES, "date", SQLSERVER, None, pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    (POSTGRES, "date", CLICKHOUSE, None, pa.array([dt.date(1900, 1, 1), dt.date(2299, 12, 31)]), [dt.date(1900, 1, 1), dt.date(2299, 12, 31)]),
    (POSTGRES, "date", CLICKHOUSE, "Int32", days(2_145_031_948), [2_145_042_905]),
    (POSTGRES, "time without time zone", SQLSERVER, None, pa.array([dt.time(23, 59, 59, 999999)]), [dt.time(23, 59, 59, 999999)]),
    (POSTGRES, "timestamp without time zone", SQLSERVER, None, pa.array([dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)], US), [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    (POSTGRES, "timestamp with time zone", CLICKHOUSE, None, pa.array([dt.datetime(1900, 1, 1)], UTC), [dt.datetime(1900, 1, 1)]),
    (POSTGRES, "timestamp without time zone", CLICKHOUSE, "DateTime64(3, 'UTC')", pa.array([dt.datetime(1960, 1, 1, 0, 0, 0, 1000)], US), [dt.datetime(1960, 1, 1, 0, 0, 0, 1000)]),
    (POSTGRES, "uuid", SQLSERVER, None, pa.array([U1.bytes, None], pa.uuid()), [U1.bytes, None]),
    (POSTGRES, "integer[]", CLICKHOUSE, None, pa.array([[1, None], []], pa.list_(pa.int32())), [[1, None], []]),
    (POSTGRES, "numeric(4,2)[]", CLICKHOUSE, None, pa.array([["1.50", None], []]), [[Decimal("1.50"), None], []]),
    (POSTGRES, "uuid", CLICKHOUSE, None, pa.array([U1.bytes, U1.bytes, None, bytes(16)], pa.uuid())[1:], [str(U1), None, str(uuid.UUID(int=0))]),
    (POSTGRES, "uuid[]", CLICKHOUSE, None, UUIDS, [[str(U1)]]),
    (SQLSERVER, "tinyint", CLICKHOUSE, None, pa.array([255], pa.uint8()), [255]),
    (SQLSERVER, "decimal(38,10)", CLICKHOUSE, None, pa.array([Decimal("-1e-10")], pa.decimal128(38, 10)), [Decimal("-1e-10")]),
    (SQLSERVER, "money", CLICKHOUSE, None, pa.array([Decimal("922337203685477.5807")], pa.decimal128(19, 4)), [Decimal("922337203685477.5807")]),
    (SQLSERVER, "time(7)", CLICKHOUSE, None, pa.array([1_234_567_800, 0, None], pa.time64("ns")), ["00:00:01.2345678", "00:00:00.0000000", None]),
    (SQLSERVER, "time(0)", CLICKHOUSE, None, pa.array([86_399_000_000_000], pa.time64("ns")), ["23:59:59"]),
    (SQLSERVER, "datetime2(7)", CLICKHOUSE, None, pa.array(["1900-01-01 00:00:00.0000000", "2299-12-31 23:59:59.9999999"], pa.large_string()), ["1900-01-01 00:00:00.0000000", "2299-12-31 23:59:59.9999999"]),
    (SQLSERVER, "datetimeoffset(7)", CLICKHOUSE, None, pa.array(["2020-01-01 00:00:00.1234567 +00:00", None], pa.large_string()), ["2020-01-01 00:00:00.1234567", None]),
    (SQLSERVER, "datetimeoffset(3)", CLICKHOUSE, None, pa.array(["2020-01-01 00:00:00.123 +00:00"], pa.large_string()), [dt.datetime(2020, 1, 1, 0, 0, 0, 123000)]),
    (SQLSERVER, "uniqueidentifier", CLICKHOUSE, None, pa.array([str(U1).upper()], pa.large_string()), [str(U1).upper()]),
    (SQLSERVER, "float", CLICKHOUSE, "String", pa.array([0.1, 1e300]), ["0.1", "1e+300"]),
]  # fmt: skip


@pytest.mark.parametrize(("source", "type_", "target", "override", "sent", "got"), TAKEN)
def test_values_that_travel(source, type_, target, override, sent, got):
    column, counts = send(source, type_, target, sent, type=override)
    assert column.to_pylist() == got
    assert str(column.to_pylist()) == str(got)  # -0.0 is not 0.0, 1.50 is not 1.5
    assert counts == {}


REFUSED = [
    # source, type, target, override, sent, row, value in the message, reason
    (POSTGRES, "bigint", SQLSERVER, "int", pa.array([1, 2**31]), 1, 2**31, "outside of"),
    (POSTGRES, "integer", CLICKHOUSE, "UInt8", pa.array([-1], pa.int32()), 0, -1, "outside of 0..255"),
    (POSTGRES, "bigint", CLICKHOUSE, "Decimal(3, 0)", pa.array([1000]), 0, 1000, "outside of -999..999"),
    (POSTGRES, "numeric(5,2)", SQLSERVER, None, pa.array(["1.00", "NaN"]), 1, "NaN", "not a number"),
    (POSTGRES, "numeric", SQLSERVER, "decimal(5,2)", pa.array(["1000"]), 0, "1000", "decimal(5,2)"),
    (POSTGRES, "numeric", SQLSERVER, "decimal(5,2)", pa.array(["0.001"]), 0, "0.001", "decimal(5,2)"),
    (POSTGRES, "numeric", SQLSERVER, "decimal(5,2)", pa.array(["-Infinity"]), 0, "-Infinity", "decimal(5,2)"),
    (POSTGRES, "numeric", SQLSERVER, "decimal(38,2)", pa.array(["0." + "0" * 40 + "1"]), 0, "0." + "0" * 40 + "1", "decimal(38,2)"),
    (POSTGRES, "numeric", CLICKHOUSE, "Decimal(76, 0)", pa.array(["9" * 77]), 0, "9" * 77, "decimal(76,0)"),
    (POSTGRES, "numeric", CLICKHOUSE, "Decimal(76, 0)", pa.array(["9" * 400]), 0, "9" * 200, "decimal(76,0)"),
    (POSTGRES, "double precision", SQLSERVER, None, pa.array([1.0, float("inf")]), 1, float("inf"), "finite"),
    (POSTGRES, "character varying(1)", SQLSERVER, None, pa.array(["ä", "\U0001f600"]), 1, "\U0001f600", "1 UTF-16"),
    (POSTGRES, "text", SQLSERVER, "nvarchar(3)", pa.array(["abc", "abcd"]), 1, "abcd", "3 UTF-16"),
    (POSTGRES, "bytea", SQLSERVER, "varbinary(1)", pa.array([b"ab"]), 0, b"ab", "at most 1 bytes"),
    (POSTGRES, "bytea", CLICKHOUSE, "FixedString(2)", pa.array([b"a"]), 0, b"a", "does not have 2 bytes"),
    (POSTGRES, "date", SQLSERVER, None, days(2**31 - 1), 0, "infinity", "0001-01-01 to 9999-12-31"),
    (POSTGRES, "date", SQLSERVER, None, days(-(2**31)), 0, "-infinity", "SQL Server"),
    (POSTGRES, "date", SQLSERVER, None, days(-2451545), 0, "4714-11-24 BC", "SQL Server"),
    (POSTGRES, "date", SQLSERVER, None, days(2_145_031_948), 0, "5874897-12-31", "SQL Server"),
    (POSTGRES, "date", SQLSERVER, None, pa.array([-719163], pa.int32()).view(pa.date32()), 0, "0001-12-31 BC", "SQL Server"),
    (POSTGRES, "date", CLICKHOUSE, None, pa.array([dt.date(1899, 12, 31)]), 0, "1899-12-31", "1900-01-01 to 2299-12-31"),
    (POSTGRES, "date", CLICKHOUSE, None, pa.array([dt.date(2300, 1, 1)]), 0, "2300-01-01", "ClickHouse"),
    (POSTGRES, "date", CLICKHOUSE, "Int32", days(2**31 - 1), 0, "infinity", "postgres"),
    (POSTGRES, "time without time zone", SQLSERVER, None, pa.array([86_400_000_000], pa.time64("us")), 0, "24:00:00", "end of a day"),
    (POSTGRES, "timestamp without time zone", SQLSERVER, None, moment(2**63 - 1), 0, "infinity", "SQL Server"),
    (POSTGRES, "timestamp with time zone", CLICKHOUSE, None, moment(-(2**63), UTC), 0, "-infinity", "ClickHouse"),
    (POSTGRES, "timestamp without time zone", CLICKHOUSE, "Int64", moment(2**63 - 1), 0, "infinity", "postgres"),
    (POSTGRES, "timestamp without time zone", SQLSERVER, None, moment(9223371331199999999), 0, "294276-12-31 23:59:59.999999", "SQL Server"),
    (POSTGRES, "timestamp without time zone", SQLSERVER, "datetime2(3)", pa.array([dt.datetime(2020, 1, 1, 0, 0, 0, 1)], US), 0, "2020-01-01 00:00:00.000001", "more than 3 decimals"),
    (POSTGRES, "integer[]", CLICKHOUSE, None, pa.array([[1], None], pa.list_(pa.int32())), 1, None, "NULL"),
    (POSTGRES, "date[]", CLICKHOUSE, None, pa.array([[], [dt.date(2000, 1, 1), None, dt.date(1, 1, 1)]]), 1, ["2000-01-01", None, "0001-01-01"], "has an element"),
    (SQLSERVER, "date", CLICKHOUSE, None, pa.array([dt.date(1, 1, 1)]), 0, "0001-01-01", "ClickHouse"),
    (SQLSERVER, "datetime2(6)", CLICKHOUSE, None, pa.array([dt.datetime(9999, 12, 31)], US), 0, "9999-12-31 00:00:00", "ClickHouse"),
    (SQLSERVER, "datetime2(7)", CLICKHOUSE, None, pa.array(["1899-12-31 23:59:59.9999999"], pa.large_string()), 0, "1899-12-31 23:59:59.9999999", "ClickHouse"),
    (SQLSERVER, "datetime2(7)", CLICKHOUSE, None, pa.array(["2300-01-01 00:00:00.0000000"], pa.large_string()), 0, "2300-01-01 00:00:00.0000000", "ClickHouse"),
    (SQLSERVER, "datetimeoffset(7)", CLICKHOUSE, None, pa.array(["2020-01-01 02:00:00.1234567 +02:00"], pa.large_string()), 0, "2020-01-01 02:00:00.1234567 +02:00", "UTC offset"),
    (SQLSERVER, "nvarchar(9)", CLICKHOUSE, None, pa.array(["a\ufffd"], pa.large_string()), 0, "a\ufffd", "surrogate"),
    (SQLSERVER, "nvarchar(9)", TO_POSTGRES, None, pa.array(["a", "a\0"], pa.large_string()), 1, "a\0", "NUL character"),
    (SQLSERVER, "nvarchar(9)", TO_POSTGRES, "varchar(2)", pa.array(["ä\U0001f600", "abc"], pa.large_string()), 1, "abc", "the 2 characters"),
    (SQLSERVER, "datetime2(7)", TO_POSTGRES, None, pa.array(["2020-01-01 00:00:00.0000001"], pa.large_string()), 0, "2020-01-01 00:00:00.0000001", "more than 6 decimals"),
    (SQLSERVER, "datetime2(7)", TO_POSTGRES, "timestamp(3)", pa.array(["2020-01-01 00:00:00.1230000", "2020-01-01 00:00:00.1234000"], pa.large_string()), 1, "2020-01-01 00:00:00.1234000", "more than 3 decimals"),
    (SQLSERVER, "time(7)", TO_POSTGRES, None, pa.array([1000, 1001], pa.time64("ns")), 1, "00:00:00.000001", "more than 6 decimals"),
    (SQLSERVER, "datetimeoffset(7)", TO_POSTGRES, None, pa.array(["2020-01-01 02:00:00.0000000 +02:00"], pa.large_string()), 0, "2020-01-01 02:00:00.0000000 +02:00", "UTC offset"),
    (POSTGRES, "text", TO_POSTGRES, "character varying(1)", pa.array(["\U0001f600", "ab"]), 1, "ab", "the 1 characters"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "type_", "target", "override", "sent", "row", "value", "reason"), REFUSED
)
def test_values_that_are_refused(source, type_, target, override, sent, row, value, reason):
    with pytest.raises(ValueRefused) as refused:
        send(source, type_, target, sent, type=override)
    error = refused.value
    assert (error.table, error.column, error.key) == (str(source), "x", 101 + row)
    assert error.value == value
    assert reason in error.reason
    assert "\n" not in str(error)


RELAXED = [
    # source, type, target, type override, policy, sent, got, how many were changed
    (POSTGRES, "date", CLICKHOUSE, None, "null", pa.array([dt.date(1, 1, 1), dt.date(2000, 1, 1), None]), [None, dt.date(2000, 1, 1), None], 1),
    (POSTGRES, "date", CLICKHOUSE, None, "clamp", pa.array([dt.date(1, 1, 1), dt.date(9999, 1, 1), None]), [dt.date(1900, 1, 1), dt.date(2299, 12, 31), None], 2),
    (POSTGRES, "timestamp with time zone", CLICKHOUSE, None, "clamp", pa.array([dt.datetime(1, 1, 1), dt.datetime(9999, 1, 1)], UTC), [dt.datetime(1900, 1, 1), dt.datetime(2299, 12, 31, 23, 59, 59, 999999)], 2),
    (POSTGRES, "bigint", SQLSERVER, "int", "clamp", pa.array([2**40, -(2**40), 5]), [2**31 - 1, -(2**31), 5], 2),
    (POSTGRES, "bigint", SQLSERVER, "int", "null", pa.array([2**40, 5]), [None, 5], 1),
    (POSTGRES, "numeric", SQLSERVER, "decimal(4,2)", "clamp", pa.array(["100", "-100", "Infinity", "1.005", "1.015", "3"]), [Decimal("99.99"), Decimal("-99.99"), Decimal("99.99"), Decimal("1.00"), Decimal("1.02"), Decimal("3.00")], 5),
    (POSTGRES, "numeric(4,2)", SQLSERVER, None, "null", pa.array(["NaN", "1.00"]), [None, Decimal("1.00")], 1),
    (POSTGRES, "double precision", SQLSERVER, None, "null", pa.array([float("nan"), 1.0]), [None, 1.0], 1),
    (POSTGRES, "text", SQLSERVER, "nvarchar(3)", "clamp", pa.array(["abcd", "ab\U0001f600", "abc", None]), ["abc", "ab", "abc", None], 2),
    (POSTGRES, "bytea", SQLSERVER, "varbinary(1)", "clamp", pa.array([b"ab", b""]), [b"a", b""], 1),
    (POSTGRES, "time without time zone", SQLSERVER, None, "clamp", pa.array([86_400_000_000], pa.time64("us")), [dt.time(23, 59, 59, 999999)], 1),
    (POSTGRES, "timestamp without time zone", SQLSERVER, "datetime2(0)", "clamp", pa.array([dt.datetime(1960, 1, 1, 0, 0, 0, 1), dt.datetime(2000, 1, 1, 0, 0, 0, 1)], US), [dt.datetime(1960, 1, 1), dt.datetime(2000, 1, 1)], 2),
    (POSTGRES, "date[]", CLICKHOUSE, None, "null", pa.array([[dt.date(1, 1, 1), dt.date(2000, 1, 1)], [], [None]]), [[None, dt.date(2000, 1, 1)], [], [None]], 1),
    (POSTGRES, "date[]", CLICKHOUSE, None, "clamp", pa.array([[dt.date(1, 1, 1)], []]), [[dt.date(1900, 1, 1)], []], 1),
    (SQLSERVER, "datetimeoffset(7)", CLICKHOUSE, None, "clamp", pa.array(["2020-01-01 02:00:00.1234567 +02:30", "2020-01-01 02:00:00.0000001 -00:30", "2020-01-01 00:00:00.0000001 +00:00"], pa.large_string()), ["2019-12-31 23:30:00.1234567", "2020-01-01 02:30:00.0000001", "2020-01-01 00:00:00.0000001"], 2),
    (SQLSERVER, "datetime2(7)", CLICKHOUSE, None, "clamp", pa.array(["0001-01-01 00:00:00.0000000", "9999-12-31 23:59:59.9999999"], pa.large_string()), ["1900-01-01 00:00:00", "2299-12-31 23:59:59.9999999"], 2),
    (SQLSERVER, "nvarchar(9)", CLICKHOUSE, None, "clamp", pa.array(["\ufffd", "a"], pa.large_string()), ["\ufffd", "a"], 1),
    (SQLSERVER, "nvarchar(9)", TO_POSTGRES, "varchar(2)", "clamp", pa.array(["ä\U0001f600b", "a"], pa.large_string()), ["ä\U0001f600", "a"], 1),
    (SQLSERVER, "nvarchar(9)", TO_POSTGRES, None, "null", pa.array(["\0", "a"], pa.large_string()), [None, "a"], 1),
    (SQLSERVER, "datetime2(7)", TO_POSTGRES, None, "clamp", pa.array(["9999-12-31 23:59:59.9999999", "2020-01-01 00:00:00.0000010"], pa.large_string()), [dt.datetime.max, dt.datetime(2020, 1, 1, 0, 0, 0, 1)], 1),
    (SQLSERVER, "time(7)", TO_POSTGRES, None, "clamp", pa.array([1001, 2000], pa.time64("ns")), [dt.time(0, 0, 0, 1), dt.time(0, 0, 0, 2)], 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "type_", "target", "override", "policy", "sent", "got", "changed"), RELAXED
)
def test_opt_ins_change_values_and_count(
    source, type_, target, override, policy, sent, got, changed
):
    column, counts = send(source, type_, target, sent, type=override, on_overflow=policy)
    assert column.to_pylist() == got
    assert counts == {"x": changed}


STILL_REFUSED = [
    (POSTGRES, "integer[]", CLICKHOUSE, "null", pa.array([None], pa.list_(pa.int32()))),
    (POSTGRES, "double precision", SQLSERVER, "clamp", pa.array([float("nan")])),
    (POSTGRES, "numeric(4,2)", SQLSERVER, "clamp", pa.array(["NaN"])),
]


@pytest.mark.parametrize(("source", "type_", "target", "policy", "sent"), STILL_REFUSED)
def test_opt_ins_that_have_no_value_to_offer(source, type_, target, policy, sent):
    with pytest.raises(ValueRefused):
        send(source, type_, target, sent, on_overflow=policy)


def test_clamp_where_nothing_can_overflow_is_a_mistake():
    with pytest.raises(InputError, match="no value can overflow"):
        send(POSTGRES, "integer[]", SQLSERVER, pa.array([""]), on_overflow="clamp")


def test_a_batch_of_another_shape_is_drift():
    plan = plan_copy(POSTGRES, [Column("id", "integer")], CLICKHOUSE, key="id")
    batch = pa.record_batch([pa.array([1], pa.int32())] * 2, ["id", "x"])
    with pytest.raises(SchemaDrift, match="2 columns arrived instead of 1"):
        conform(batch, plan, {})


def test_sliced_batches():
    columns = [Column("id", "integer", False), Column("x", "numeric(4,2)[]")]
    plan = plan_copy(POSTGRES, columns, CLICKHOUSE, key="id")
    lists = pa.array([["9.99"], ["1.00", None], [], ["2.00"], ["7.77"]])
    batch = pa.record_batch([pa.array(range(5), pa.int32()), lists], ["id", "x"]).slice(1, 3)
    assert conform(batch, plan, {}).to_pydict() == {
        "id": [1, 2, 3],
        "x": [[Decimal("1.00"), None], [], [Decimal("2.00")]],
    }


DECIMALS = st.builds(
    lambda digits, scale: Decimal(digits).scaleb(-scale, Context(prec=100)),
    st.integers(-(10**80), 10**80) | st.integers(-999, 999),
    st.integers(0, 80),
) | st.sampled_from([Decimal("NaN"), Decimal("Infinity"), Decimal("-Infinity")])


@given(
    st.lists(st.none() | DECIMALS, max_size=5),
    st.integers(1, 76).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))),
)
def test_decimals_arrive_exactly_or_are_refused(values, digits):
    precision, scale = digits
    text = pa.array([None if v is None else f"{v:f}" for v in values], pa.string())

    def fits(value):
        if not value.is_finite():
            return False
        scaled = Fraction(value) * 10**scale
        return scaled.denominator == 1 and abs(scaled) < 10**precision

    misfits = [position for position, v in enumerate(values) if v is not None and not fits(v)]
    type_ = f"Decimal({precision}, {scale})"
    if misfits:
        with pytest.raises(ValueRefused) as refused:
            send(POSTGRES, "numeric", CLICKHOUSE, text, type=type_)
        assert refused.value.key == 101 + misfits[0]
    else:
        column, _ = send(POSTGRES, "numeric", CLICKHOUSE, text, type=type_)
        assert column.to_pylist() == values


@given(
    st.lists(
        st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0")), max_size=5
    ),
    st.integers(1, 9),
)
def test_text_arrives_or_is_longer_than_its_utf16_units(values, units):
    longer = [
        position
        for position, v in enumerate(values)
        if v is not None and len(v.encode("utf-16-le")) > 2 * units
    ]
    array = pa.array(values, pa.string())
    if longer:
        with pytest.raises(ValueRefused) as refused:
            send(POSTGRES, "text", SQLSERVER, array, type=f"nvarchar({units})")
        assert refused.value.key == 101 + longer[0]
        column, counts = send(
            POSTGRES, "text", SQLSERVER, array, type=f"nvarchar({units})", on_overflow="clamp"
        )
        assert counts == {"x": len(longer)}
        for before, after in zip(values, column.to_pylist(), strict=True):
            assert before == after or (
                before.startswith(after)
                and before
                and units - 1 <= len(after.encode("utf-16-le")) / 2 <= units
            )
    else:
        column, _ = send(POSTGRES, "text", SQLSERVER, array, type=f"nvarchar({units})")
        assert column.to_pylist() == values


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_timestamps_arrive_or_are_refused(numbers):
    low = (dt.datetime(1, 1, 1) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    high = (dt.datetime.max - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    outside = [p for p, n in enumerate(numbers) if n is not None and not low <= n <= high]
    array = pa.array(numbers, pa.int64()).view(US)
    if outside:
        with pytest.raises(ValueRefused) as refused:
            send(POSTGRES, "timestamp without time zone", SQLSERVER, array)
        assert refused.value.key == 101 + outside[0]
        assert isinstance(refused.value.value, str)
    else:
        column, _ = send(POSTGRES, "timestamp without time zone", SQLSERVER, array)
        assert column.view(pa.int64()).to_pylist() == numbers
