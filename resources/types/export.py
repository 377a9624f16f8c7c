"""The values that a source column holds, and the SQL that selects them exactly."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.resources.types.kinds import Kind


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
