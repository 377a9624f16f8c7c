"""A cheap summary of one range of a source, which tells whether its rows changed since."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # figures are measured in the SQL of systems, which know fingerprints
    from tableferry.resources.digest.measure import KnownFigures


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
