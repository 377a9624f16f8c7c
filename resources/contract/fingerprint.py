"""A cheap summary of one range of a source, which tells whether its rows changed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HISTORY = "_"
"""In a definition, before the history of the server: see `Source.history`."""

LONGEST = 12
"""Characters of a definition: a tag of Dagster's, which has 63, holds three hashes besides."""


@dataclass(frozen=True)
class SourceFingerprint:
    """One range of a source table: its rows, and a value that changes when they do."""

    rows: int
    value: str
    definition: str = ""
    """Of the row digest that the value is made of, if it is, and `HISTORY` with the server's, if it
    hangs on that: values of different definitions tell nothing about each other."""
    refused: str | None = None
    """Why its rows cannot be read, where they cannot."""
    greatest: str | None = field(default=None, compare=False)
    """The greatest watermark, ISO 8601 in UTC if it is a time; None if it was not asked for, or if
    there is none that is finite."""
    source_figures: KnownFigures | None = field(default=None, compare=False)
    """The source's side of a checksum, where that has been read by the way."""


Figures = dict[str, Any]
"""`{"rows": 3, "digest": "-81", "amount": {"sum": "6.00", "min": "1.00", "max": "3.00"}}`"""


@dataclass(frozen=True)
class KnownFigures:
    """Figures of rows that need not be asked for, and the digest that they were computed by.

    They tell nothing about figures by another digest. Without a digest there is only the row count.
    """

    digest: str
    figures: Figures
    how: str = ""
    """What the figures were computed of, for the report; '' where the check's level says it."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """The number of values that `on_overflow` changed, by column."""
