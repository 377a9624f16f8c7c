"""The values that a source column and a target column hold, and how the one becomes the other."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tableferry.resources.types.kinds import Kind, Text
from tableferry.resources.types.steps import Step, is_guard


@dataclass(frozen=True)
class Slot:
    """The values that a target type holds, and the Arrow type in which the sink takes them."""

    kind: Kind
    arrow: pa.DataType
    takes_bytes: bool = False
    """Whether a text type also takes any bytes."""
    nullable: bool = True
    """Whether columns of the type can be NULL."""


@dataclass(frozen=True)
class Export:
    """How to select a column; `{}` stands for its quoted name in every expression."""

    kind: Kind
    arrow: str
    """For record batches."""
    text: str | None
    """For text rows that ClickHouse reads as TabSeparated; None if there is no exact one, or if
    `resources.sqlserver.tsv_text` writes it."""
    as_text: str | None
    """A different text for every value, for a target column of a text type; None if the client
    writes it from the record batch."""
    text_kind: Kind | None = None
    """The kind of `as_text`, if it is not plain text of any length."""
    text_of_arrow: bool = False
    """Whether the client can write the text from the record batch, which has all of the value."""
    refuse: str | None = None
    """The condition under which `arrow` would silently lose something, and the query must fail."""
    refuse_text: str | None = None
    """The same for `as_text`."""
    refuse_reason: str = ""
    refuse_type: str = ""
    """The type of `arrow`, to which the failing query casts the message."""


@dataclass(frozen=True)
class Refusal:
    """Why a type does not travel, unless as text if the user says so."""

    why: str
    as_text: str | None = None
    """The expression of that text; None if there is none."""
    note: str = ""
    """A description of that text."""


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
