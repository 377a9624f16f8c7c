"""The rows by which a range of a target differs from its source."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import filtered
from tableferry.resources.tables import TableRef


@dataclass(kw_only=True)
class Delta:
    """The rows that have to be written by themselves to a range of a target, and how to select
    them; none if the range is written as a whole.

    Rows are known by their primary key: a condition lists the values of the key column, which an
    index may serve, and the digests of the whole primary key, which make it exact. A statement has
    a limited length, so that there may be several conditions, which share no row.
    """

    inserted: int = 0
    """Rows that only the source has."""
    updated: int = 0
    """Rows with the same primary key and other values."""
    deleted: int = 0
    """Rows that only the target has, unless the write mode keeps them."""
    read: tuple[str, ...] = ()
    """Conditions in the source's SQL for the rows to insert or update."""
    delete: tuple[str, ...] = ()
    """Conditions in the target's SQL for the rows to delete."""

    @property
    def moved(self) -> int:
        """The number of rows that go from source to target."""
        return self.inserted + self.updated

    def parts(self, plan: CopyPlan) -> list[CopyPlan]:
        """The plans that read the rows to insert or update, one after the other."""
        return [replace(plan, where=filtered(rows, plan.where)) for rows in self.read]

    def prove(self, reader: Endpoint, table: TableRef) -> int | None:
        """Compare the whole range, as a session sees it in a table, with its source.

        Returns:
            The range's rows; None if it is written as a whole, and was compared in staging.

        Raises:
            TableferryError: they do not agree.
        """
        return None
