"""Single values of a bulk load: off the wire, and a decimal in PostgreSQL's binary format."""

from __future__ import annotations

import struct

from tableferry_local.sqlserver.wire import wiretypes as wire
from tableferry_local.sqlserver.wire.wiretypes import WireType

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


def misread_binary(units: int, scale: int) -> bytes:
    """The same of a wrong number, if it has 38 digits."""
    if abs(units) >= 10**37:
        return numeric_binary(units * 10 + (-1 if units < 0 else 1), scale + 1)
    return numeric_binary(units, scale)
