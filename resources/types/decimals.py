"""Decimals on their way: parsed, narrowed, never rounded."""

from __future__ import annotations

import decimal
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.resources.types.steps import Unclamped, Unguarded, Violation, violation

DECIMAL128_DIGITS, DECIMAL256_DIGITS = 38, 76

_NUMBER = "^(?P<sign>-?)0*(?P<whole>[0-9]*)(?:[.](?P<part>[0-9]*?)0*)?$"


@dataclass(frozen=True)
class ToDecimal:
    """Decimal text, as PostgreSQL prints it, to a decimal type; never rounded."""

    precision: int
    scale: int
    only_nan: bool = False
    """Every number of the source fits, so that at most NaN does not."""

    @property
    def reason(self) -> str:
        if self.only_nan:
            return "is not a number, which no decimal can be"
        return f"does not fit into decimal({self.precision},{self.scale}) without rounding"

    @property
    def _type(self) -> pa.DataType:
        decimals = pa.decimal128 if self.precision <= DECIMAL128_DIGITS else pa.decimal256
        return decimals(self.precision, self.scale)

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        longest = pc.max(pc.binary_length(array)).as_py() or 0
        try:
            # Arrow wraps around silently at more digits than its integer has
            # (cpp/src/arrow/util/decimal.cc), so that every text must be shorter
            if longest <= DECIMAL128_DIGITS:
                return array.cast(self._type)
            if longest <= DECIMAL256_DIGITS:
                wide = pa.decimal256(DECIMAL256_DIGITS, self.scale)
                return array.cast(wide).cast(self._type)
        except pa.ArrowInvalid:
            pass
        bad = self._misfits(array)
        if pc.any(bad).as_py():
            return violation(bad)
        return self._without_padding(array).cast(self._type)

    def _parts(self, array: pa.Array) -> pa.Array:
        return pc.extract_regex(array, _NUMBER)

    def _misfits(self, array: pa.Array) -> pa.BooleanArray:
        parts = self._parts(array)
        odd = pc.and_(pc.is_null(parts), pc.is_valid(array))
        whole, part = (pc.binary_length(pc.struct_field(parts, name)) for name in ("whole", "part"))
        too_long = pc.or_(
            pc.greater(whole, self.precision - self.scale), pc.greater(part, self.scale)
        )
        return pc.or_(odd, pc.fill_null(too_long, False))

    def _without_padding(self, array: pa.Array) -> pa.Array:
        """The same numbers in as few digits as they need."""
        parts = self._parts(array)
        sign, whole, part = (pc.struct_field(parts, name) for name in ("sign", "whole", "part"))
        whole = pc.binary_join_element_wise(sign, pc.if_else(pc.equal(whole, ""), "0", whole), "")
        return pc.if_else(pc.equal(part, ""), whole, pc.binary_join_element_wise(whole, part, "."))

    def clamp(self, array: pa.Array, bad: pa.BooleanArray) -> pa.Array | None:
        positions = pc.indices_nonzero(bad)
        nearest = [self._nearest(text) for text in array.take(positions).to_pylist()]
        return pc.replace_with_mask(array, bad, pa.array(nearest, array.type))

    def _nearest(self, text: str) -> str | None:
        largest = decimal.Decimal((0, (9,) * self.precision, -self.scale))
        with decimal.localcontext(decimal.Context(prec=200_000)):
            number = decimal.Decimal(text)
            if number.is_nan():
                return None
            if abs(number) > largest:
                return f"{largest.copy_sign(number):f}"
            return f"{number.quantize(decimal.Decimal((0, (1,), -self.scale))):f}"


@dataclass(frozen=True)
class Scaled(Unguarded):
    """Integers to a decimal type that has room for them, if not for all that their type holds."""

    type: pa.DataType

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        return array.cast(pa.decimal128(DECIMAL128_DIGITS, 0)).cast(self.type)


@dataclass(frozen=True)
class DecimalCast(Unclamped):
    """A decimal to a decimal or integer type that is too small for some."""

    type: pa.DataType
    reason: str

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        try:
            return array.cast(self.type)
        except pa.ArrowInvalid:
            pass
        return Violation(pa.array([not self._fits(value) for value in array], pa.bool_()))

    def _fits(self, value: pa.Scalar) -> bool:
        try:
            value.cast(self.type)
        except pa.ArrowInvalid:
            return False
        return True
