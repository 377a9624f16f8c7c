"""Rows out and rows in, against each other: the two directions share no code but the type names."""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.types.sqltype import TICKS_PER_DAY, ResultColumn, SqlType
from tableferry_local.sqlserver.wire.bulk import COPY_HEADER, COPY_TRAILER, copy_stream
from tableferry_local.sqlserver.wire.encode import encode_rows
from tableferry_local.sqlserver.wire.packets import ProtocolError
from tableferry_local.sqlserver.wire.sink import oid_of, scalar
from tableferry_local.sqlserver.wire.tokens import column_metadata
from tableferry_local.sqlserver.wire.values import binary_of, parse_temporal, read_raw, text_of
from tableferry_local.sqlserver.wire.wiretypes import read_type_info, type_info

_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
_WESTERN = st.text(st.sampled_from("aZ ~é€ß'\t\n\\"), max_size=20)
_LAST_TICK = 3_652_059 * TICKS_PER_DAY - 1
_MICROS = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999))


def _integers(low: int, high: int) -> st.SearchStrategy[str]:
    return st.integers(low, high).map(str)


def _decimals(precision: int, scale: int) -> st.SearchStrategy[str]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda units: f"{_shift(units, scale):f}")


def _shift(units: int, scale: int) -> Decimal:
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


def _clock(scale: int) -> st.SearchStrategy[str]:
    unit = 10 ** (6 - scale)
    return st.times().map(
        lambda t: t.replace(microsecond=t.microsecond // unit * unit).isoformat("microseconds")
    )


def _stamps(scale: int) -> st.SearchStrategy[str]:
    unit = 10 ** (6 - scale)
    return _MICROS.map(
        lambda t: t.replace(microsecond=t.microsecond // unit * unit).isoformat(" ", "microseconds")
    )


def _thirds() -> st.SearchStrategy[str]:
    """The values of datetime: every 1/300 s, named by the nearest microsecond."""
    parts = st.tuples(st.dates(dt.date(1753, 1, 1)), st.integers(0, 25_919_999))
    return parts.map(
        lambda p: (
            dt.datetime.combine(p[0], dt.time())
            + dt.timedelta(microseconds=(p[1] * 20000 + 3) // 6)
        ).isoformat(" ", "microseconds")
    )


def _minutes() -> st.SearchStrategy[str]:
    return st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2079, 6, 6, 23, 59)).map(
        lambda t: t.replace(second=0, microsecond=0).isoformat(" ", "microseconds")
    )


# Each type with the text of its storage type, over its whole domain.
DOMAINS: list[tuple[SqlType, st.SearchStrategy[str]]] = [
    (SqlType("tinyint"), _integers(0, 255)),
    (SqlType("smallint"), _integers(-(2**15), 2**15 - 1)),
    (SqlType("int"), _integers(-(2**31), 2**31 - 1)),
    (SqlType("bigint"), _integers(-(2**63), 2**63 - 1)),
    (SqlType("bit"), _integers(0, 1)),
    (SqlType("decimal", precision=5, scale=0), _decimals(5, 0)),
    (SqlType("decimal", precision=10, scale=2), _decimals(10, 2)),
    (SqlType("decimal", precision=18, scale=18), _decimals(18, 18)),
    (SqlType("numeric", precision=19, scale=7), _decimals(19, 7)),
    (SqlType("decimal", precision=38, scale=0), _decimals(38, 0)),
    (SqlType("decimal", precision=38, scale=10), _decimals(38, 10)),
    (SqlType("decimal", precision=38, scale=38), _decimals(38, 38)),
    (SqlType("money"), st.integers(-(2**63), 2**63 - 1).map(lambda v: f"{_shift(v, 4):f}")),
    (SqlType("smallmoney"), st.integers(-(2**31), 2**31 - 1).map(lambda v: f"{_shift(v, 4):f}")),
    (SqlType("float"), st.floats(allow_nan=False, allow_infinity=False).map(repr)),
    (SqlType("real"), st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr)),
    (SqlType("char", 25), _WESTERN.map(lambda text: text.ljust(25))),
    (SqlType("varchar", 20), _WESTERN),
    (SqlType("varchar", -1), _WESTERN.map(lambda text: text * 500)),
    (SqlType("nchar", 50), _TEXT.map(lambda t: t + " " * (50 - len(t.encode("utf-16-le")) // 2))),
    (SqlType("nvarchar", 40), _TEXT),
    (SqlType("nvarchar", -1), _TEXT.map(lambda text: text * 500)),
    (SqlType("ntext"), _TEXT),
    (SqlType("text"), _WESTERN),
    (SqlType("xml"), _TEXT.map(lambda text: f"<a>{text}</a>")),
    (SqlType("binary", 4), st.binary(min_size=4, max_size=4).map(lambda b: "\\x" + b.hex())),
    (SqlType("varbinary", 20), st.binary(max_size=20).map(lambda b: "\\x" + b.hex())),
    (SqlType("varbinary", -1), st.binary(max_size=20).map(lambda b: "\\x" + (b * 999).hex())),
    (SqlType("image"), st.binary(max_size=20).map(lambda b: "\\x" + b.hex())),
    (SqlType("date"), st.dates().map(dt.date.isoformat)),
    (SqlType("time", scale=0), _clock(0)),
    (SqlType("time", scale=3), _clock(3)),
    (SqlType("time", scale=6), _clock(6)),
    (SqlType("time", scale=7), _integers(0, TICKS_PER_DAY - 1)),
    (SqlType("datetime"), _thirds()),
    (SqlType("smalldatetime"), _minutes()),
    (SqlType("datetime2", scale=0), _stamps(0)),
    (SqlType("datetime2", scale=4), _stamps(4)),
    (SqlType("datetime2", scale=6), _stamps(6)),
    (SqlType("datetime2", scale=7), _integers(0, _LAST_TICK)),
    (
        SqlType("datetimeoffset", scale=7),
        st.tuples(st.integers(0, _LAST_TICK), st.integers(-840, 840)).map(
            lambda pair: f"({pair[0]},{pair[1]})"
        ),
    ),
    (SqlType("uniqueidentifier"), st.uuids().map(str)),
]
IDS = [str(sql_type) for sql_type, _ in DOMAINS]


def _same(found: str | None, expected: str | None, sql_type: SqlType) -> bool:
    """Whether two texts are of the same value of a type."""
    if found is None or expected is None:
        return found is expected
    if sql_type.name in ("float", "real", "money", "smallmoney", "decimal", "numeric"):
        both = Decimal(found), Decimal(expected)
        return (both[0] == both[1] and found.startswith("-0") == expected.startswith("-0")) or (
            both == (0, 0) and sql_type.name not in ("float", "real")
        )
    if sql_type.name in ("time", "datetime", "datetime2", "smalldatetime") and ":" in expected:
        return parse_temporal(found) == parse_temporal(expected)
    return found == expected


@pytest.mark.parametrize(("sql_type", "domain"), DOMAINS, ids=IDS)
def test_a_row_sent_reads_back(sql_type: SqlType, domain: st.SearchStrategy[str]) -> None:
    @settings(max_examples=12)
    @given(st.lists(st.none() | domain, min_size=1, max_size=8))
    def check(values: list[str | None]) -> None:
        cells = [None if value is None else binary_of(value, sql_type) for value in values]
        data = encode_rows([sql_type], [oid_of(sql_type)], [cells])
        kind, _ = read_type_info(type_info(sql_type), 0)
        at = 0
        for value in values:
            assert data[at] == 0xD1
            raw, at = read_raw(kind, data, at + 1)
            assert _same(text_of(kind, raw, sql_type), value, sql_type)
        assert at == len(data)

    check()


@pytest.mark.parametrize(("sql_type", "domain"), DOMAINS, ids=IDS)
def test_one_value_is_encoded_like_a_row(sql_type: SqlType, domain: st.SearchStrategy[str]) -> None:
    @settings(max_examples=4)
    @given(st.none() | domain)
    def check(value: str | None) -> None:
        cell = None if value is None else binary_of(value, sql_type)
        row = encode_rows([sql_type], [oid_of(sql_type)], [[cell]])
        assert b"\xd1" + scalar(sql_type, value) == row

    check()


def _copied(data: bytes) -> list[list[bytes | None]]:
    """Rows of a binary COPY, as PostgreSQL's documentation describes it."""
    assert data.startswith(COPY_HEADER)
    assert data.endswith(COPY_TRAILER)
    at, rows = len(COPY_HEADER), []
    while at < len(data) - 2:
        (count,) = struct.unpack_from(">h", data, at)
        at, row = at + 2, []
        for _ in range(count):
            (size,) = struct.unpack_from(">i", data, at)
            at += 4
            row.append(None if size < 0 else data[at : at + size])
            at += max(size, 0)
        rows.append(row)
    return rows


_LOADABLE = [
    (kind, domain) for kind, domain in DOMAINS if kind.name not in ("text", "ntext", "image")
]


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[SqlType], list[list[str | None]]]:
    chosen = draw(st.lists(st.sampled_from(_LOADABLE), min_size=1, max_size=12))
    row = st.tuples(*(st.none() | domain for _, domain in chosen)).map(list)
    return [kind for kind, _ in chosen], draw(st.lists(row, max_size=6))


def _with_null_bitmap(types: list[SqlType], row: list[str | None]) -> bytes:
    bits = sum(1 << index for index, value in enumerate(row) if value is None)
    present = [scalar(k, v) for k, v in zip(types, row, strict=True) if v is not None]
    return b"\xd2" + bits.to_bytes((len(row) + 7) // 8, "little") + b"".join(present)


def _with_marks(types: list[SqlType], row: list[str | None]) -> bytes:
    return b"\xd1" + b"".join(scalar(k, v) for k, v in zip(types, row, strict=True))


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    return iter([data[at : at + size] for at in range(0, len(data), size)])


@pytest.mark.parametrize("encoded", [_with_marks, _with_null_bitmap], ids=["ROW", "NBCROW"])
@pytest.mark.parametrize("end", [b"\xfd" + bytes(12), b""], ids=["DONE", "no DONE"])
def test_a_bulk_load_is_copied_exactly(
    encoded: Callable[[list[SqlType], list[str | None]], bytes], end: bytes
) -> None:
    @settings(max_examples=40, deadline=None)
    @given(_tables(), st.integers(1, 5000))
    def check(table: tuple[list[SqlType], list[list[str | None]]], size: int) -> None:
        types, rows = table
        columns = [ResultColumn(f"c{index}", kind) for index, kind in enumerate(types)]
        payload = column_metadata(columns) + b"".join(encoded(types, row) for row in rows) + end
        copied = _copied(b"".join(copy_stream(_pieces(payload, size), columns)))
        expected = [
            [None if v is None else binary_of(v, k) for k, v in zip(types, row, strict=True)]
            for row in rows
        ]
        assert _numbers(copied, types) == _numbers(expected, types)

    check()


def _numbers(rows: list[list[bytes | None]], types: list[SqlType]) -> list[list[object]]:
    """-0.0 and trailing zeros of a numeric apart, equal values have equal bytes."""
    return [
        [
            cell if cell is None or kind.name not in ("decimal", "numeric", "money", "smallmoney")
            else _plain(cell)
            for kind, cell in zip(types, row, strict=True)
        ]
        for row in rows
    ]  # fmt: skip


def _plain(cell: bytes) -> tuple[int, ...]:
    count, weight, sign, _scale, *digits = struct.unpack(f">{len(cell) // 2}h", cell)
    return (weight, sign, *digits) if count else ()


def test_a_value_larger_than_the_block_arrives() -> None:
    columns = [ResultColumn("v", SqlType("nvarchar", -1)), ResultColumn("n", SqlType("int"))]
    text = "äö😀" * 300_000
    row = b"\xd1" + scalar(columns[0].type, text) + scalar(columns[1].type, "7")
    payload = column_metadata(columns) + row * 2 + b"\xfd" + bytes(12)
    copied = _copied(b"".join(copy_stream(_pieces(payload, 4088), columns)))
    assert copied == [[text.encode(), b"\0\0\0\x07"]] * 2


@pytest.mark.parametrize(
    ("wire", "target", "value", "expected"),
    [
        ("int", SqlType("bigint"), "7", struct.pack(">q", 7)),
        ("bigint", SqlType("int"), "7", struct.pack(">i", 7)),
        ("float", SqlType("int"), "7.0", struct.pack(">i", 7)),
        ("int", SqlType("float"), "7", struct.pack(">d", 7)),
        ("datetime", SqlType("date"), "2020-02-29 13:00", struct.pack(">i", 7364)),
        ("date", SqlType("datetime2", scale=7), "0001-01-02", struct.pack(">q", TICKS_PER_DAY)),
        (
            "datetime",
            SqlType("smalldatetime"),
            "2000-01-01 00:00:31",
            struct.pack(">q", 60_000_000),
        ),
    ],
)
def test_a_load_converts_between_types(
    wire: str, target: SqlType, value: str, expected: bytes
) -> None:
    sent = ResultColumn("c", SqlType(wire))
    payload = column_metadata([sent]) + b"\xd1" + scalar(sent.type, value)
    stream = copy_stream([payload], [ResultColumn("c", target)])
    assert _copied(b"".join(stream)) == [[expected]]


def test_text_goes_to_the_code_page_of_varchar() -> None:
    sent, target = SqlType("nvarchar", 20), ResultColumn("c", SqlType("varchar", 20))
    payload = column_metadata([ResultColumn("c", sent)]) + b"\xd1" + scalar(sent, "é€ Ω")
    assert _copied(b"".join(copy_stream([payload], [target]))) == [["é€ ?".encode()]]


@pytest.mark.parametrize(
    ("sent", "target", "value", "number"),
    [
        (SqlType("nvarchar", 20), SqlType("nvarchar", 3), "four", 4815),
        (SqlType("nvarchar", 20), SqlType("nvarchar", 3), "ab😀", 4815),
        (SqlType("varbinary", 20), SqlType("varbinary", 1), "\\x0102", 4815),
        (SqlType("bigint"), SqlType("int"), str(2**31), 4867),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    sent: SqlType, target: SqlType, value: str, number: int
) -> None:
    payload = column_metadata([ResultColumn("c", sent)]) + b"\xd1" + scalar(sent, value)
    with pytest.raises(SqlError) as caught:
        list(copy_stream([payload], [ResultColumn("c", target)]))
    assert caught.value.number == number


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xd1",
        column_metadata([ResultColumn("c", SqlType("int"))]) + b"\xd1\x04\x01",
        column_metadata([ResultColumn("c", SqlType("int"))]) + b"\x99",
        column_metadata([ResultColumn("c", SqlType("int"))] * 2) + b"\xd1\x00\x00",
    ],
    ids=["nothing", "no metadata", "half a row", "unknown token", "one column too many"],
)
def test_a_broken_load_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(copy_stream([payload], [ResultColumn("c", SqlType("int"))]))


def test_rows_wider_than_the_matrix_are_sent_in_pieces() -> None:
    kind = SqlType("varbinary", -1)
    cells = [bytes([index]) * (1 << 20) for index in range(40)]
    data = encode_rows([kind], [17], [cells])
    wire, _ = read_type_info(type_info(kind), 0)
    at = 0
    for cell in cells:
        raw, at = read_raw(wire, data, at + 1)
        assert raw == cell


def test_uuid_has_its_first_groups_reversed() -> None:
    value = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert scalar(SqlType("uniqueidentifier"), str(value)) == b"\x10" + value.bytes_le
