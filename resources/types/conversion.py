"""How a source column's values become a target column's."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tableferry.resources.types.export import Export
from tableferry.resources.types.kinds import Kind, Text
from tableferry.resources.types.slot import Slot
from tableferry.resources.types.steps import Step, is_guard


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
        """The kind of the values that the steps convert."""
        return (self.source.text_kind or Text()) if self.as_text else self.source.kind

    @property
    def guarded(self) -> bool:
        """Whether some values may be refused."""
        return any(map(is_guard, self.steps))
