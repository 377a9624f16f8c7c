"""How the values of one column become those of another."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tableferry.resources.types.decimals import Scaled
from tableferry.resources.types.export import Export
from tableferry.resources.types.kinds import Kind, Text
from tableferry.resources.types.slot import Slot
from tableferry.resources.types.steps import Cast, Step, TimeText, View
from tableferry.resources.types.timestamp_text import ParseTimestamp

UNGUARDED = (Cast, Scaled, View, TimeText, ParseTimestamp)


@dataclass(frozen=True)
class Conversion:
    """The conversion of one column."""

    source: Export
    slot: Slot
    arrow: pa.DataType
    steps: tuple[Step, ...]
    as_text: bool
    """The source casts the value to text."""

    @property
    def sent(self) -> Kind:
        """What the values are that the steps are for."""
        return (self.source.text_kind or Text()) if self.as_text else self.source.kind

    @property
    def guarded(self) -> bool:
        """Whether there are values that do not pass."""
        return not all(isinstance(step, UNGUARDED) for step in self.steps)
