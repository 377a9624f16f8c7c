"""Marks of rows that the source has no more, in a column that only the target has."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.resources.contract.system import System
from tableferry.resources.types.column import Column


@dataclass(frozen=True)
class Mark:
    """A column that says of a row whether, or since when, its source has it no more.

    A row is marked by a moment or by a flag: otherwise the column is NULL, or the flag is 0.
    """

    column: Column
    flag: bool = False
    """Whether the column is a boolean or a number, not a moment."""

    def unmarked(self, system: System) -> str:
        """Write the condition that a row is not marked."""
        name = system.quote(self.column.name)
        # a text constant is taken for a boolean as well as for a number
        return f"({name} IS NULL OR {name} = '0')" if self.flag else f"{name} IS NULL"

    def setting(self, system: System) -> str:
        """Write the assignment that marks a row."""
        value = "'1'" if self.flag else system.dialect.now
        return f"{system.quote(self.column.name)} = {value}"

    def clearing(self, system: System) -> str:
        """Write the assignment that removes the mark of a row."""
        value = "'0'" if self.flag else "NULL"
        return f"{system.quote(self.column.name)} = {value}"
