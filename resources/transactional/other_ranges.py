"""What a publishing transaction does to rows of the table beyond its own range.

A trigger may write there, and no digest of the range shows it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tableferry.resources.digest.same_rows import SameRows, Summed
from tableferry.resources.errors import RangeBusy
from tableferry.resources.tables import staging_prefix

if TYPE_CHECKING:
    from tableferry.resources.transactional.load import TransactionalLoad

MOST_ROWS = 100_000
"""Of other ranges, that are digested with each range: twice, and by one transaction at a time."""

ALONE_SECONDS, TRY_SECONDS = 3600, 10
"""How long a transaction waits for those before it, and how long at a time."""


class OtherRanges(Protocol):
    """Looks at the rows of the other ranges before and after the range is written."""

    def before(self) -> None:
        """Take down what there is. Nothing is written yet."""

    def changed(self, written: Sequence[int]) -> str | None:
        """What became of them, in words; None if they are as they were.

        Args:
            written: how many rows each statement has changed that brought the staged rows in.
        """


def other_ranges(load: TransactionalLoad[Any], same: SameRows) -> OtherRanges:
    """By what the server counts of a transaction, where it does; else by digests."""
    touched = load.sql.touched(load.table)
    return CountedByServer(load, touched) if touched else Digested(load, same)


@dataclass
class CountedByServer:
    """The server tells how many rows the transaction has written in all: if they are more than the
    range's, the others are searched for rows that it has made."""

    load: TransactionalLoad[Any]
    touched: str
    _before: list[int] = field(default_factory=list, init=False)

    def before(self) -> None:
        """See `OtherRanges`."""
        self._before = self._counted()

    def changed(self, written: Sequence[int]) -> str | None:
        """See `OtherRanges`. A deleted row cannot be searched for."""
        load = self.load
        done = [now - then for now, then in zip(self._counted(), self._before, strict=True)]
        *first, inserted = written
        updates = load.options.mode.updates_known
        ours = [inserted, sum(first) if updates else 0, 0 if updates else sum(first)]
        if done == ours:
            return None
        own = load.plan.target_range(load.key_range)
        made = int(load.session.query(load.sql.made_elsewhere(load.table, own))[0][0])
        deleted = max(0, done[2] - ours[2])
        if not made and not deleted:
            return None
        return f"{made} rows of other ranges would be changed, and {deleted} rows more be deleted"

    def _counted(self) -> list[int]:
        """Rows that were inserted, updated and deleted."""
        return [int(number) for number in self.load.session.query(self.touched)[0]]


@dataclass
class Digested:
    """The sum of the other rows' digests, unless there are many of them. Ranges of this table are
    published one after the other then, so that none changes what is the rest of another."""

    load: TransactionalLoad[Any]
    same: SameRows
    _before: Summed | None = field(default=None, init=False)

    def before(self) -> None:
        """See `OtherRanges`."""
        load = self.load
        count = load.sql.count(load.table, self._others)
        if int(load.session.query(count)[0][0]) <= MOST_ROWS:
            self._be_alone()
            self._before = self._summed()

    def changed(self, written: Sequence[int]) -> str | None:
        """See `OtherRanges`."""
        if self._before is None or self._summed() == self._before:
            return None
        return "rows of other ranges would be changed"

    @property
    def _others(self) -> str:
        own = self.load.plan.target_range(self.load.key_range)
        # a key that is NULL is in no bounded range
        return f"CASE WHEN {own} THEN 0 ELSE 1 END = 1"

    def _summed(self) -> Summed:
        load, others = self.load, self._others
        if not load.options.mode.updates_known:
            return self.same.shown(load.session.query, others)
        # a row whose key is another now moves into this range
        kept = load.sql.kept_rows(load.plan, load.table, load.staging, others)
        return self.same.of_rows(load.session.query, kept)

    def _be_alone(self) -> None:
        load = self.load
        alone = load.sql.alone(f"{staging_prefix(load.plan.target)}alone", TRY_SECONDS)
        until = time.monotonic() + ALONE_SECONDS
        while int(load.session.query(alone)[0][0]) < 0:
            if time.monotonic() >= until:
                raise RangeBusy(
                    f"{load.table} range {load.key_range.name}: another range of it is being "
                    f"published since {ALONE_SECONDS} s"
                )
