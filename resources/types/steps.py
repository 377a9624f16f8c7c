"""Vectorised steps from what the source sends to what the sink takes, each with its guard.

A step costs one pass at most over a column that obeys; only a violation is looked for row by row,
and that with Arrow's kernels too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

REPLACEMENT = "\ufffd"

OverflowPolicy = Literal["refuse", "null", "clamp", "text"]


@dataclass(frozen=True)
class Violation:
    """Which rows break a step's guard: true where they do, never null."""

    rows: pa.BooleanArray


class Step(Protocol):
    """One conversion of a column, exact or refused."""

    @property
    def reason(self) -> str:
        """Why a value that breaks the guard does not travel; completes `value x ...`."""

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        """The converted column, or the rows that cannot be converted exactly."""

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        """The column with the violating rows set to the nearest value; None if there is none."""


class Unclamped:
    """A step whose guard has no nearest value."""

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        return None


class Unguarded(Unclamped):
    """A step that converts every value."""

    reason = "cannot be converted"


def violation(rows: pa.BooleanArray) -> Violation:
    """A violation of the rows that are true; NULL is none."""
    return Violation(pc.fill_null(rows, False))


def integers(array: pa.Array) -> pa.Array:
    """The integers behind dates, times and timestamps, without a copy."""
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
    """Numbers below this are above all others: the driver's count has wrapped around."""

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
        # a limit that the type has not is none that a value can be beyond
        least, greatest = integer_range(numbers.type)
        low, high = (
            pa.scalar(min(max(limit, least), greatest), numbers.type)
            for limit in (self.low, self.high)
        )
        return pc.if_else(bad, pc.if_else(below, low, high), numbers).view(array.type)

    def _beyond(self, numbers: pa.Array) -> tuple[pa.BooleanArray, pa.BooleanArray]:
        """Which numbers are below the limits, and which above."""
        # compared as 64 bits: a limit may lie outside of a narrower type
        wide = numbers if numbers.type == pa.uint64() else numbers.cast(pa.int64())
        least, greatest = integer_range(wide.type)
        low, high = (
            pa.scalar(min(max(limit, least), greatest), wide.type)
            for limit in (self.low, self.high)
        )
        below, above = pc.less(wide, low), pc.greater(wide, high)
        if self.wrapped is None:
            return below, above
        wrapped = pc.less(wide, self.wrapped)
        return pc.and_not(below, wrapped), pc.or_(above, wrapped)


def integer_range(type_: pa.DataType) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    bits = type_.bit_width
    if pa.types.is_unsigned_integer(type_):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


@dataclass(frozen=True)
class Whole:
    """Times and timestamps that are multiples of a coarser unit."""

    unit: int
    reason: str

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        numbers = integers(array)
        rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, self.unit), self.unit))
        if (pc.min_max(rest)["max"].as_py() or 0) == 0 == (pc.min_max(rest)["min"].as_py() or 0):
            return array
        return violation(pc.not_equal(rest, 0))

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        numbers = integers(array)
        cut = pc.multiply(pc.divide(numbers, self.unit), self.unit)
        # divide cuts towards zero, which before 1970 is later
        earlier = pc.subtract(cut, pc.if_else(pc.less(numbers, 0), self.unit, 0))
        return pc.if_else(bad, earlier, numbers).view(array.type)


@dataclass(frozen=True)
class Finite(Unclamped):
    """Floats without NaN and the infinities."""

    reason: str = "is not a finite number, which float cannot hold in SQL Server"

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        finite = pc.is_finite(array)
        if pc.all(finite, min_count=0).as_py():
            return array
        return violation(pc.invert(finite))


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
        too_long = pc.greater(pc.add(pc.utf8_length(array), beyond), self.units)
        return violation(too_long) if pc.any(too_long).as_py() else array

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
    """Text of at most so many characters."""

    characters: int

    @property
    def reason(self) -> str:
        return f"is longer than the {self.characters} characters of the target"

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        # no character has less than a byte
        if (pc.max(pc.binary_length(array)).as_py() or 0) <= self.characters:
            return array
        too_long = pc.greater(pc.utf8_length(array), self.characters)
        return violation(too_long) if pc.any(too_long).as_py() else array

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
        found = pc.match_substring(array, "\0")
        return violation(found) if pc.any(found).as_py() else array


@dataclass(frozen=True)
class Length:
    """At most `length` bytes, or exactly so many."""

    length: int
    fixed: bool = False

    @property
    def reason(self) -> str:
        return f"has not {'' if self.fixed else 'at most '}{self.length} bytes, as the target wants"

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        lengths = pc.binary_length(array)
        extent = pc.min_max(lengths)
        if (extent["max"].as_py() or 0) <= self.length and (
            not self.fixed or extent["min"].as_py() in (None, self.length)
        ):
            return array
        differs = pc.not_equal if self.fixed else pc.greater
        return violation(differs(lengths, self.length))

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        if self.fixed:
            return None
        values = array.cast(pa.binary()) if pa.types.is_fixed_size_binary(array.type) else array
        return pc.if_else(bad, pc.binary_slice(values, 0, self.length), values)


@dataclass(frozen=True)
class Unreplaced:
    """Text in which the driver has put no U+FFFD for half a surrogate pair.

    A U+FFFD that was stored looks the same, so that both are refused; `clamp` takes them as they
    are.
    """

    reason: str = (
        "holds U+FFFD, which the driver also puts in the place of half a surrogate pair; "
        "'on_overflow: clamp' takes it as it is"
    )

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        found = pc.match_substring(array, REPLACEMENT)
        return violation(found) if pc.any(found).as_py() else array

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        return array


@dataclass(frozen=True)
class Cast(Unguarded):
    """Arrow's own safe cast, of values that the guards before it leave."""

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
    """A time of day as text with a fixed number of decimals, so that it sorts as text too."""

    digits: int
    type: pa.DataType

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        text = array.cast(pa.time64("ns")).cast(pa.string())
        end = len("hh:mm:ss") + (self.digits + 1 if self.digits else 0)
        return pc.utf8_slice_codeunits(text, 0, end).cast(self.type)


@dataclass(frozen=True)
class Present(Unclamped):
    """No NULL, where the target has no place for one."""

    reason: str = (
        "is NULL, which a ClickHouse Array cannot be; a target of type String takes it as JSON"
    )

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        return Violation(array.is_null()) if array.null_count else array


@dataclass(frozen=True)
class Items:
    """Another step, on the elements of a list."""

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
        items = plain(array.flatten())
        found = self.step.convert(items)
        if not isinstance(found, Violation):
            return array
        clamped = self.step.clamp(items, found.rows)
        return None if clamped is None else relisted(array, clamped)

    def blank(self, array: pa.Array) -> pa.Array:
        """The lists with NULL in the place of the elements that break the step's guard."""
        items = plain(array.flatten())
        found = self.step.convert(items)
        if not isinstance(found, Violation):
            return array
        return relisted(array, pc.if_else(found.rows, pa.scalar(None, items.type), items))


def relisted(array: pa.Array, items: pa.Array) -> pa.Array:
    """Lists of the same lengths as those of an array, of other items."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(offsets, items, mask=mask)


def plain(array: pa.Array) -> pa.Array:
    """The array without Arrow's extension types (uuid, json, and ADBC's opaque ones)."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def relax(
    step: Step, array: pa.Array, bad: pa.BooleanArray, policy: OverflowPolicy
) -> pa.Array | None:
    """The column made to obey a step's guard as the user's opt-in says, and converted.

    Returns:
        None if the policy has no value to offer for one of the rows.
    """
    if isinstance(step, Present):
        return None
    if policy == "null":
        nothing = pa.scalar(None, array.type)
        array = step.blank(array) if isinstance(step, Items) else pc.if_else(bad, nothing, array)
    else:
        clamped = step.clamp(array, bad)
        if clamped is None or clamped.null_count > array.null_count:
            return None
        array = clamped
        if isinstance(step, Unreplaced):
            return array
    converted = step.convert(array)
    return None if isinstance(converted, Violation) else converted
