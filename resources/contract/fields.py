"""The columns of a hop, as they are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tableferry.resources.contract.dialect import Dialect
from tableferry.resources.types.type_map import Column

Side = Literal["source", "target"]
Kind = Literal[
    "integer", "boolean", "decimal", "float", "text", "bytes", "date", "time", "timestamp", "uuid",
    "array",
]  # fmt: skip
Form = Literal["i", "b", "d", "f", "r", "D", "t", "T", "Z", "u", "s", "p"]
"""How a field of `tab_separated` rows is written, see `resources.digest.native`: an integer,
boolean, decimal, double, real, date, time, timestamp without and with time zone, uuid, text, or a
text whose last blanks carry no meaning. Such rows carry no bytes and no arrays."""


@dataclass(frozen=True)
class Relaxed:
    """SQL of a value after an overflow policy, and of the condition that the policy changed it."""

    value: str
    changed: str


@dataclass(frozen=True)
class Field:
    """A column on both sides of a hop, and what is compared of it."""

    name: str
    """The column's name in the target."""
    kind: Kind
    source: Column
    target: Column
    rendered: str | None = None
    """The source's SQL of what the target holds, if that is a text or computed."""
    target_rendered: str | None = None
    """The target's SQL, if texts of both sides are compared."""
    scale: int = 0
    padded: bool = False
    """Whether the target pads texts with blanks, so that trailing ones carry no meaning."""
    single: bool = False
    """Whether a side keeps floats in 32 bits, to which texts are rounded first."""
    item: Field | None = None
    """The elements of an array."""
    relaxed: Mapping[str, Relaxed] = field(default_factory=dict, hash=False)
    """The source's SQL after an overflow policy, by variant of its digest writer; empty if there is
    no policy. `source` then has the type that is compared."""

    def column(self, side: Side) -> Column:
        return self.source if side == "source" else self.target

    def item_column(self, column: Column) -> Column:
        """The column of an array's elements, on the same side as a column of the array."""
        assert self.item is not None, f"{self.name} is no array"
        return self.item.source if column == self.source else self.item.target

    def rendering(self, side: Side, variant: str = "") -> str | None:
        """SQL of what is compared instead of the column's value; None if the value is compared."""
        if side == "target":
            return self.target_rendered
        return self.relaxed[variant].value if self.relaxed else self.rendered

    def value(self, side: Side, dialect: Dialect, variant: str = "") -> str:
        """SQL of the value that the target should have, in one side's dialect."""
        rendered = self.rendering(side, variant)
        return dialect.quote(self.column(side).name) if rendered is None else f"({rendered})"


Valued = tuple[Field, Column, str]
"""A field, its column on one side, and the SQL of its value there."""
