"""What a run does to one column of a target."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.assets.planning.columns.hop_columns import target_columns
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.crash_points import reached
from tableferry.resources.errors import SchemaDrift, StatementFailed
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

ANEW = "`ferry run --recreate` recreates the table"


@dataclass(frozen=True)
class Change:
    """A column of a target that a run renames, widens, drops, empties or adds."""

    table: TableRef
    name: str
    """The column's, once that is done."""
    after: Column | None
    """The column, once that is done; None if it is dropped."""
    statements: tuple[str, ...]
    """Those that do it, of which servers take the first that they know; files need none."""
    done: str
    """What is told once it is done."""
    cannot: str = ""
    """What cannot be done, if the server refuses; empty where its words are enough."""
    impossible: str = ""
    """Why the server will refuse; empty if that is not known."""
    adds: bool = False
    """Whether the column is new."""

    def execute(self, endpoint: Endpoint) -> None:
        """Send the first of the statements that the server knows.

        Raises:
            SchemaDrift: the server refuses to rename or widen the column, and why.
        """
        for statement in self.statements:
            try:
                endpoint.execute(statement)
            except StatementFailed as error:
                # another run of the transfer may have added it first
                if self.adds and self.name in (target_columns(endpoint, self.table) or {}):
                    return
                if not self.cannot:
                    raise
                # a failure that may pass says nothing about what the server knows
                if error.transient or statement == self.statements[-1]:
                    raise SchemaDrift(f"{self.cannot}: {error}; {ANEW}") from None
            else:
                reached("during_evolution")
                return
