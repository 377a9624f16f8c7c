"""Vectorised steps from the values that a source sends to those that a sink takes, with guards.

A guard costs at most one pass over a column that obeys it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

REPLACEMENT = "\ufffd"

OverflowPolicy = Literal["refuse", "null", "clamp", "text"]
Change = Literal["null", "clamp"]
CHANGES: Mapping[str, Change] = {"null": "null", "clamp": "clamp"}
"""The policies under which values that do not fit become others."""


@dataclass(frozen=True)
class Violation:
    """The rows that break a step's guard: true where they do, never null."""

    rows: pa.BooleanArray


class Step(Protocol):
    """A conversion of a column's values, which are exact or refused."""

    @property
    def reason(self) -> str:
        """Why a value is refused; completes `value x ...`."""

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        """Convert the column, or return the rows that cannot be converted exactly."""

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        """Set the violating rows to the nearest values; None if there are none."""


class Unclamped:
    """A step whose guard has no nearest value."""

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        return None


class Unguarded(Unclamped):
    """A step that converts every value."""

    reason = "cannot be converted"


def violation(rows: pa.BooleanArray) -> Violation:
    """Return a violation of the rows that are true, not NULL."""
    return Violation(pc.fill_null(rows, False))


def checked(array: pa.Array, bad: pa.BooleanArray) -> pa.Array | Violation:
    """Return the array unless any row is bad."""
    return violation(bad) if pc.any(bad).as_py() else array


def integers(array: pa.Array) -> pa.Array:
    """View dates, times and timestamps as their integers, without a copy."""
    if pa.types.is_integer(array.type):
        return array
    return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())


@dataclass(frozen=True)
class Within:
    """Integers, dates, times and timestamps from `low` to `high`, counted in their own unit."""

    low: int
    high: int
    reason: str
    wrapped: int | None = None
    """Numbers below this exceed all others: the driver's count has wrapped around."""

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        numbers = integers(array)
        extent = pc.min_max(numbers)
        low, high = extent["min"].as_py(), extent["max"].as_py()
        if low is None or (low >= self.low and high <= self.high):
            return array
        below, above = self._beyond(numbers)
        return violation(pc.or_(below, above))

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        numbers = integers(array)
        below, _ = self._beyond(numbers)
        low, high = self._limits(numbers.type)
        return pc.if_else(bad, pc.if_else(below, low, high), numbers).view(array.type)

    def _beyond(self, numbers: pa.Array) -> tuple[pa.BooleanArray, pa.BooleanArray]:
        """Which numbers are below the limits, and which above."""
        # compared as 64 bits, since a limit may lie outside of a narrower type
        wide = numbers if numbers.type == pa.uint64() else numbers.cast(pa.int64())
        low, high = self._limits(wide.type)
        below, above = pc.less(wide, low), pc.greater(wide, high)
        if self.wrapped is None:
            return below, above
        wrapped = pc.less(wide, self.wrapped)
        return pc.and_not(below, wrapped), pc.or_(above, wrapped)

    def _limits(self, type_: pa.DataType) -> list[pa.Scalar]:
        """The limits as numbers of a type; no number is beyond a limit outside of it."""
        least, greatest = integer_range(type_)
        limits = (self.low, self.high)
        return [pa.scalar(min(max(limit, least), greatest), type_) for limit in limits]


def integer_range(type_: pa.DataType) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    bits = type_.bit_width
    if pa.types.is_unsigned_integer(type_):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


@dataclass(frozen=True)
class Whole:
    """Times and timestamps that are multiples of a unit."""

    unit: int
    reason: str

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        numbers = integers(array)
        cut = pc.multiply(pc.divide(numbers, self.unit), self.unit)
        return checked(array, pc.not_equal(numbers, cut))

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        numbers = integers(array)
        cut = pc.multiply(pc.divide(numbers, self.unit), self.unit)
        # divide rounds towards zero, which is later before 1970
        earlier = pc.subtract(cut, pc.if_else(pc.less(numbers, 0), self.unit, 0))
        return pc.if_else(bad, earlier, numbers).view(array.type)


@dataclass(frozen=True)
class Finite(Unclamped):
    """Floats without NaN and the infinities."""

    reason: str = "is not a finite number, which float cannot hold in SQL Server"

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        return checked(array, pc.invert(pc.is_finite(array)))


@dataclass(frozen=True)
class Units:
    """Text of at most `units` UTF-16 code units, of which a character beyond U+FFFF takes two."""

    units: int

    @property
    def reason(self) -> str:
        return f"is longer than the {self.units} UTF-16 units of the target"

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        # no character has more UTF-16 units than UTF-8 bytes
        if (pc.max(pc.binary_length(array)).as_py() or 0) <= self.units:
            return array
        beyond = pc.count_substring_regex(array, "[\\x{10000}-\\x{10FFFF}]")
        return checked(array, pc.greater(pc.add(pc.utf8_length(array), beyond), self.units))

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        cut = pc.utf8_slice_codeunits(array, 0, self.units)
        beyond = pc.count_substring_regex(cut, "[\\x{10000}-\\x{10FFFF}]")
        if (pc.max(pc.if_else(bad, beyond, 0)).as_py() or 0) > 0:
            cut = pa.array([_cut(text, self.units) for text in cut.to_pylist()], array.type)
        return pc.if_else(bad, cut, array)


def _cut(text: str | None, units: int) -> str | None:
    return text and text.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "ignore")


@dataclass(frozen=True)
class Characters:
    """Text of at most `characters` characters."""

    characters: int

    @property
    def reason(self) -> str:
        return f"is longer than the {self.characters} characters of the target"

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        # every character has at least a byte
        if (pc.max(pc.binary_length(array)).as_py() or 0) <= self.characters:
            return array
        return checked(array, pc.greater(pc.utf8_length(array), self.characters))

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        return pc.if_else(bad, pc.utf8_slice_codeunits(array, 0, self.characters), array)


@dataclass(frozen=True)
class Utf8(Unclamped):
    """Text whose bytes are UTF-8."""

    reason: str = "holds bytes that are not UTF-8"

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            return violation(pa.array([not _is_utf8(value) for value in array]))
        return array


def _is_utf8(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True)
class WithoutNul(Unclamped):
    """Text without the NUL character."""

    reason: str = "holds a NUL character, which the target cannot"

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        return checked(array, pc.match_substring(array, "\0"))


@dataclass(frozen=True)
class Length:
    """At most `length` bytes, or exactly `length` if `fixed`."""

    length: int
    fixed: bool = False

    @property
    def reason(self) -> str:
        return f"does not have {'' if self.fixed else 'at most '}{self.length} bytes"

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        differs = pc.not_equal if self.fixed else pc.greater
        return checked(array, differs(pc.binary_length(array), self.length))

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        if self.fixed:
            return None
        values = array.cast(pa.binary()) if pa.types.is_fixed_size_binary(array.type) else array
        return pc.if_else(bad, pc.binary_slice(values, 0, self.length), values)


@dataclass(frozen=True)
class Unreplaced:
    """Text in which the driver has not replaced half a surrogate pair by U+FFFD.

    As a stored U+FFFD looks the same, both are refused; `clamp` accepts both.
    """

    reason: str = (
        "holds U+FFFD, which the driver also puts in the place of half a surrogate pair; "
        "'on_overflow: clamp' takes it as it is"
    )

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        return checked(array, pc.match_substring(array, REPLACEMENT))

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        return array


@dataclass(frozen=True)
class Cast(Unguarded):
    """Arrow's own safe cast, of values that have passed the guards before it."""

    type: pa.DataType

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        return array if array.type == self.type else array.cast(self.type)


@dataclass(frozen=True)
class View(Unguarded):
    """The integers of dates, times and timestamps, as a type of the same width."""

    type: pa.DataType

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        return integers(array).cast(self.type)


@dataclass(frozen=True)
class TimeText(Unguarded):
    """A time of day as text with a fixed number of decimals, which sorts as text, too."""

    digits: int
    type: pa.DataType

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        text = array.cast(pa.time64("ns")).cast(pa.string())
        end = len("hh:mm:ss") + (self.digits + 1 if self.digits else 0)
        return pc.utf8_slice_codeunits(text, 0, end).cast(self.type)


@dataclass(frozen=True)
class UuidText(Unguarded):
    """A uuid of 16 bytes as its text of 36 characters."""

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        if not len(array):
            return pa.array([], pa.string())
        array = array.cast(pa.binary(16))
        values = array.buffers()[1].slice(array.offset * 16, len(array) * 16)
        digits = pa.py_buffer(values.hex())
        text = pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(array), [None, digits])
        text = pc.ascii_lower(text.cast(pa.string()))
        ends = pairwise((0, 8, 12, 16, 20, 32))
        parts = [pc.utf8_slice_codeunits(text, start, end) for start, end in ends]
        text = pc.binary_join_element_wise(*parts, "-")
        return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))


@dataclass(frozen=True)
class Present(Unclamped):
    """Values for a target without NULL."""

    reason: str = (
        "is NULL, which a ClickHouse Array cannot be; a target of type String takes it as JSON"
    )

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        return Violation(array.is_null()) if array.null_count else array


@dataclass(frozen=True)
class Items:
    """Another step, applied to the elements of a list."""

    step: Step

    @property
    def reason(self) -> str:
        return f"has an element that {self.step.reason}"

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        items = self.step.convert(plain(array.flatten()))
        if isinstance(items, Violation):
            rows = pc.unique(pc.list_parent_indices(array).filter(items.rows))
            return Violation(pc.is_in(pa.array(range(len(array)), rows.type), rows))
        return relisted(array, items)

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        return self._mended(array, self.step.clamp)

    def blank(self, array: pa.Array) -> pa.Array:
        """Replace elements that break the step's guard by NULL."""
        return self._mended(array, _blanked)

    def _mended(
        self, array: pa.Array, mend: Callable[[pa.Array, pa.BooleanArray], pa.Array | None]
    ) -> pa.Array | None:
        items = plain(array.flatten())
        result = self.step.convert(items)
        mended = mend(items, result.rows) if isinstance(result, Violation) else items
        return None if mended is None else relisted(array, mended)


def _blanked(array: pa.Array, bad: pa.BooleanArray) -> pa.Array:
    return pc.if_else(bad, pa.scalar(None, array.type), array)


def is_guard(step: Step) -> bool:
    """Whether a step refuses some values, or some elements of a list."""
    while isinstance(step, Items):
        step = step.step
    return not isinstance(step, Unguarded)


def relisted(array: pa.Array, items: pa.Array) -> pa.Array:
    """Make lists of the same lengths from other items."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(offsets, items, mask=mask)


def plain(array: pa.Array) -> pa.Array:
    """Remove Arrow's extension types (uuid, json, and ADBC's opaque ones)."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def relax(
    step: Step, array: pa.Array, bad: pa.BooleanArray, policy: Change | None
) -> pa.Array | None:
    """Replace the values that break a step's guard as the policy says, and convert the column.

    None if there is no policy, or none of its replacements is for one of the rows.
    """
    if isinstance(step, Present) or policy is None:
        return None
    if policy == "null":
        array = step.blank(array) if isinstance(step, Items) else _blanked(array, bad)
    else:
        clamped = step.clamp(array, bad)
        if clamped is None or clamped.null_count > array.null_count:
            return None
        array = clamped
        if isinstance(step, Unreplaced):
            return array
    converted = step.convert(array)
    return None if isinstance(converted, Violation) else converted
