"""The write modes: what new rows of a range do to the rows in the target."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class WriteMode(StrEnum):
    """A write mode, by its properties.

    Other modules use the properties and never compare modes, so that a new mode is a line here and
    its SQL.
    """

    keeps_known: bool
    """Whether rows of the target whose primary key is loaded again keep their values."""
    updates_known: bool
    """Whether rows of the target whose primary key is loaded again get the new values."""
    whole_table: bool
    """Whether a shadow table collects all ranges and then replaces the target."""
    moves: bool
    """Whether rows are written at all; otherwise both tables are only compared."""

    def __new__(
        cls,
        name: str,
        keeps_known: bool = False,
        updates_known: bool = False,
        whole: bool = False,
        moves: bool = True,
    ) -> Self:
        mode = str.__new__(cls, name)
        mode._value_ = name
        mode.keeps_known, mode.updates_known, mode.whole_table = keeps_known, updates_known, whole
        mode.moves = moves
        return mode

    REPLACE = "replace"
    APPEND = "append", True
    UPSERT = "upsert", False, True
    SWAP = "swap", False, False, True
    NONE = "none", False, False, False, False

    @property
    def keeps_rows(self) -> bool:
        """Whether rows stay that the source no longer has."""
        return self.keeps_known or self.updates_known

    @property
    def needs_identity(self) -> bool:
        """Whether it needs a primary key."""
        return self.updates_known

    @property
    def replaces_in_place(self) -> bool:
        """Whether publishing a range shows readers exactly the staged rows."""
        return not self.keeps_rows and not self.whole_table

    @property
    def in_place(self) -> WriteMode:
        """The mode for a range in the table that readers see."""
        return WriteMode.REPLACE if self.whole_table else self
