"""Rows out and rows in, against each other: the two directions share no code but the type names."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.types.sqltype import TICKS_PER_DAY, ResultColumn, SqlType
from tableferry_local.sqlserver.wire.bulk import COPY_HEADER, COPY_TRAILER, copy_stream
from tableferry_local.sqlserver.wire.encode import encode_rows
from tableferry_local.sqlserver.wire.numbers import (
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    NUMERIC,
    TIME,
    TIMESTAMP,
    UUID,
)
from tableferry_local.sqlserver.wire.packets import ProtocolError
from tableferry_local.sqlserver.wire.tokens import column_metadata
from tableferry_local.sqlserver.wire.values import numeric_binary, read_raw
from tableferry_local.sqlserver.wire.wiretypes import read_type_info, type_info

TEXT, COMPOSITE = 25, 0
_DAY = 86_400_000_000
_TO_2000 = 730_119
_LAST_TICK = 3_652_059 * TICKS_PER_DAY - 1

Cells = st.SearchStrategy[bytes]


def _packed(code: str, low: int, high: int, step: int = 1) -> Cells:
    """Whole multiples of a step, as PostgreSQL's binary format has them."""
    return st.integers(low // step, high // step).map(lambda n: struct.pack(code, n * step))


def _decimals(precision: int, scale: int) -> Cells:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda units: numeric_binary(units, scale))


def _money(bits: int) -> Cells:
    return st.integers(-(2**bits), 2**bits - 1).map(lambda units: numeric_binary(units, 4))


def _texts(*, unicode: bool, width: int = 0, times: int = 1) -> Cells:
    alphabet = st.characters(codec="utf-8", exclude_characters="\0")
    letters = alphabet if unicode else st.sampled_from("aZ ~é€ß'\t\n\\")
    return st.text(letters, max_size=20).map(
        lambda text: (text * times + " " * (width - len(text.encode("utf-16-le")) // 2)).encode()
    )


def _stamps(scale: int, since: int = -_TO_2000) -> Cells:
    return _packed(">q", since * _DAY, (3_652_059 - _TO_2000) * _DAY - 1, 10 ** (6 - scale))


def _thirds() -> Cells:
    """The values of datetime: every 1/300 s, named by the nearest microsecond."""
    days = st.integers(639_905 - _TO_2000, 3_652_058 - _TO_2000)
    return st.tuples(days, st.integers(0, 25_919_999)).map(
        lambda p: struct.pack(">q", p[0] * _DAY + (p[1] * 20_000 + 3) // 6)
    )


# Each type with the PostgreSQL type that holds it, and values over its whole domain.
DOMAINS: list[tuple[SqlType, int, Cells]] = [
    (SqlType("tinyint"), INT2, _packed(">h", 0, 255)),
    (SqlType("smallint"), INT2, _packed(">h", -(2**15), 2**15 - 1)),
    (SqlType("int"), INT4, _packed(">i", -(2**31), 2**31 - 1)),
    (SqlType("bigint"), INT8, _packed(">q", -(2**63), 2**63 - 1)),
    (SqlType("bit"), INT2, _packed(">h", 0, 1)),
    (SqlType("decimal", precision=5, scale=0), NUMERIC, _decimals(5, 0)),
    (SqlType("decimal", precision=10, scale=2), NUMERIC, _decimals(10, 2)),
    (SqlType("decimal", precision=18, scale=18), NUMERIC, _decimals(18, 18)),
    (SqlType("numeric", precision=19, scale=7), NUMERIC, _decimals(19, 7)),
    (SqlType("decimal", precision=38, scale=0), NUMERIC, _decimals(38, 0)),
    (SqlType("decimal", precision=38, scale=10), NUMERIC, _decimals(38, 10)),
    (SqlType("decimal", precision=38, scale=38), NUMERIC, _decimals(38, 38)),
    (SqlType("money"), NUMERIC, _money(63)),
    (SqlType("smallmoney"), NUMERIC, _money(31)),
    (
        SqlType("float"),
        FLOAT8,
        st.floats(allow_nan=False, allow_infinity=False).map(lambda v: struct.pack(">d", v)),
    ),
    (
        SqlType("real"),
        FLOAT4,
        st.floats(width=32, allow_nan=False, allow_infinity=False).map(
            lambda v: struct.pack(">f", v)
        ),
    ),
    (SqlType("char", 25), TEXT, _texts(unicode=False, width=25)),
    (SqlType("varchar", 20), TEXT, _texts(unicode=False)),
    (SqlType("varchar", -1), TEXT, _texts(unicode=False, times=500)),
    (SqlType("nchar", 50), TEXT, _texts(unicode=True, width=50)),
    (SqlType("nvarchar", 40), TEXT, _texts(unicode=True)),
    (SqlType("nvarchar", -1), TEXT, _texts(unicode=True, times=500)),
    (SqlType("xml"), TEXT, _texts(unicode=True).map(lambda text: b"<a>" + text + b"</a>")),
    (SqlType("binary", 4), BYTEA, st.binary(min_size=4, max_size=4)),
    (SqlType("varbinary", 20), BYTEA, st.binary(max_size=20)),
    (SqlType("varbinary", -1), BYTEA, st.binary(max_size=20).map(lambda value: value * 999)),
    (SqlType("date"), DATE, _packed(">i", -_TO_2000, 3_652_058 - _TO_2000)),
    (SqlType("time", scale=0), TIME, _packed(">q", 0, _DAY - 1, 10**6)),
    (SqlType("time", scale=3), TIME, _packed(">q", 0, _DAY - 1, 10**3)),
    (SqlType("time", scale=6), TIME, _packed(">q", 0, _DAY - 1)),
    (SqlType("time", scale=7), INT8, _packed(">q", 0, TICKS_PER_DAY - 1)),
    (SqlType("datetime"), TIMESTAMP, _thirds()),
    (
        SqlType("smalldatetime"),
        TIMESTAMP,
        _packed(">q", -36_524 * _DAY, 29_011 * _DAY, 60_000_000),
    ),
    (SqlType("datetime2", scale=0), TIMESTAMP, _stamps(0)),
    (SqlType("datetime2", scale=4), TIMESTAMP, _stamps(4)),
    (SqlType("datetime2", scale=6), TIMESTAMP, _stamps(6)),
    (SqlType("datetime2", scale=7), INT8, _packed(">q", 0, _LAST_TICK)),
    (
        SqlType("datetimeoffset", scale=7),
        COMPOSITE,
        st.tuples(st.integers(0, _LAST_TICK), st.integers(-840, 840)).map(
            lambda pair: struct.pack(">iIiqIih", 2, 20, 8, pair[0], 21, 2, pair[1])
        ),
    ),
    (SqlType("uniqueidentifier"), UUID, st.uuids().map(lambda value: value.bytes)),
]
OIDS = {sql_type: oid for sql_type, oid, _ in DOMAINS}


def _scalar(sql_type: SqlType, cell: bytes | None) -> bytes:
    """One value as in a row."""
    return encode_rows([sql_type], [OIDS[sql_type]], [[cell]])[1:]


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


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    return iter([data[at : at + size] for at in range(0, len(data), size)])


def _numbers(rows: list[list[bytes | None]], types: list[SqlType]) -> list[list[object]]:
    """Trailing zeros of a numeric apart, equal values have equal bytes."""
    return [
        [
            _plain(cell) if cell is not None and OIDS[kind] == NUMERIC else cell
            for kind, cell in zip(types, row, strict=True)
        ]
        for row in rows
    ]


def _plain(cell: bytes) -> tuple[int, ...]:
    count, weight, sign, _scale, *digits = struct.unpack(f">{len(cell) // 2}h", cell)
    return (weight, sign, *digits) if count else ()


@pytest.mark.parametrize(
    ("sql_type", "domain"), [(kind, cells) for kind, _, cells in DOMAINS], ids=map(str, OIDS)
)
def test_rows_sent_are_rows_loaded(sql_type: SqlType, domain: Cells) -> None:
    @settings(max_examples=12)
    @given(st.lists(st.none() | domain, min_size=1, max_size=8))
    def check(cells: list[bytes | None]) -> None:
        columns = [ResultColumn("c", sql_type)]
        payload = column_metadata(columns) + encode_rows([sql_type], [OIDS[sql_type]], [cells])
        copied = _copied(b"".join(copy_stream([payload], columns)))
        expected = [[cell] for cell in cells]
        assert _numbers(copied, [sql_type]) == _numbers(expected, [sql_type])

    check()


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[SqlType], list[list[bytes | None]]]:
    chosen = draw(st.lists(st.sampled_from(DOMAINS), min_size=1, max_size=12))
    row = st.tuples(*(st.none() | domain for _, _, domain in chosen)).map(list)
    return [kind for kind, _, _ in chosen], draw(st.lists(row, max_size=6))


def _with_null_bitmap(types: list[SqlType], row: list[bytes | None]) -> bytes:
    bits = sum(1 << index for index, value in enumerate(row) if value is None)
    present = [_scalar(k, v) for k, v in zip(types, row, strict=True) if v is not None]
    return b"\xd2" + bits.to_bytes((len(row) + 7) // 8, "little") + b"".join(present)


def _with_marks(types: list[SqlType], row: list[bytes | None]) -> bytes:
    return encode_rows(types, [OIDS[kind] for kind in types], [[cell] for cell in row])


@pytest.mark.parametrize("encoded", [_with_marks, _with_null_bitmap], ids=["ROW", "NBCROW"])
@pytest.mark.parametrize("end", [b"\xfd" + bytes(12), b""], ids=["DONE", "no DONE"])
def test_a_bulk_load_is_copied_exactly(
    encoded: Callable[[list[SqlType], list[bytes | None]], bytes], end: bytes
) -> None:
    @settings(max_examples=40, deadline=None)
    @given(_tables(), st.integers(1, 5000))
    def check(table: tuple[list[SqlType], list[list[bytes | None]]], size: int) -> None:
        types, rows = table
        columns = [ResultColumn(f"c{index}", kind) for index, kind in enumerate(types)]
        payload = column_metadata(columns) + b"".join(encoded(types, row) for row in rows) + end
        copied = _copied(b"".join(copy_stream(_pieces(payload, size), columns)))
        assert _numbers(copied, types) == _numbers(rows, types)

    check()


def test_a_value_larger_than_the_block_arrives() -> None:
    columns = [ResultColumn("v", SqlType("nvarchar", -1)), ResultColumn("n", SqlType("int"))]
    text = "äö😀" * 300_000
    row = b"\xd1" + _scalar(columns[0].type, text.encode()) + b"\x04\x07\0\0\0"
    payload = column_metadata(columns) + row * 2 + b"\xfd" + bytes(12)
    copied = _copied(b"".join(copy_stream(_pieces(payload, 4088), columns)))
    assert copied == [[text.encode(), b"\0\0\0\x07"]] * 2


def test_text_goes_to_the_code_page_of_varchar() -> None:
    sent, target = SqlType("nvarchar", 40), ResultColumn("c", SqlType("varchar", 20))
    payload = column_metadata([ResultColumn("c", sent)]) + b"\xd1" + _scalar(sent, "é€ Ω".encode())
    assert _copied(b"".join(copy_stream([payload], [target]))) == [["é€ ?".encode()]]


@pytest.mark.parametrize(
    ("sent", "target", "value", "number"),
    [
        (SqlType("nvarchar", 40), SqlType("nvarchar", 3), b"four", 4815),
        (SqlType("nvarchar", 40), SqlType("nvarchar", 3), "ab😀".encode(), 4815),
        (SqlType("varbinary", 20), SqlType("varbinary", 1), b"\1\2", 4815),
        (SqlType("bigint"), SqlType("int"), bytes(8), 4816),
        (SqlType("nvarchar", 40), SqlType("date"), b"2020-02-29", 4816),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    sent: SqlType, target: SqlType, value: bytes, number: int
) -> None:
    payload = column_metadata([ResultColumn("c", sent)]) + b"\xd1" + _scalar(sent, value)
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
    assert _scalar(SqlType("uniqueidentifier"), value.bytes) == b"\x10" + value.bytes_le
