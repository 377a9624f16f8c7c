"""Columns of PostgreSQL's binary values to arrays of numbers, without a step per value."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import numpy.typing as npt

from tableferry_local.sqlserver.types.sqltype import TICKS_PER_DAY

Cells = Sequence[bytes | None]
Ints = npt.NDArray[np.int64]

BOOL, INT8, INT2, INT4, OID, FLOAT4, FLOAT8, NUMERIC = 16, 20, 21, 23, 26, 700, 701, 1700
BYTEA, UUID, DATE, TIME, TIMESTAMP, TIMESTAMPTZ = 17, 2950, 1082, 1083, 1114, 1184

INTEGERS = {
    BOOL: (">i1", 1),
    INT2: (">i2", 2),
    INT4: (">i4", 4),
    INT8: (">i8", 8),
    OID: (">u4", 4),
}
FLOATS = {FLOAT4: (">f4", 4), FLOAT8: (">f8", 8)}
_NUMBERS = INTEGERS | FLOATS

# Days from 0001-01-01 to 2000-01-01, where PostgreSQL's dates begin.
DAYS_TO_2000 = 730_119
_TICKS_TO_2000 = DAYS_TO_2000 * TICKS_PER_DAY
_EXACT = Context(prec=80)


def matrix(cells: Cells, width: int) -> npt.NDArray[np.uint8]:
    """Cells of a fixed width as rows of bytes; NULL is zeros."""
    zero = bytes(width)
    joined = b"".join(cells if None not in cells else [cell or zero for cell in cells])  # type: ignore[arg-type]
    return np.frombuffer(joined, np.uint8).reshape(len(cells), width)


def _array(cells: Cells, dtype: str, width: int) -> npt.NDArray[np.generic]:
    return matrix(cells, width).reshape(-1).view(dtype)


def integers(cells: Cells, oid: int) -> Ints:
    """Whole numbers, from any of PostgreSQL's number types; NULL is 0."""
    if oid in INTEGERS:
        return _array(cells, *INTEGERS[oid]).astype(np.int64)
    return np.array([int(_decimal(cell, oid)) for cell in cells], np.int64)


def floats(cells: Cells, oid: int) -> npt.NDArray[np.float64]:
    """Floating-point numbers, from any number type; NULL is 0."""
    if oid in _NUMBERS:
        return _array(cells, *_NUMBERS[oid]).astype(np.float64)
    return np.array([float(_decimal(cell, oid)) for cell in cells], np.float64)


def units(cells: Cells, oid: int, scale: int, precision: int) -> Ints | list[int]:
    """Numbers as whole multiples of 10^-scale; an array where 18 digits are enough; NULL is 0."""
    if oid == NUMERIC:
        return _numeric_units(cells, scale, precision)
    if oid in INTEGERS and precision <= 18:
        return integers(cells, oid) * 10**scale
    step = Decimal(1).scaleb(-scale)
    exact = [_decimal(cell, oid).quantize(step, ROUND_HALF_UP, _EXACT) for cell in cells]
    return [int(value.scaleb(scale, _EXACT)) for value in exact]


def _numeric_units(cells: Cells, scale: int, precision: int) -> Ints | list[int]:
    """PostgreSQL's numeric is base 10000: digit i counts 10000^(weight - i).

    Four digits at a time are summed up as one int64, from the lowest digit that the scale needs.
    """
    filled = cells if None not in cells else [cell or bytes(8) for cell in cells]
    words = np.frombuffer(b"".join(filled), ">i2").astype(np.int64)  # type: ignore[arg-type]
    sizes = np.fromiter(map(len, filled), np.int64, len(filled)) // 2  # type: ignore[arg-type]
    starts = np.cumsum(sizes) - sizes
    count, weight, sign = words[starts], words[starts + 1], words[starts + 2]
    lowest = -(-scale // 4)
    padding = 4 * lowest - scale
    parts = np.zeros((4, len(filled)), np.int64)
    for index in range(int(count.max(initial=0))):
        rows = np.flatnonzero(count > index)
        place = weight[rows] - index + lowest
        if place.min() < 0 or place.max() > 15:
            return units([_numeric_text(cell) for cell in cells], 25, scale, precision)
        parts[place // 4, rows] += words[starts[rows] + 4 + index] * 10 ** (place % 4 * 4)
    negative = sign == 0x4000
    if precision <= 18:
        low = parts[0]
        if padding and np.any(low % 10**padding):
            return units([_numeric_text(cell) for cell in cells], 25, scale, precision)
        total = low // 10**padding + parts[1] * 10 ** (16 - padding)
        return np.where(negative, -total, total)
    low, high = parts[0].tolist(), zip(*parts[1:].tolist(), strict=True)
    divisor, result = 10**padding, []
    for first, (second, third, fourth), minus in zip(low, high, negative.tolist(), strict=True):
        value = first + second * 10**16 + third * 10**32 + fourth * 10**48
        value = (value + divisor // 2) // divisor
        result.append(-value if minus else value)
    return result


def _numeric_text(cell: bytes | None) -> bytes | None:
    return None if cell is None else str(numeric_value(cell)).encode()


def numeric_value(cell: bytes) -> Decimal:
    """One numeric."""
    words = np.frombuffer(cell, ">i2").tolist()
    count, weight, sign, scale = words[:4]
    if sign not in (0, 0x4000):
        return Decimal("NaN")
    value = Decimal(0)
    for index, digit in enumerate(words[4 : 4 + count]):
        value = _EXACT.add(value, Decimal(digit).scaleb(4 * (weight - index), _EXACT))
    value = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    return -value if sign else value


def _decimal(cell: bytes | None, oid: int) -> Decimal:
    if cell is None:
        return Decimal(0)
    if oid == NUMERIC:
        return numeric_value(cell)
    if oid in _NUMBERS:
        dtype, width = _NUMBERS[oid]
        number = _array([cell], dtype, width).tolist()[0]
        return Decimal(number) if oid in INTEGERS else Decimal(repr(number))
    return Decimal(cell.decode())


def days(cells: Cells, oid: int) -> Ints:
    """Days since 0001-01-01."""
    if oid == DATE:
        return _array(cells, ">i4", 4).astype(np.int64) + DAYS_TO_2000
    return ticks(cells, oid) // TICKS_PER_DAY


def ticks(cells: Cells, oid: int) -> Ints:
    """Points in time as 100 ns since 0001-01-01. A bigint is that already."""
    if oid == DATE:
        return days(cells, oid) * TICKS_PER_DAY
    values = _array(cells, ">i8", 8).astype(np.int64)
    return values if oid == INT8 else values * 10 + _TICKS_TO_2000


def times(cells: Cells, oid: int) -> Ints:
    """Times of day as 100 ns since midnight. A bigint is that already."""
    if oid in (TIMESTAMP, TIMESTAMPTZ):
        return ticks(cells, oid) % TICKS_PER_DAY
    values = _array(cells, ">i8", 8).astype(np.int64)
    return values if oid == INT8 else values * 10


def offsets(cells: Cells, oid: int) -> tuple[Ints, Ints]:
    """Points in time with offset, as UTC ticks since 0001-01-01 and minutes."""
    if oid in (TIMESTAMP, TIMESTAMPTZ, DATE, INT8):
        utc = ticks(cells, oid)
        return utc, np.zeros_like(utc)
    # A composite (bigint, smallint): a count of fields, then type, length and value of each.
    raw = matrix(cells, 30)
    utc = np.ascontiguousarray(raw[:, 12:20]).view(">i8").reshape(-1).astype(np.int64)
    minutes = np.ascontiguousarray(raw[:, 28:30]).view(">i2").reshape(-1).astype(np.int64)
    return utc, minutes
