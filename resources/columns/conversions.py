"""How a source column becomes a target column: expressions, Arrow type, guarded steps."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.system import System
from tableferry.resources.types.conversion import Conversion
from tableferry.resources.types.decimals import DecimalCast, Scaled, ToDecimal
from tableferry.resources.types.export import Export, Refusal
from tableferry.resources.types.kinds import (
    EPOCH,
    MICROSECONDS_PER_DAY,
    Array,
    Binary,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Kind,
    Text,
    Time,
    Timestamp,
    Uuid,
)
from tableferry.resources.types.slot import Slot
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
    View,
    Whole,
    Within,
    WithoutNul,
)
from tableferry.resources.types.timestamp_text import (
    Decimals,
    ParseTimestamp,
    TextWithin,
    UtcOffset,
)
from tableferry.resources.types.type_map import TypeMap

LAST_MICROSECOND = MICROSECONDS_PER_DAY - 1


class NoConversion(Exception):
    """The target type cannot hold the source type; the message says why."""


def source_export(system: System, type_: str) -> Export | Refusal:
    """How a source column of a declared type is selected."""
    return system.types.export(type_)


def target_slot(system: System, type_: str, version: str = "") -> Slot | None:
    """What a target column of a declared type holds."""
    return system.types.slot(type_, version)


def default_type(system: System, kind: Kind) -> str | None:
    """The target type that we choose for a kind of values."""
    return system.types.default(kind)


@lru_cache(maxsize=4096)
def conversion_between(
    source: System, source_type: str, target: System, target_type: str, version: str = ""
) -> Conversion:
    """The conversion of a declared source type into a declared target type.

    Args:
        source: the source's system.
        source_type: as its server declares it.
        target: the target's system.
        target_type: as its server will declare it.
        version: of the target, see `CopyPlan.target_version`.

    Raises:
        NoConversion: there is none that is exact for any value.
    """
    export = source_export(source, source_type)
    slot = target_slot(target, target_type, version)
    if slot is None:
        raise NoConversion(f"{target_type} is no target type that we can fill exactly")
    if isinstance(export, Refusal):
        if not isinstance(slot.kind, Text) or export.as_text is None:
            raise NoConversion(f"it is {export.why}")
        export = Export(Text(), export.as_text, None, export.as_text)
    kind = export.kind
    if isinstance(kind, Binary) and slot.takes_bytes:
        slot = Slot(Binary(), pa.binary())
    if isinstance(slot.kind, Decimal) and slot.kind.precision is None:
        slot = _as_declared(kind)
    as_text = isinstance(slot.kind, Text) and not isinstance(kind, Text)
    as_text = as_text and not export.text_of_arrow
    if as_text and export.as_text is None:
        if isinstance(kind, Binary):
            raise NoConversion("bytes are no text")
        as_text = False
    sent: Kind = (export.text_kind or Text()) if as_text else kind
    arrow = source.types.arrives_as(slot.arrow, sent)
    steps = _steps(sent, slot, arrow, _Sides.of(source, target))
    if isinstance(sent, Array) and not slot.nullable:
        steps.insert(0, Present())
    return Conversion(export, slot, arrow, tuple(steps), as_text)


def conversion_of(column: ColumnPlan, plan: CopyPlan) -> Conversion:
    """The conversion of a column, which its plan determines."""
    return conversion_between(
        plan.source.system,
        column.source.type,
        plan.target.system,
        plain_type(plan.target.system, column.fitted or column.target.type),
        plan.target_version,
    )


@dataclass(frozen=True)
class _Sides:
    """The two systems of a conversion, as far as its steps depend on them."""

    source_name: str
    source: TypeMap
    target_title: str
    target: TypeMap

    @classmethod
    def of(cls, source: System, target: System) -> _Sides:
        own, other = source, target
        return cls(own.name, own.types, other.title, other.types)


def _steps(kind: Kind, slot: Slot, arrow: pa.DataType, sides: _Sides) -> list[Step]:
    source, title = sides.source, sides.target_title
    match kind, slot.kind:
        case Boolean(), Boolean() | Integer():
            return [Cast(arrow)]
        case Integer(low, high), Integer(first, last):
            steps: list[Step] = []
            if low < first or high > last:
                steps.append(Within(first, last, f"is outside of {first}..{last}"))
            return [*steps, Cast(arrow)]
        case Integer(low, high), Decimal(precision, scale):
            limit = 10 ** ((precision or 0) - (scale or 0)) - 1
            if max(-low, high) > limit:
                return [Within(-limit, limit, f"is outside of {-limit}..{limit}"), Scaled(arrow)]
            return [Scaled(arrow)]
        case Decimal(), Decimal(precision, scale):
            if source.decimals_as_text:
                return [ToDecimal(precision or 38, scale or 0, _digits_fit(kind, slot.kind))]
            fits = _digits_fit(kind, slot.kind)
            reason = f"does not fit into decimal({precision},{scale}) without rounding"
            return [Cast(arrow)] if fits else [DecimalCast(arrow, reason)]
        case Decimal(), Integer(first, last):
            digits = len(str(max(-first, last)))
            within = Within(first, last, f"is outside of {first}..{last}")
            integer = DecimalCast(pa.decimal128(38, 0), "is not a whole number")
            first_step = ToDecimal(38, 0) if source.decimals_as_text else integer
            if digits > 18:
                narrow = DecimalCast(arrow, f"is outside of {first}..{last}")
                return [first_step, narrow]
            wide = DecimalCast(pa.int64(), f"is outside of {first}..{last}")
            return [first_step, wide, within, Cast(arrow)]
        case Float(bits), Float(room) if bits <= room:
            finite: list[Step] = [Finite()] if slot.kind.finite and not kind.finite else []
            return [*finite, Cast(arrow)]
        case Text(), Text(units, characters):
            steps = [Unreplaced()] if kind.replaced else []
            if kind.unchecked and not slot.takes_bytes:
                steps.append(Utf8())
            if source.holds_nul and not sides.target.holds_nul:
                steps.append(WithoutNul())
            if characters is not None:
                # no character takes less than a unit
                most = kind.characters or kind.units
                steps += [Characters(characters)] if most is None or most > characters else []
            elif units is not None and (kind.units is None or kind.units > units):
                steps.append(Units(units))
            return [*steps, Cast(arrow)]
        case Binary(), Binary(length, fixed):
            bounded = length is not None and (
                kind.length is None or kind.length > length or (fixed and kind != slot.kind)
            )
            return [*([Length(length or 0, fixed)] if bounded else []), Cast(arrow)]
        case Date(), Date(low, high):
            return [*_dates(kind, low, high, title, source), Cast(arrow)]
        case Date(), Integer():
            return [*_dates(kind, kind.low, kind.high, sides.source_name, source), View(arrow)]
        case Time(), Time(digits):
            return _times(kind, digits, arrow)
        case Time(), Integer():
            return [Cast(pa.time64("us")), View(arrow)]
        case Time(digits), Text():
            return [TimeText(digits, arrow)]
        case Timestamp(), Timestamp():
            return _timestamps(kind, slot.kind, arrow, sides)
        case Timestamp(zone="none" | "utc"), Integer() if kind.digits <= 6:
            return [
                *_instants(kind, kind.low, kind.high, sides.source_name, source),
                View(arrow),
            ]
        case Uuid(), Uuid():
            return [Cast(arrow)]
        case Array(item), Array(room):
            inner = _steps(item, Slot(room, arrow.value_type), arrow.value_type, sides)
            return [Items(step) for step in inner]
        case ((Integer() | Float() | Boolean()), Text()):
            return [Cast(arrow)]
    raise NoConversion("the two have no values in common that would survive")


def _as_declared(kind: Kind) -> Slot:
    """A slot for decimals of any number of digits, which takes those of the source."""
    if not isinstance(kind, Decimal) or kind.precision is None or kind.precision > 76:
        raise NoConversion("its digits are not declared, or more than 76")
    decimals = pa.decimal128 if kind.precision <= 38 else pa.decimal256
    return Slot(replace(kind, nan=False), decimals(kind.precision, kind.scale or 0))


def _digits_fit(kind: Decimal, room: Decimal) -> bool:
    if room.precision is None:
        return True
    precision, scale = kind.precision or 0, kind.scale or 0
    whole = (room.precision or 0) - (room.scale or 0)
    return kind.precision is not None and (room.scale or 0) >= scale and whole >= precision - scale


def _dates(kind: Date, low: int, high: int, holder: str, source: TypeMap) -> list[Step]:
    if kind.low >= low and kind.high <= high and not source.infinities:
        return []
    wrapped = source.epoch_days - 2**31 if source.epoch_days else None
    return [Within(low, high, f"is outside of {holder}'s {_day(low)} to {_day(high)}", wrapped)]


def _instants(kind: Timestamp, low: int, high: int, holder: str, source: TypeMap) -> list[Step]:
    if kind.low >= low and kind.high <= high and not source.infinities:
        return []
    first, last = _day(low // MICROSECONDS_PER_DAY), _day(high // MICROSECONDS_PER_DAY)
    high = min(high, 2**63 - 1)
    wrapped = source.epoch_days * MICROSECONDS_PER_DAY - 2**63 if source.epoch_days else None
    return [Within(low, high, f"is outside of {holder}'s {first} to {last}", wrapped)]


def _day(number: int) -> str:
    if not dt.date.min.toordinal() <= number + EPOCH.toordinal() <= dt.date.max.toordinal():
        return "4713-11-24 BC" if number < 0 else "5874897-12-31"
    return dt.date.fromordinal(number + EPOCH.toordinal()).isoformat()


def _times(kind: Time, digits: int, arrow: pa.DataType) -> list[Step]:
    steps: list[Step] = []
    if kind.midnight:
        steps.append(Within(0, LAST_MICROSECOND, "is the end of a day, which has no time of day"))
    # the batches of the target have microseconds
    digits = min(digits, 6)
    if kind.digits > digits:
        units = 9 if kind.digits > 6 else 6
        steps.append(Cast(pa.time64("ns" if units == 9 else "us")))
        reason = f"has more than {digits} decimals of a second"
        steps.append(Whole(10 ** (units - digits), reason))
    return [*steps, Cast(arrow)]


def _timestamps(kind: Timestamp, room: Timestamp, arrow: pa.DataType, sides: _Sides) -> list[Step]:
    unit = 10 ** max(0, 6 - room.digits)
    # the last moment that the target has; where the source has finer ones, a step of its own cuts
    last = room.high if kind.digits > room.digits else room.high // unit * unit
    if kind.zone == "offset" or kind.digits == 7:
        steps: list[Step] = [UtcOffset()] if kind.zone == "offset" else []
        if room.low > kind.low or room.high < kind.high:
            # without a fraction, so that it sorts before the same second with any number of them
            low = _iso(room.low)[: len("yyyy-mm-dd hh:mm:ss")]
            high = _iso(last) + ("9" if kind.digits == 7 else "")
            reason = f"is outside of {sides.target_title}'s {low[:10]} to {high[:10]}"
            steps.append(TextWithin(low, high, reason))
        if pa.types.is_timestamp(arrow):
            if kind.digits == 7 and sides.target.second_digits == 7:
                raise NoConversion(f"it has 7 decimals of a second, the target {room.digits}")
            if kind.digits > room.digits:
                steps.append(Decimals(room.digits))
            steps.append(ParseTimestamp())
        return [*steps, Cast(arrow)]
    if kind.zone == "none" and room.zone == "utc" and not sides.target.wall_clocks_as_utc:
        raise NoConversion("a wall clock has no UTC offset")
    if kind.zone == "utc" and room.zone == "none":
        raise NoConversion("an instant is no wall clock")
    steps = _instants(kind, room.low, last, sides.target_title, sides.source)
    if kind.digits > room.digits:
        steps.append(Whole(unit, f"has more than {room.digits} decimals of a second"))
    return [*steps, Cast(arrow)]


def _iso(number: int) -> str:
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=number)
    return moment.isoformat(sep=" ", timespec="microseconds")


def holds(room: Kind, kind: Kind) -> bool:
    """Whether every value of a kind fits exactly into another of the same family."""
    match kind, room:
        case Integer(), Integer():
            return room.low <= kind.low and kind.high <= room.high
        case Integer(), Decimal(precision, scale):
            return max(-kind.low, kind.high) < 10 ** ((precision or 0) - (scale or 0))
        case Decimal(), Decimal():
            return _digits_fit(kind, room)
        case Float(), Float():
            return kind.bits <= room.bits and (kind.finite or not room.finite)
        case Text(), Text():
            return room.units is None or (kind.units is not None and kind.units <= room.units)
        case Binary(), Binary():
            if room.fixed:
                return kind == room
            return room.length is None or (kind.length is not None and kind.length <= room.length)
        case (Date(), Date()):
            return room.low <= kind.low and kind.high <= room.high
        case (Time(), Time()):
            return kind.digits <= room.digits
        case (Timestamp(), Timestamp()):
            return (
                kind.zone == room.zone
                and kind.digits <= room.digits
                and room.low <= kind.low
                and kind.high <= room.high
            )
        case (Array(), Array()):
            return holds(room.item, kind.item)
    return room == kind


def plain_type(target: System, type_: str) -> str:
    """A target type as given by the user, without what nullability and options add."""
    return target.types.plain(type_)
