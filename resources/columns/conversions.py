"""How a source column becomes a target column: its expressions, Arrow type and guarded steps."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.system import System
from tableferry.resources.types import kinds, timestamp_text
from tableferry.resources.types.decimals import DecimalCast, Scaled, ToDecimal
from tableferry.resources.types.export import Conversion, Export, Refusal, Slot
from tableferry.resources.types.steps import (
    Cast,
    Characters,
    Finite,
    Items,
    Length,
    Present,
    Step,
    TimeText,
    Units,
    Unreplaced,
    Utf8,
    UuidText,
    View,
    Whole,
    Within,
    WithoutNul,
)
from tableferry.resources.types.type_map import TypeMap

NEAR = (kinds.Integer, kinds.Decimal, kinds.Float), (kinds.Date, kinds.Time, kinds.Timestamp)
"""Kinds of which a server casts values to each other's, though parts of them may be lost."""

LAST_MICROSECOND = kinds.MICROSECONDS_PER_DAY - 1


class NoConversion(Exception):
    """The target type cannot hold the source type; the message says why."""


@lru_cache(maxsize=4096)
def conversion_between(
    source: System, source_type: str, target: System, target_type: str, version: str = ""
) -> Conversion:
    """Find the conversion of a declared source type into a declared target type.

    Args:
        source: the source's system.
        source_type: the type as its server declares it.
        target: the target's system.
        target_type: the type as its server will declare it.
        version: the target's, see `CopyPlan.target_version`.

    Raises:
        NoConversion: none is exact for any value.
    """
    export = source.types.export(source_type)
    slot = target.types.slot(target_type, version)
    if slot is None:
        raise NoConversion(f"{target_type} is not a type that can be filled exactly")
    if isinstance(export, Refusal):
        if not isinstance(slot.kind, kinds.Text) or export.as_text is None:
            raise NoConversion(f"it is {export.why}")
        export = Export(kinds.Text(), export.as_text, None, export.as_text)
    kind = export.kind
    if isinstance(kind, kinds.Binary) and slot.takes_bytes:
        slot = Slot(kinds.Binary(), pa.binary())
    if isinstance(slot.kind, kinds.Decimal) and slot.kind.precision is None:
        slot = _slot_of_undeclared(kind)
    as_text = isinstance(slot.kind, kinds.Text) and not isinstance(kind, kinds.Text)
    as_text = as_text and not export.text_of_arrow
    if as_text and export.as_text is None:
        if isinstance(kind, kinds.Binary):
            raise NoConversion("bytes are not text")
        as_text = False
    sent: kinds.Kind = (export.text_kind or kinds.Text()) if as_text else kind
    arrow = source.types.arrives_as(slot.arrow, sent)
    steps = _steps(sent, slot, arrow, source, target)
    if isinstance(sent, kinds.Array) and not slot.nullable:
        steps.insert(0, Present())
    return Conversion(export, slot, arrow, tuple(steps), as_text)


def conversion_of(column: ColumnPlan, plan: CopyPlan) -> Conversion:
    """Find the conversion of a planned column."""
    target = plan.target.system
    target_type = target.types.plain(column.fitted or column.target.type)
    return conversion_between(
        plan.source.system, column.source.type, target, target_type, plan.target_version
    )


def _steps(
    source_kind: kinds.Kind, slot: Slot, arrow: pa.DataType, source: System, target: System
) -> list[Step]:
    target_kind, types = slot.kind, source.types
    match source_kind, target_kind:
        case kinds.Boolean(), kinds.Boolean() | kinds.Integer():
            return [Cast(arrow)]
        case kinds.Integer(low, high), kinds.Integer(first, last):
            steps: list[Step] = []
            if low < first or high > last:
                steps.append(Within(first, last, f"is outside of {first}..{last}"))
            return [*steps, Cast(arrow)]
        case kinds.Integer(low, high), kinds.Decimal(precision, scale):
            limit = 10 ** ((precision or 0) - (scale or 0)) - 1
            if max(-low, high) > limit:
                return [Within(-limit, limit, f"is outside of {-limit}..{limit}"), Scaled(arrow)]
            return [Scaled(arrow)]
        case kinds.Decimal(), kinds.Decimal(precision, scale):
            fits = _digits_fit(source_kind, target_kind)
            if types.decimals_as_text:
                return [ToDecimal(precision or 38, scale or 0, fits)]
            reason = f"does not fit into decimal({precision},{scale}) without rounding"
            return [Cast(arrow)] if fits else [DecimalCast(arrow, reason)]
        case kinds.Decimal(), kinds.Integer(first, last):
            reason = f"is outside of {first}..{last}"
            whole = DecimalCast(pa.decimal128(38, 0), "is not a whole number")
            parse = ToDecimal(38, 0) if types.decimals_as_text else whole
            if len(str(max(-first, last))) > 18:
                return [parse, DecimalCast(arrow, reason)]
            wide = DecimalCast(pa.int64(), reason)
            return [parse, wide, Within(first, last, reason), Cast(arrow)]
        case kinds.Float(bits), kinds.Float(target_bits) if bits <= target_bits:
            guarded = target_kind.finite and not source_kind.finite
            return [*([Finite()] if guarded else []), Cast(arrow)]
        case kinds.Text(), kinds.Text(units, characters):
            steps = [Unreplaced()] if source_kind.replaced else []
            if source_kind.unchecked and not slot.takes_bytes:
                steps.append(Utf8())
            if types.holds_nul and not target.types.holds_nul:
                steps.append(WithoutNul())
            if characters is not None:
                # every character takes at least a unit
                most = source_kind.characters or source_kind.units
                steps += [] if _at_most(most, characters) else [Characters(characters)]
            elif units is not None and not _at_most(source_kind.units, units):
                steps.append(Units(units))
            return [*steps, Cast(arrow)]
        case kinds.Binary(source_length), kinds.Binary(length, fixed):
            fits = _at_most(source_length, length) and (not fixed or source_kind == target_kind)
            return [*([] if fits else [Length(length or 0, fixed)]), Cast(arrow)]
        case kinds.Date(), kinds.Date(low, high):
            return [
                *_within(source_kind, low, high, target.title, types, target.types),
                Cast(arrow),
            ]
        case kinds.Date(low, high), kinds.Integer():
            return [*_within(source_kind, low, high, source.name, types, target.types), View(arrow)]
        case kinds.Time(), kinds.Time(digits):
            return _times(source_kind, digits, arrow)
        case kinds.Time(), kinds.Integer():
            return [Cast(pa.time64("us")), View(arrow)]
        case kinds.Time(digits), kinds.Text():
            return [TimeText(digits, arrow)]
        case kinds.Timestamp(), kinds.Timestamp():
            steps = _timestamps(source_kind, target_kind, arrow, source, target)
            return [*steps, Cast(arrow)]
        case kinds.Timestamp(_, low, high, "none" | "utc"), kinds.Integer() if (
            source_kind.digits <= 6
        ):
            return [*_within(source_kind, low, high, source.name, types, target.types), View(arrow)]
        case kinds.Uuid(), kinds.Uuid():
            return [UuidText() if arrow == pa.string() else Cast(arrow)]
        case kinds.Array(source_item), kinds.Array(target_item):
            item = Slot(target_item, arrow.value_type)
            inner = _steps(source_item, item, arrow.value_type, source, target)
            return [Items(step) for step in inner]
        case ((kinds.Integer() | kinds.Float() | kinds.Boolean()), kinds.Text()):
            return [Cast(arrow)]
    if any(isinstance(source_kind, near) and isinstance(target_kind, near) for near in NEAR):
        raise NoConversion(
            "parts of values would be lost (cast: true has the source's server do so)"
        )
    raise NoConversion("the types have no values in common")


def _slot_of_undeclared(kind: kinds.Kind) -> Slot:
    """Make a slot with a source's digits, for a target type of any number of digits."""
    if not isinstance(kind, kinds.Decimal) or kind.precision is None or kind.precision > 76:
        raise NoConversion("its digits are not declared, or more than 76")
    decimals = pa.decimal128 if kind.precision <= 38 else pa.decimal256
    return Slot(replace(kind, nan=False), decimals(kind.precision, kind.scale or 0))


def _digits_fit(source_kind: kinds.Decimal, target_kind: kinds.Decimal) -> bool:
    if target_kind.precision is None:
        return True
    if source_kind.precision is None:
        return False
    source_scale, target_scale = source_kind.scale or 0, target_kind.scale or 0
    whole = source_kind.precision - source_scale
    return target_scale >= source_scale and target_kind.precision - target_scale >= whole


def _within(
    kind: kinds.Date | kinds.Timestamp,
    low: int,
    high: int,
    holder: str,
    source: TypeMap,
    target: TypeMap,
) -> list[Step]:
    if kind.low >= low and kind.high <= high and not source.infinities:
        return []
    per_day, bits = (1, 32) if isinstance(kind, kinds.Date) else (kinds.MICROSECONDS_PER_DAY, 64)
    high = min(high, 2**63 - 1)
    days = f"{kinds.written_day(low // per_day)} to {kinds.written_day(high // per_day)}"
    reason = f"is outside of {holder}'s {days}"
    if source.infinities and target.infinities:
        reason = (
            f"is outside of the {days} that record batches and conversions keep; 'wire: auto' "
            "moves it as it is, unless another type is declared"
        )
    wrapped = source.epoch_days * per_day - 2 ** (bits - 1) if source.epoch_days else None
    return [Within(low, high, reason, wrapped)]


def _times(kind: kinds.Time, digits: int, arrow: pa.DataType) -> list[Step]:
    steps: list[Step] = []
    if kind.midnight:
        steps.append(
            Within(0, LAST_MICROSECOND, "is the end of a day, which the target cannot hold")
        )
    # the target's batches have microseconds
    digits = min(digits, 6)
    if kind.digits > digits:
        units = 9 if kind.digits > 6 else 6
        steps.append(Cast(pa.time64("ns" if units == 9 else "us")))
        reason = f"has more than {digits} decimals of a second"
        steps.append(Whole(10 ** (units - digits), reason))
    return [*steps, Cast(arrow)]


def _timestamps(
    source_kind: kinds.Timestamp,
    target_kind: kinds.Timestamp,
    arrow: pa.DataType,
    source: System,
    target: System,
) -> list[Step]:
    digits, title = target_kind.digits, target.title
    finer = source_kind.digits > digits
    unit = 10 ** max(0, 6 - digits)
    # the target's last moment; finer ones of the source are cut by a step of their own
    last = target_kind.high if finer else target_kind.high // unit * unit
    if source_kind.zone == "offset" or source_kind.digits == 7:
        steps: list[Step] = [timestamp_text.UtcOffset()] if source_kind.zone == "offset" else []
        if target_kind.low > source_kind.low or target_kind.high < source_kind.high:
            # without a fraction, so that it sorts before the same second with any fraction
            low = kinds.iso(target_kind.low)[: len("yyyy-mm-dd hh:mm:ss")]
            high = kinds.iso(last) + ("9" if source_kind.digits == 7 else "")
            reason = f"is outside of {title}'s {low[:10]} to {high[:10]}"
            steps.append(timestamp_text.TextWithin(low, high, reason))
        if pa.types.is_timestamp(arrow):
            if source_kind.digits == 7 and target.types.second_digits == 7:
                raise NoConversion(f"it has 7 decimals of a second, the target {digits}")
            steps += [timestamp_text.Decimals(digits)] if finer else []
            steps.append(timestamp_text.ParseTimestamp())
        return steps
    zones = source_kind.zone, target_kind.zone
    if zones == ("none", "utc") and not target.types.wall_clocks_as_utc:
        raise NoConversion("a wall-clock time has no UTC offset")
    if zones == ("utc", "none"):
        raise NoConversion("an instant is not a wall-clock time")
    steps = _within(source_kind, target_kind.low, last, title, source.types, target.types)
    return [*steps, Whole(unit, f"has more than {digits} decimals of a second")] if finer else steps


def holds(target_kind: kinds.Kind, source_kind: kinds.Kind) -> bool:
    """Whether every value of a source's kind fits exactly into a target's kind."""
    match source_kind, target_kind:
        case kinds.Integer(), kinds.Decimal(precision, scale):
            limit = 10 ** ((precision or 0) - (scale or 0))
            return max(-source_kind.low, source_kind.high) < limit
        case kinds.Decimal(), kinds.Decimal():
            return _digits_fit(source_kind, target_kind)
        case kinds.Float(bits, finite), kinds.Float(target_bits, target_finite):
            return bits <= target_bits and (finite or not target_finite)
        case kinds.Text(units), kinds.Text(target_units):
            return _at_most(units, target_units)
        case kinds.Binary(length), kinds.Binary(target_length, fixed):
            return source_kind == target_kind if fixed else _at_most(length, target_length)
        case (kinds.Integer() | kinds.Date(), kinds.Integer() | kinds.Date()) if type(
            source_kind
        ) is type(target_kind):
            return target_kind.low <= source_kind.low and source_kind.high <= target_kind.high
        case kinds.Time(digits), kinds.Time(target_digits):
            return digits <= target_digits
        case kinds.Timestamp(digits, low, high, zone), kinds.Timestamp():
            return (
                zone == target_kind.zone
                and digits <= target_kind.digits
                and target_kind.low <= low
                and high <= target_kind.high
            )
        case kinds.Array(item), kinds.Array(target_item):
            return holds(target_item, item)
    return target_kind == source_kind


def _at_most(length: int | None, limit: int | None) -> bool:
    """Whether a maximum length is within a limit; None: unlimited."""
    return limit is None or (length is not None and length <= limit)
