"""Writes in the source's SQL what `on_overflow` makes of a column's values, to compare them.

The export changes values by Arrow's kernels, see `types.steps`. Here the source's server computes
the same from its own values, so that a mistake of either shows. Both share only the limits, and the
target itself enforces those.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace

import pyarrow as pa

from tableferry.resources.contract.digest_writer import ITEM, NEVER, OverflowSql
from tableferry.resources.contract.fields import Field, Relaxed
from tableferry.resources.contract.system import System
from tableferry.resources.types import kinds, timestamp_text
from tableferry.resources.types.decimals import DecimalCast
from tableferry.resources.types.steps import (
    Change,
    Items,
    Present,
    Step,
    Unreplaced,
    Whole,
    Within,
    integer_range,
    is_guard,
)

_MICROSECONDS = len("yyyy-mm-dd hh:mm:ss.ffffff")
_COUNTED = kinds.Date | kinds.Time | kinds.Timestamp


@dataclass(frozen=True)
class Overflow:
    """Writes how a policy changes the values of a column that the target cannot hold."""

    policy: Change
    kind: kinds.Kind
    """The kind of the exported values."""
    steps: tuple[Step, ...]
    raw: Field
    """The source's column, without the policy."""
    system: System
    variant: str = ""
    """The digest writer's variant."""

    def relaxed(self) -> Relaxed | None:
        """Apply the policy to the column; None if SQL cannot tell what fits."""
        return self._apply(self.base[0]) if self.system.overflow else None

    @property
    def base(self) -> tuple[str, str]:
        """SQL of the column's value, and its type. Dates and times are represented by numbers."""
        writer, raw, item = self._writer, self.raw, self.raw.item
        value, integer = raw.value("source", self.system.dialect), integer_type(self.system)
        if raw.kind == "text" and raw.rendered is not None:
            return writer.text(value), self.system.types.text
        if isinstance(self.kind, _COUNTED):
            return f"({writer.number(raw, value)})", integer
        if item and isinstance(self.kind, kinds.Array) and isinstance(self.kind.item, _COUNTED):
            return writer.each(value, f"({writer.number(item, ITEM)})"), f"{integer}[]"
        return writer.plain(raw, value)

    @property
    def _writer(self) -> OverflowSql:
        assert self.system.overflow is not None, f"{self.system} has no SQL for on_overflow"
        return self.system.overflow

    def _apply(self, x: str) -> Relaxed | None:
        conditions: list[str] = []
        value = x
        for step in self.steps:
            if not is_guard(step) or isinstance(step, Present):
                continue
            if isinstance(step, Items):
                stepped = self._items(step, value)
            else:
                stepped = self._guarded(step, value)
            if stepped is None:
                return None
            if stepped.changed == NEVER:
                continue
            conditions.append(stepped.changed)
            # a single CASE is enough if all conditions are on the original value
            if self.policy == "clamp" or isinstance(step, Items):
                value = stepped.value
        changed = " OR ".join(f"({condition})" for condition in conditions)
        if conditions and self.policy == "null" and value == x:
            value = f"CASE WHEN {changed} THEN NULL ELSE {x} END"
        return Relaxed(value, changed)

    def _guarded(self, step: Step, x: str) -> Relaxed | None:
        condition = self._unfit(step, x)
        if not condition or self.policy == "null":
            return None if condition is None else Relaxed(x, condition)
        if isinstance(step, Unreplaced | timestamp_text.UtcOffset):
            # the original text, or the instant, is compared
            return Relaxed(x, condition)
        nearest = self._nearest(step, x)
        if nearest is None:
            # a value without a nearest one is refused
            return Relaxed(x, NEVER)
        return Relaxed(f"CASE WHEN {condition} THEN {nearest} ELSE {x} END", condition)

    def _items(self, step: Items, x: str) -> Relaxed | None:
        """Apply the policy to each element of a list."""
        assert isinstance(self.kind, kinds.Array) and self.raw.item is not None
        items = replace(self, kind=self.kind.item, steps=(step.step,), raw=self.raw.item)
        item = items._apply(ITEM)
        if item is None or item.changed == NEVER:
            return item and Relaxed(x, NEVER)
        return Relaxed(self._writer.each(x, item.value), self._writer.any(x, item.changed))

    def _unfit(self, step: Step, x: str) -> str | None:
        """Write the condition that a value breaks a step's guard; None if SQL cannot tell."""
        if (limits := self._limits(step)) is not None:
            return _outside(self.kind, x, *limits)
        if (unit := self._unit(step)) is not None:
            return f"{x} % {unit} <> 0"
        return self._writer.unfit(step, self.kind, self.raw, x, self.variant)

    def _nearest(self, step: Step, x: str) -> str | None:
        if (limits := self._limits(step)) is not None:
            low, high = limits
            if isinstance(self.kind, kinds.Integer) and self.kind.low >= low:
                return str(high)
            return f"CASE WHEN {x} < {low} THEN {low} ELSE {high} END"
        if (unit := self._unit(step)) is not None:
            # the sign of % is the dividend's on some systems
            return f"{x} - (({x} % {unit}) + {unit}) % {unit}"
        return self._writer.nearest(step, x, self.variant)

    def _limits(self, step: Step) -> tuple[int, int] | None:
        """The least and the greatest number that fit, in the unit of the canonical form."""
        if isinstance(step, Within):
            factor = 10 if self._ticks else 1
            return step.low * factor, step.high * factor
        if isinstance(step, timestamp_text.TextWithin):
            return self._number(step.low), self._number(step.high)
        if isinstance(step, DecimalCast) and pa.types.is_integer(step.type):
            return integer_range(step.type)
        return None

    def _unit(self, step: Step) -> int | None:
        """The number that fitting values are multiples of."""
        if isinstance(step, timestamp_text.Decimals):
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


def integer_type(system: System) -> str:
    """A system's type for 64-bit integers."""
    return str(system.types.default(kinds.signed(64)))


def _outside(kind: kinds.Kind, x: str, low: int, high: int) -> str:
    """Write the condition that a number exceeds a limit; limits beyond its kind are left out."""
    least, greatest = (kind.low, kind.high) if isinstance(kind, kinds.Integer) else (None, None)
    parts = [] if least is not None and least >= low else [f"{x} < {low}"]
    parts += [] if greatest is not None and greatest <= high else [f"{x} > {high}"]
    return " OR ".join(parts)
