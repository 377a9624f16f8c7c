"""A column as both sides of a hop hold it, and what is compared of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tableferry.resources.contract.dialect import Dialect
from tableferry.resources.types.column import Column

Side = Literal["source", "target"]


Kind = Literal[
    "integer", "boolean", "decimal", "float", "text", "bytes", "date", "time", "timestamp", "uuid",
    "array",
]  # fmt: skip


@dataclass(frozen=True)
class Relaxed:
    """A value as the policy makes it, and the condition that the policy changed it."""

    value: str
    changed: str


@dataclass(frozen=True)
class Field:
    """A column as both sides hold it, and what is compared of it."""

    name: str
    """The column's name in the target."""
    kind: Kind
    source: Column
    target: Column
    rendered: str | None = None
    """The source's SQL of what the target holds, where that is a rendering or computed."""
    target_rendered: str | None = None
    """The target's SQL of the same, where both sides' renderings are compared."""
    scale: int = 0
    padded: bool = False
    """Whether the target pads texts with blanks, so that trailing ones carry no meaning."""
    single: bool = False
    """Whether a side keeps a float in 32 bits: its text is rounded to them first."""
    item: Field | None = None
    """The elements of an array."""
    relaxed: Mapping[str, Relaxed] = field(default_factory=dict, hash=False)
    """What the transfer makes of values that do not fit, if it may change them, in the source's SQL
    by variant of its digest writer: `source` is declared as what is compared then."""

    def column(self, side: Side) -> Column:
        return self.source if side == "source" else self.target

    def rendering(self, side: Side) -> str | None:
        """SQL of the text that is compared instead of the value; None if the value is."""
        return self.rendered if side == "source" else self.target_rendered

    def value(self, side: Side, dialect: Dialect, variant: str = "") -> str:
        """SQL of the column's value on one side, as it should stand in the target.

        Args:
            side: the side.
            dialect: its system's.
            variant: of its system's digest writer.
        """
        if side == "source" and self.relaxed:
            return f"({self.relaxed[variant].value})"
        rendered = self.rendering(side)
        if rendered is not None:
            return f"({rendered})"
        return dialect.quote(self.column(side).name)


Valued = tuple[Field, Column, str]
"""What a column is compared as, how one side declares it, and the SQL of its value there."""
