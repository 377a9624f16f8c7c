"""How a column leaves its source: what it can hold, and the SQL that selects it exactly."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.resources.types.kinds import Kind


@dataclass(frozen=True)
class Export:
    """The ways to select a column; `{}` stands for its quoted name in every expression."""

    kind: Kind
    arrow: str
    """For record batches."""
    text: str | None
    """For text rows that ClickHouse reads as TabSeparated; None where there is no exact one, or
    where `resources.sqlserver.tsv_text` makes it."""
    as_text: str | None
    """A text that tells every value from every other, for a target column of a text type; None
    where the client makes it of the record batch."""
    text_kind: Kind | None = None
    """What `as_text` yields, if that is not plain text of any length."""
    text_of_arrow: bool = False
    """The record batch has all of the value, so that the client can make the text of it."""
    refuse: str | None = None
    """A condition under which `arrow` would lose something unseen, so that the query must fail."""
    refuse_text: str | None = None
    """The same for `as_text`."""
    refuse_reason: str = ""
    refuse_type: str = ""
    """The type of `arrow`, to which the failing cast of the message goes."""


@dataclass(frozen=True)
class Refusal:
    """A type that does not travel unless its column is declared to travel as text."""

    why: str
    as_text: str | None = None
    """Expression of the text that would travel; None if there is none."""
    note: str = ""
    """What that text is."""
