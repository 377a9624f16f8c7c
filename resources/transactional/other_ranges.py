"""What a publishing transaction changes outside its own range.

A trigger may write there, and no digest of the range shows it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tableferry.resources.contract.target_options import Mark
from tableferry.resources.digest.same_rows import SameRows, Summed
from tableferry.resources.errors import RangeBusy
from tableferry.resources.tables import staging_prefix

if TYPE_CHECKING:
    from tableferry.resources.transactional.load import TransactionalLoad

MOST_ROWS = 100_000
"""Most rows of other ranges that are digested: twice per range, by one transaction at a time."""

ALONE_SECONDS, TRY_SECONDS = 3600, 10
"""How long a transaction waits for those before it, in all and per statement."""


def other_ranges(load: TransactionalLoad[Any], same: SameRows) -> ChangeCounts | Digested:
    """Look at the other ranges before one is written, to compare them when it has been."""
    counts = load.sql.change_counts(load.table)
    return ChangeCounts(load, counts) if counts else Digested(load, same)


class Changes(NamedTuple):
    """The rows of a table that were changed to write a range."""

    inserted: int
    updated: int
    deleted: int

    def __str__(self) -> str:
        return ", ".join(map(str, self))

    def marked(self, mark: Mark | None) -> Changes:
        """The same, if rows are marked instead of deleted."""
        return Changes(self.inserted, self.updated + self.deleted, 0) if mark else self


@dataclass
class ChangeCounts:
    """Compares by the server's counts of the rows that the transaction has written.

    If they are more than the range's, the others are searched for rows of this transaction.
    """

    load: TransactionalLoad[Any]
    query: str

    def __post_init__(self) -> None:
        self._before = self._counts()

    def changed(self, expected: Sequence[int]) -> str | None:
        """Say what has changed; None if nothing has.

        Args:
            expected: the rows that were inserted, updated and deleted to write the range.
        """
        load = self.load
        counts = [now - then for now, then in zip(self._counts(), self._before, strict=True)]
        if counts == [*expected]:
            return None
        in_range = load.plan.target_keys(load.key_range)
        new = load.sql.count_new_elsewhere(load.table, in_range)
        changed = int(load.session.query(new)[0][0])
        # deleted rows cannot be found, only counted
        deleted = max(0, counts[2] - expected[2])
        if not changed and not deleted:
            return None
        return f"{changed} rows of other ranges would be changed, and {deleted} more rows deleted"

    def _counts(self) -> list[int]:
        """The rows inserted, updated and deleted."""
        return [int(count) for count in self.load.session.query(self.query)[0]]


@dataclass
class Digested:
    """Compares by the sum of the other rows' digests, unless there are too many.

    Ranges of the table are then published one after the other, so that none changes the others of
    another.
    """

    load: TransactionalLoad[Any]
    same: SameRows
    _before: Summed | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        load = self.load
        count = load.sql.count(load.table, self._elsewhere)
        if int(load.session.query(count)[0][0]) <= MOST_ROWS:
            self._wait_until_alone()
            self._before = self._summed()

    def changed(self, expected: Sequence[int]) -> str | None:
        """See `ChangeCounts.changed`."""
        if self._before is None or self._summed() == self._before:
            return None
        return "rows of other ranges would be changed"

    @property
    def _elsewhere(self) -> str:
        in_range = self.load.plan.target_keys(self.load.key_range)
        # a NULL key is in no bounded range
        return f"CASE WHEN {in_range} THEN 0 ELSE 1 END = 1"

    def _summed(self) -> Summed:
        load, elsewhere = self.load, self._elsewhere
        if not (load.options.mode.updates_known or load.conflict):
            return self.same.shown(load.session.query, elsewhere)
        # a row whose key has changed moves into this range
        kept = load.sql.kept_rows(load.plan, load.table, load.staging, elsewhere)
        return self.same.of_rows(load.session.query, kept)

    def _wait_until_alone(self) -> None:
        load = self.load
        lock = f"{staging_prefix(load.plan.target)}alone"
        statement = load.sql.lock_transaction(lock, TRY_SECONDS)
        until = time.monotonic() + ALONE_SECONDS
        while int(load.session.query(statement)[0][0]) < 0:
            if time.monotonic() >= until:
                raise RangeBusy(
                    f"{load.table} range {load.key_range.name}: another range of the table has "
                    f"been publishing for {ALONE_SECONDS} s: see what it waits for, and run again"
                )
