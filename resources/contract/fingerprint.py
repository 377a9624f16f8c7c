"""A cheap summary of a source's range, which tells whether its rows have changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

FoundBy = Literal["row versions", "content"]

Way = Literal[
    "asked of the server",
    "digested as sent",
    "digested by the client",
    "recorded by the hop before",
]
"""How figures of a source's rows were found: by a query; of the bytes of its COPY, as the server
sent them; of what a driver delivered; or as those of a target, in the event log."""

HISTORY = "_"
"""Precedes the server's history in a definition: see `Source.history`."""

LONGEST = 12
"""Maximum length of a definition: a Dagster tag of 63 characters also holds three hashes."""


@dataclass(frozen=True)
class SourceFingerprint:
    """A range of a source table: the number of its rows, and a value that changes when they do."""

    rows: int
    value: str
    definition: str = ""
    """The definition of the row digest that the value is made of, if any, and `HISTORY` with the
    server's history, if the value depends on it. Only values with equal definitions can be
    compared."""
    refused: str | None = None
    """Why its rows cannot be read, if they cannot."""
    greatest: str | None = field(default=None, compare=False)
    """The greatest watermark, as ISO 8601 in UTC if it is a time; None if it was not requested or
    is not finite."""
    source_figures: KnownFigures | None = field(default=None, compare=False)
    """The source's side of a checksum, if the fingerprint has it."""
    row_versions: str = field(default="", compare=False)
    """A hash of the versions of the rows that the value was computed from, and of all that ties
    values to versions; '' if they are not known. As long as it is the same, so is the value."""
    segments: str = field(default="", compare=False)
    """Hashes of the contents by segment, see `resources.digest.stretches`; '' if not known."""
    unsent: bool = field(default=False, compare=False)
    """Whether the value stands for one that only the rows will show, as they are sent."""
    found_by: FoundBy | None = field(default=None, compare=False)
    """What `auto` looked at to find the value."""
    no_versions: str = field(default="", compare=False)
    """Why `auto` could not read the versions of the rows, in the server's words."""
    statement_seconds: float = field(default=0.0, compare=False)
    """How long the statement took that read its rows, maybe with those of other ranges."""
    source_seconds: float = field(default=0.0, compare=False)
    """Its share of the statements that read its rows, by the number of rows."""


Figures = dict[str, Any]
"""`{"rows": 3, "digest": "-81", "amount": {"sum": "6.00", "min": "1.00", "max": "3.00"}}`"""


@dataclass(frozen=True)
class KnownFigures:
    """Figures that need not be measured, and the digest they were computed by; '' for none.

    Figures by different digests cannot be compared.
    """

    digest: str
    figures: Figures
    way: Way = "asked of the server"
