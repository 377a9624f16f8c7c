"""What a run does to one column of a target, or to the table."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.assets.planning.columns.hop_columns import target_columns
from tableferry.assets.planning.servers import Servers
from tableferry.resources.crash_points import reached
from tableferry.resources.errors import SchemaDrift, StatementFailed, concerning
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

    @property
    def shown(self) -> str:
        """What a dry run shows of it, if it takes a statement."""
        return next(iter(self.statements), "")

    @property
    def foreseen(self) -> str:
        """What is told of it before."""
        return f"a run will alter {self.table}: {self.shown}" if self.statements else self.done

    def execute(self, servers: Servers) -> None:
        """Send the first of the statements that the server knows.

        Raises:
            SchemaDrift: the server refuses it, and why.
        """
        endpoint = servers.endpoint(self.table)
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


@dataclass(frozen=True)
class Drop(Change):
    """The drop of an empty table of ours that does not fit; the run then creates it again.

    `name` is the table's identity.
    """

    @property
    def shown(self) -> str:
        """See `Change.shown`."""
        return f"-- {self.table} is empty and does not fit: it is dropped, and recreated"

    @property
    def foreseen(self) -> str:
        """See `Change.foreseen`."""
        return f"{self.table} is empty and does not fit: a run will recreate it"

    def execute(self, servers: Servers) -> None:
        """Drop the table if it is still the one that was planned, and empty."""
        with concerning(f"{self.table}: is not recreated"):
            if not servers.target(self.table).drop_empty(self.table, self.name):
                raise SchemaDrift("somebody has written to it since it was planned; run it again")
