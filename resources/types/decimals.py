"""Conversions of decimals, which never round."""

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
    """Decimal text, as PostgreSQL prints it, to a decimal type."""

    precision: int
    scale: int
    only_nan: bool = False
    """Every number of the source fits, but NaN does not."""

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
            # with more digits, those of the scale included, Arrow's integer wraps around silently
            # (cpp/src/arrow/util/decimal.cc)
            digits = longest + self.scale
            if digits <= DECIMAL128_DIGITS:
                return array.cast(self._type)
            if digits <= DECIMAL256_DIGITS:
                wide = pa.decimal256(DECIMAL256_DIGITS, self.scale)
                return array.cast(wide).cast(self._type)
        except pa.ArrowInvalid:
            pass
        parts = pc.extract_regex(array, _NUMBER)
        sign, whole, part = (pc.struct_field(parts, name) for name in ("sign", "whole", "part"))
        too_long = pc.or_(
            pc.greater(pc.binary_length(whole), self.precision - self.scale),
            pc.greater(pc.binary_length(part), self.scale),
        )
        no_number = pc.and_(pc.is_null(parts), pc.is_valid(array))
        bad = pc.or_(no_number, pc.fill_null(too_long, False))
        if pc.any(bad).as_py():
            return violation(bad)
        # in as few digits as needed
        whole = pc.binary_join_element_wise(sign, pc.if_else(pc.equal(whole, ""), "0", whole), "")
        number = pc.binary_join_element_wise(whole, part, ".")
        return pc.if_else(pc.equal(part, ""), whole, number).cast(self._type)

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
    """Integers to a decimal type that can hold them, though not all of their type."""

    type: pa.DataType

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        return array.cast(pa.decimal128(DECIMAL128_DIGITS, 0)).cast(self.type)


@dataclass(frozen=True)
class DecimalCast(Unclamped):
    """Decimals to a decimal or integer type that cannot hold all of them."""

    type: pa.DataType
    reason: str

    def convert(self, array: pa.Array) -> pa.Array | Violation:
        try:
            return array.cast(self.type)
        except pa.ArrowInvalid:
            pass
        return Violation(pa.array([self._misfits(value) for value in array], pa.bool_()))

    def _misfits(self, value: pa.Scalar) -> bool:
        try:
            value.cast(self.type)
        except pa.ArrowInvalid:
            return True
        return False
