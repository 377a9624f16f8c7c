"""Single values: from the wire to text, from text to PostgreSQL's binary format.

The text of a value, as PostgreSQL's input function of its storage type reads it, is the pivot
between wire types and declared types that differ. Whole rows go other, faster ways.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from decimal import Decimal
from typing import Any

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.types.sqltype import (
    CODE_PAGE,
    TICKS_PER_DAY,
    TICKS_PER_SECOND,
    SqlType,
    storage,
)
from tableferry_local.sqlserver.wire import wiretypes as wire
from tableferry_local.sqlserver.wire.numbers import DAYS_TO_2000
from tableferry_local.sqlserver.wire.packets import ProtocolError
from tableferry_local.sqlserver.wire.wiretypes import WireType, time_length, time_scale

_DAYS_TO_1900 = 693_595
_MINUTE = 60 * TICKS_PER_SECOND
_PLP_NULL = 0xFFFF_FFFF_FFFF_FFFF


def read_plp(data: bytes, at: int) -> tuple[bytes | None, int]:
    """A value in chunks; IndexError or struct.error if it is not all there yet."""
    (total,) = struct.unpack_from("<Q", data, at)
    at += 8
    if total == _PLP_NULL:
        return None, at
    chunks: list[bytes] = []
    while True:
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
        if size == 0:
            return b"".join(chunks), at
        if at + size > len(data):
            raise IndexError
        chunks.append(data[at : at + size])
        at += size


def read_raw(kind: WireType, data: bytes, at: int) -> tuple[bytes | None, int]:
    """A value's bytes as they are; IndexError or struct.error if it is not all there yet."""
    if kind.plp:
        return read_plp(data, at)
    if kind.fixed:
        size = kind.length
    elif kind.long:
        pointer = data[at]
        if pointer == 0:
            return None, at + 1
        at += 1 + pointer + 8
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
    elif kind.code in (
        wire.BIGVARBINARY,
        wire.BIGBINARY,
        wire.BIGVARCHAR,
        wire.BIGCHAR,
        wire.NVARCHAR,
        wire.NCHAR,
    ):
        if kind.short:
            size = data[at]
            at += 1
            if size == 0:
                return None, at
        else:
            (size,) = struct.unpack_from("<H", data, at)
            at += 2
            if size == 0xFFFF:
                return None, at
    else:
        size = data[at]
        at += 1
        if size == 0:
            return None, at
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def text_of(kind: WireType, raw: bytes | None, target: SqlType | None = None) -> str | None:
    """A value off the wire as text for the storage type of `target`.

    Args:
        kind: its type on the wire.
        raw: its bytes, from `read_raw`.
        target: the declared type that it goes to; the wire type's own one by default.
    """
    if raw is None or kind.code == wire.NULLTYPE:
        return None
    value, target = _value(kind, raw), target or kind.sql_type
    name = target.name
    if name in _TEMPORAL and isinstance(value, str):
        value = parse_temporal(value)
    if isinstance(value, tuple):
        return _temporal_text(value, target)
    if target.is_binary:
        return "\\x" + (value.encode(CODE_PAGE) if isinstance(value, str) else raw).hex()
    if isinstance(value, bytes):
        if name == "uniqueidentifier":
            return str(uuid.UUID(bytes_le=value))
        return value.decode("utf-16-le" if target.is_unicode else CODE_PAGE)
    if name == "bit":
        return _bit(value) if isinstance(value, str) else str(int(value != 0))
    if name in _INTEGERS and not isinstance(value, str):
        return str(int(value))
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


_TEMPORAL = ("date", "time", "datetime", "smalldatetime", "datetime2", "datetimeoffset")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def _bit(text: str) -> str:
    return {"true": "1", "false": "0"}.get(text.strip().lower(), text.strip())


def _value(kind: WireType, raw: bytes) -> Any:
    """bool, int, float, Decimal, str, bytes, UUID, or (days or None, ticks, minutes)."""
    code = kind.code
    if code == wire.INTN:
        return int.from_bytes(raw, "little", signed=len(raw) > 1)
    if code == wire.BITN:
        return raw != b"\0"
    if code == wire.FLTN:
        return float(struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0])
    if code in (wire.DECIMALN, wire.NUMERICN):
        magnitude = int.from_bytes(raw[1:], "little")
        return _decimal(magnitude if raw[0] else -magnitude, kind.scale)
    if code == wire.MONEYN:
        units = int.from_bytes(raw[4:] + raw[:4] if len(raw) == 8 else raw, "little", signed=True)
        return _decimal(units, 4)
    if code == wire.GUID:
        return uuid.UUID(bytes_le=raw)
    if kind.sql_type.is_text:
        return raw.decode(kind.encoding).removeprefix("\ufeff" if kind.code == wire.XML else "")
    if kind.sql_type.is_binary:
        return raw
    return _temporal(kind, raw)


def _decimal(units: int, scale: int) -> Decimal:
    """units * 10^-scale, exactly: arithmetic would round to 28 digits."""
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


def _temporal(kind: WireType, raw: bytes) -> tuple[int | None, int, int | None]:
    code = kind.code
    if code == wire.DATETIMN:
        day, part = struct.unpack("<iI" if len(raw) == 8 else "<HH", raw)
        # The microsecond nearest to part / 300 s; smalldatetime counts minutes.
        ticks = (part * 20_000 + 3) // 6 * 10 if len(raw) == 8 else part * 600_000_000
        return day + _DAYS_TO_1900, ticks, None
    if code == wire.DATEN:
        return int.from_bytes(raw, "little"), 0, None
    unit = 10 ** (7 - kind.scale)
    if code == wire.TIMEN:
        return None, int.from_bytes(raw, "little") * unit, None
    size = time_length(kind.scale)
    ticks = int.from_bytes(raw[:size], "little") * unit
    day = int.from_bytes(raw[size : size + 3], "little")
    if code == wire.DATETIME2N:
        return day, ticks, None
    if code == wire.DATETIMEOFFSETN:
        return day, ticks, int.from_bytes(raw[size + 3 :], "little", signed=True)
    raise ProtocolError(f"type 0x{code:02X} has no values here")


def _temporal_text(value: tuple[int | None, int, int | None], target: SqlType) -> str:
    days, ticks, minutes = value
    name, scale = target.name, time_scale(target)
    day = _DAYS_TO_1900 if days is None else days
    if name == "datetimeoffset":
        return f"({day * TICKS_PER_DAY + ticks},{minutes or 0})"
    if minutes:
        total = day * TICKS_PER_DAY + ticks + minutes * 60 * TICKS_PER_SECOND
        day, ticks = divmod(total, TICKS_PER_DAY)
    if name == "smalldatetime":
        day, ticks = divmod(day * TICKS_PER_DAY + ticks + _MINUTE // 2, TICKS_PER_DAY)
        ticks -= ticks % _MINUTE
    if scale == 7 and name == "time":
        return str(ticks)
    if scale == 7 and name == "datetime2":
        return str(day * TICKS_PER_DAY + ticks)
    clock = _clock(ticks)
    if name == "time":
        return clock
    date = dt.date.fromordinal(day + 1).isoformat()
    if name == "date":
        return date
    return clock if days is None and target.is_text else f"{date} {clock}"


def _clock(ticks: int) -> str:
    seconds, fraction = divmod(ticks, TICKS_PER_SECOND)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:07}"
    return text[:-1] if text.endswith("0") else text


def parse_temporal(text: str) -> tuple[int | None, int, int | None]:
    """An ISO date, time, or both, with up to seven digits and an offset, as a client sends it.

    Raises:
        SqlError: 241, it is none of them.
    """
    try:
        body, minutes = _split_offset(text.strip().replace("T", " "))
        date, _, clock = body.partition(" ")
        if ":" in date:
            date, clock = "", date
        days = dt.date.fromisoformat(date).toordinal() - 1 if date else None
        hours, minute, seconds = ([*clock.split(":"), "0", "0"] if clock else ["0"] * 3)[:3]
        whole, _, fraction = seconds.partition(".")
        total = int(hours) * 3600 + int(minute) * 60 + int(whole)
        ticks = total * TICKS_PER_SECOND + int(fraction[:7].ljust(7, "0") or 0)
    except ValueError as error:
        raise SqlError(
            241, 16, "Conversion failed when converting date and/or time from character string."
        ) from error
    if minutes is not None and days is not None:
        days, ticks = divmod(
            days * TICKS_PER_DAY + ticks - minutes * 60 * TICKS_PER_SECOND, TICKS_PER_DAY
        )
    return days, ticks, minutes


def _split_offset(text: str) -> tuple[str, int | None]:
    if text.endswith("Z"):
        return text[:-1].rstrip(), 0
    if len(text) > 6 and text[-6] in "+-" and text[-3] == ":":
        minutes = int(text[-5:-3]) * 60 + int(text[-2:])
        return text[:-6].rstrip(), -minutes if text[-6] == "-" else minutes
    return text, None


def numeric_binary(units: int, scale: int) -> bytes:
    """PostgreSQL's binary numeric of units * 10^-scale."""
    sign = 0x4000 if units < 0 else 0
    padding = -scale % 4
    rest = abs(units) * 10**padding
    weight = -((scale + padding) // 4) - 1
    digits: list[int] = []
    while rest:
        rest, digit = divmod(rest, 10_000)
        if digits or digit:
            digits.append(digit)
        weight += 1
    digits.reverse()
    return struct.pack(f">HhHH{len(digits)}H", len(digits), weight, sign, scale, *digits)


def binary_of(text: str, target: SqlType) -> bytes:
    """Text of a storage type as the same type's binary format.

    Raises:
        ValueError: the text is not of that type.
    """
    kind = storage(target)
    if kind in ("smallint", "integer", "bigint"):
        size = {"smallint": 2, "integer": 4, "bigint": 8}[kind]
        return int(text).to_bytes(size, "big", signed=True)
    if kind.startswith("numeric"):
        value = Decimal(text.strip())
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise ValueError(f"{text!r} is not a number")
        units = int("".join(map(str, digits)) or 0) * 10 ** max(exponent, 0)
        return numeric_binary(-units if sign else units, max(-exponent, 0))
    if kind in ("real", "double precision"):
        return struct.pack(">f" if kind == "real" else ">d", float(text))
    if kind == "bytea":
        return bytes.fromhex(text[2:])
    if kind == "uuid":
        return uuid.UUID(text).bytes
    if kind == "sys.datetimeoffset":
        utc, minutes = map(int, text.strip("()").split(","))
        return struct.pack(">iIiqIih", 2, 20, 8, utc, 21, 2, minutes)
    if kind == "text":
        return text.encode()
    days, ticks, _ = parse_temporal(text)
    days = _DAYS_TO_1900 if days is None else days
    if kind == "date":
        return struct.pack(">i", days - DAYS_TO_2000)
    if kind.startswith("time("):
        return struct.pack(">q", (ticks + 5) // 10)
    return struct.pack(">q", ((days - DAYS_TO_2000) * TICKS_PER_DAY + ticks + 5) // 10)
