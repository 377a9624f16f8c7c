"""The rows by which a range of a target differs from its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fingerprint import KnownFigures
from tableferry.resources.tables import TableRef

Proof = Callable[[Endpoint, TableRef], int]
"""Compares the whole range, as a session sees it in a table, with its source, and returns the
range's rows. Raises `TableferryError` if they do not agree."""


@dataclass(frozen=True)
class Delta:
    """The rows that have to be written to a range of a target, and how to select them.

    Rows are known by their primary key: a condition lists the values of the key column, which an
    index may serve, and the digests of the whole primary key, which make it exact. A statement has
    a limited length, so that there may be several conditions, which share no row.
    """

    inserted: int
    """Rows that only the source has."""
    updated: int
    """Rows with the same primary key and other values."""
    deleted: int
    """Rows that only the target has, unless the write mode keeps them."""
    read: tuple[str, ...]
    """Conditions in the source's SQL for the rows to insert or update."""
    delete: tuple[str, ...]
    """Conditions in the target's SQL for the rows to delete."""
    staged: KnownFigures
    """The source's figures of the rows to insert or update."""
    source: KnownFigures
    """The source's figures of all rows of the range."""
    kept: tuple[int, int] = (0, 0)
    """The rows that only the target has and that stay: their number, and the sum of their
    digests."""

    @property
    def moved(self) -> int:
        """The number of rows that go from source to target."""
        return self.inserted + self.updated
