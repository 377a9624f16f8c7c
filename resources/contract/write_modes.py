"""The write modes: what a range's new rows do to those that are in the target."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class WriteMode(StrEnum):
    """A way to write, by what it means for a range and its table.

    Whoever needs to know asks for one of the properties, never for a mode by its name: a new mode
    is one more line here, and the SQL that makes it.
    """

    keeps_known: bool
    """Rows of the target whose primary key is loaded again stay as they are."""
    updates_known: bool
    """Rows of the target whose primary key is loaded again get the new values."""
    whole_table: bool
    """All ranges are collected in a shadow table, which takes the target's place as a whole."""

    def __new__(
        cls, name: str, keeps_known: bool = False, updates_known: bool = False, whole: bool = False
    ) -> Self:
        mode = str.__new__(cls, name)
        mode._value_ = name
        mode.keeps_known, mode.updates_known, mode.whole_table = keeps_known, updates_known, whole
        return mode

    REPLACE = "replace"
    APPEND = "append", True
    UPSERT = "upsert", False, True
    SWAP = "swap", False, False, True

    @property
    def keeps_rows(self) -> bool:
        """Whether rows stay that the source has no more."""
        return self.keeps_known or self.updates_known

    @property
    def needs_identity(self) -> bool:
        """Whether it cannot do without a primary key that tells rows apart."""
        return self.updates_known

    @property
    def replaces_in_place(self) -> bool:
        """Whether a range that is published is exactly what was staged, and readers see it then."""
        return not self.keeps_rows and not self.whole_table

    @property
    def in_place(self) -> WriteMode:
        """The mode of a range that is where readers see it already."""
        return WriteMode.REPLACE if self.whole_table else self
