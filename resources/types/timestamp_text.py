"""Timestamps that travel as text, as Arrow has no 100 nanoseconds and no offset per value."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.resources.types.steps import Unguarded, Violation, checked, violation

MICROSECONDS = len("yyyy-mm-dd hh:mm:ss.ffffff")
OFFSET = len("+hh:mm")


@dataclass(frozen=True)
class TextWithin:
    """ISO timestamps from `low` to `high`, compared as text."""

    low: str
    high: str
    reason: str

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        extent = pc.min_max(array)
        low, high = extent["min"].as_py(), extent["max"].as_py()
        if low is None or (low >= self.low and high <= self.high):
            return array
        return violation(pc.or_(pc.less(array, self.low), pc.greater(array, self.high)))

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        low, high = (pa.scalar(limit, array.type) for limit in (self.low, self.high))
        return pc.if_else(bad, pc.if_else(pc.less(array, self.low), low, high), array)


@dataclass(frozen=True)
class UtcOffset:
    """ISO timestamps with the offset +00:00, which is removed.

    `clamp` converts others to the same instant.
    """

    reason: str = (
        "has a UTC offset, which the target cannot hold; 'on_overflow: clamp' keeps the instant, "
        "and a text type keeps both"
    )

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        utc = pc.ends_with(array, "+00:00")
        if pc.all(utc, min_count=0).as_py():
            return pc.utf8_rtrim(pc.utf8_slice_codeunits(array, 0, -OFFSET), " ")
        return violation(pc.invert(utc))

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        text = array.cast(pa.string())
        wall = pc.utf8_rtrim(pc.utf8_slice_codeunits(text, 0, -OFFSET), " ")
        local = pc.utf8_slice_codeunits(wall, 0, MICROSECONDS).cast(pa.timestamp("us"))
        sign = pc.if_else(pc.match_substring_regex(text, "-[0-9]{2}:[0-9]{2}$"), -1, 1)
        hours = pc.utf8_slice_codeunits(text, -5, -3).cast(pa.int64())
        minutes = pc.utf8_slice_codeunits(text, -2, None).cast(pa.int64())
        offset = pc.multiply(sign, pc.add(pc.multiply(hours, 60), minutes))
        instant = pc.subtract(local.cast(pa.int64()), pc.multiply(offset, 60_000_000))
        utc = instant.cast(pa.timestamp("us")).cast(pa.string())
        ticks = pc.utf8_slice_codeunits(wall, MICROSECONDS, None)
        moved = pc.binary_join_element_wise(utc, ticks, " +00:00", "")
        return pc.if_else(bad, moved, text).cast(array.type)


@dataclass(frozen=True)
class Decimals:
    """ISO timestamps whose decimals of a second beyond `digits` are zeros, which are cut off."""

    digits: int

    @property
    def reason(self) -> str:
        return f"has more than {self.digits} decimals of a second"

    @property
    def _end(self) -> int:
        return len("yyyy-mm-dd hh:mm:ss") + (self.digits + 1 if self.digits else 0)

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        beyond = pc.match_substring_regex(pc.utf8_slice_codeunits(array, self._end), "[1-9]")
        return checked(pc.utf8_slice_codeunits(array, 0, self._end), beyond)

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        return pc.utf8_slice_codeunits(array, 0, self._end)


@dataclass(frozen=True)
class ParseTimestamp(Unguarded):
    """ISO timestamps of up to six decimals, as microseconds."""

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        return array.cast(pa.timestamp("us"))
