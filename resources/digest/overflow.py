"""Writes what `on_overflow` makes of a column's values in the source's SQL, to compare them.

The export changes values by Arrow's kernels, see `resources.types.steps`. Here the source's server
works out the same from the same limits, on its own values, so that a mistake of either shows. What
both share is the limits, and those the target itself enforces.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from tableferry.resources.contract.fields import Field, Relaxed
from tableferry.resources.contract.overflow_sql import ITEM, NEVER, OverflowSql
from tableferry.resources.contract.system import System
from tableferry.resources.types import kinds
from tableferry.resources.types.decimals import DecimalCast, Scaled
from tableferry.resources.types.steps import (
    Cast,
    Items,
    Present,
    Step,
    TimeText,
    Unreplaced,
    View,
    Whole,
    Within,
)
from tableferry.resources.types.timestamp_text import (
    Decimals,
    ParseTimestamp,
    TextWithin,
    UtcOffset,
)

_WITHOUT_GUARD = (Cast, Scaled, View, TimeText, ParseTimestamp, Present)
_MICROSECONDS = len("yyyy-mm-dd hh:mm:ss.ffffff")
_COUNTED = (kinds.Date, kinds.Time, kinds.Timestamp)


@dataclass(frozen=True)
class Overflow:
    """What becomes of a column's values that the target cannot hold."""

    policy: Literal["null", "clamp"]
    kind: kinds.Kind
    """The kind of what the export sends."""
    steps: tuple[Step, ...]
    raw: Field
    """The column as its source has it."""

    def source_type(self, system: System) -> str:
        """The declared type of `relaxed`."""
        return _base(self, system)[1]

    def relaxed(self, system: System, variant: str) -> Relaxed | None:
        """Apply the policy in the source's SQL; None if that cannot tell what fits.

        Args:
            system: the source's.
            variant: of its digest writer.
        """
        return self.of(_base(self, system)[0], system, variant)

    def of(self, x: str, system: System, variant: str) -> Relaxed | None:
        """Apply the policy to an expression that stands for the column; see `relaxed`."""
        conditions: list[str] = []
        value = x
        for step in self.steps:
            if isinstance(step, _WITHOUT_GUARD):
                continue
            if isinstance(step, Items):
                stepped = self._items(step, value, system, variant)
            else:
                stepped = self._guarded(step, value, system, variant)
            if stepped is None:
                return None
            if stepped.changed == NEVER:
                continue
            conditions.append(stepped.changed)
            # where all conditions are of the value as it came, one CASE is enough
            if self.policy == "clamp" or isinstance(step, Items):
                value = stepped.value
        changed = " OR ".join(f"({condition})" for condition in conditions)
        if conditions and self.policy == "null" and value == x:
            value = f"CASE WHEN {changed} THEN NULL ELSE {x} END"
        return Relaxed(value, changed)

    def _guarded(self, step: Step, x: str, system: System, variant: str) -> Relaxed | None:
        condition = self._unfit(step, x, system, variant)
        if not condition or self.policy == "null":
            return None if condition is None else Relaxed(x, condition)
        if isinstance(step, Unreplaced | UtcOffset):
            # what is compared is the text as it came, and the instant
            return Relaxed(x, condition)
        nearest = self._nearest(step, x, system, variant)
        if nearest is None:
            # there is no nearest value: one that does not fit is refused
            return Relaxed(x, NEVER)
        return Relaxed(f"CASE WHEN {condition} THEN {nearest} ELSE {x} END", condition)

    def _items(self, step: Items, x: str, system: System, variant: str) -> Relaxed | None:
        """The same of a list's elements, each by itself."""
        own = _sql(system)
        assert isinstance(self.kind, kinds.Array) and self.raw.item is not None
        items = Overflow(self.policy, self.kind.item, (step.step,), self.raw.item)
        item = items.of(ITEM, system, variant)
        if item is None or item.changed == NEVER:
            return item and Relaxed(x, NEVER)
        return Relaxed(own.each(x, item.value), own.any(x, item.changed))

    def _unfit(self, step: Step, x: str, system: System, variant: str) -> str | None:
        """The condition that a value breaks a step's guard; None if SQL cannot tell."""
        if (limits := self._limits(step)) is not None:
            return _outside(self.kind, x, *limits)
        if (unit := self._unit(step)) is not None:
            return f"{x} % {unit} <> 0"
        return _sql(system).unfit(step, self.kind, self.raw, x, variant)

    def _nearest(self, step: Step, x: str, system: System, variant: str) -> str | None:
        if (limits := self._limits(step)) is not None:
            low, high = limits
            if isinstance(self.kind, kinds.Integer) and self.kind.low >= low:
                return str(high)
            return f"CASE WHEN {x} < {low} THEN {low} ELSE {high} END"
        if (unit := self._unit(step)) is not None:
            # the sign of % is the dividend's on some systems
            return f"{x} - (({x} % {unit}) + {unit}) % {unit}"
        return _sql(system).nearest(step, x, variant)

    def _limits(self, step: Step) -> tuple[int, int] | None:
        """The least and the greatest number that fits, in the unit of the canonical form."""
        if isinstance(step, Within):
            factor = 10 if self._ticks else 1
            return step.low * factor, step.high * factor
        if isinstance(step, TextWithin):
            return self._number(step.low), self._number(step.high)
        if isinstance(step, DecimalCast) and pa.types.is_integer(step.type):
            bits, signed = step.type.bit_width, pa.types.is_signed_integer(step.type)
            room = kinds.signed(bits) if signed else kinds.unsigned(bits)
            return room.low, room.high
        return None

    def _unit(self, step: Step) -> int | None:
        """What a number has to be a multiple of."""
        if isinstance(step, Decimals):
            return 10 ** ((7 if self._ticks else 6) - step.digits)
        if isinstance(step, Whole):
            nanoseconds = isinstance(self.kind, kinds.Time) and self.kind.digits > 6
            unit = step.unit if nanoseconds else step.unit * 1_000
            return unit // (100 if self._ticks else 1_000)
        return None

    @property
    def _ticks(self) -> bool:
        """Whether the canonical form counts 100 nanoseconds rather than microseconds."""
        return isinstance(self.kind, kinds.Timestamp | kinds.Time) and self.raw.scale > 6

    def _number(self, text: str) -> int:
        moment = dt.datetime.fromisoformat(text[:_MICROSECONDS]) - dt.datetime(1970, 1, 1)
        micros = moment // dt.timedelta(microseconds=1)
        return micros * 10 + int(text[_MICROSECONDS:] or 0) if self._ticks else micros


def _base(overflow: Overflow, system: System) -> tuple[str, str]:
    """What stands for the column, and its declared type: of dates and times their numbers."""
    own, raw, kind = _sql(system), overflow.raw, overflow.kind
    value, integer = raw.value("source", system.dialect), integer_type(system)
    if raw.kind == "text" and raw.rendered is not None:
        return value, system.types.text
    if isinstance(kind, _COUNTED):
        return f"({own.number(raw, value)})", integer
    if isinstance(kind, kinds.Array) and isinstance(kind.item, _COUNTED):
        assert raw.item is not None
        return own.each(value, f"({own.number(raw.item, ITEM)})"), f"{integer}[]"
    return own.plain(raw, value)


def integer_type(system: System) -> str:
    """A system's type for 64-bit integers."""
    return str(system.types.default(kinds.signed(64)))


def _sql(system: System) -> OverflowSql:
    own = system.overflow
    assert own is not None, f"{system} has no SQL for on_overflow"
    return own


def _outside(kind: kinds.Kind, x: str, low: int, high: int) -> str:
    """The condition that a number is beyond one of the limits that those of its kind can exceed."""
    least, greatest = (kind.low, kind.high) if isinstance(kind, kinds.Integer) else (None, None)
    parts = [] if least is not None and least >= low else [f"{x} < {low}"]
    parts += [] if greatest is not None and greatest <= high else [f"{x} > {high}"]
    return " OR ".join(parts)
