"""Compares what a publishing transaction is about to show with what was audited in staging.

It also counts what the transaction changes outside its own range: a trigger may write there, and no
digest of the range shows it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import (
    ShownDiffers,
    having,
    present,
    with_remedies,
)
from tableferry.resources.contract.target_options import Mark, TargetOptions, require_staged
from tableferry.resources.digest.same_rows import Ask, SameRows, Summed, differs
from tableferry.resources.errors import InputError, RangeBusy, ReceiptMismatch
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef, staging_prefix
from tableferry.resources.transactional.statements import Statements

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


ROLLED_BACK = "rolled back, nothing is visible"


@dataclass
class CountAudit:
    """Whether a publishing transaction shows as many rows as were staged, and the rows that stay.

    Other audits see more, and so what triggers add to these counts.
    """

    load: TransactionalLoad[Any]
    staged: int
    """The number of rows that were staged when they were audited."""
    shown: int | None = field(default=None, init=False)
    """Rows of the range as the transaction has seen them, if it was to read them all."""
    _stay: int = field(default=0, init=False)
    _others: ChangeCounts | Digested | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Before the transaction, as in it a scan might wait for that of another range, and it for
        this one."""
        if self.load.options.mode.updates_known and self.load.options.keeps_rows(self.load.plan):
            self._stay = self._count_kept()

    def _count_kept(self) -> int:
        load = self.load
        kept = load.sql.count_kept(load.plan, load.table, load.staging, load.in_range)
        return load.number(kept)

    def begin(self) -> None:
        """Look at the table before a transaction writes to it."""
        load, self.shown = self.load, None
        if load.options.audits_shown:
            at = load.staging, load.table, load.columns
            self.same = SameRows.of(load.resource, load.plan, *at)
            self._others = other_ranges(load, self.same)

    def may_remove(self) -> bool:
        """Whether there are rows to delete or mark, if any can be.

        Raises:
            InputError: rows of other tables would be deleted with them.
        """
        load, options = self.load, self.load.options
        if options.removes and not self._count_kept():
            return False
        if options.mark is None and load.publishing.removes:
            ask = load.session.query
            require_deletable(ask, load.sql, load.plan, load.key_range, options, load.table)
        return True

    def after(self, written: Changes) -> None:
        """Compare what the transaction has written, before it commits.

        Args:
            written: the rows that the statements have changed.

        Raises:
            ReceiptMismatch: they are others than those that were staged.
        """
        load, staged, written_rows = self.load, self.staged, written.updated + written.inserted
        wrong = ""
        if load.options.mode.updates_known:
            if load.publishing.updates and written_rows != staged:
                wrong = f"{written.updated} updated and {written.inserted} inserted"
        elif load.options.replaces(load.plan):
            # what is deferred to the commit may change rows, too
            load.run(load.sql.run_deferred)
            self.shown = load.number(load.sql.count(load.table, load.in_range))
            wrong = "" if written.inserted == self.shown == staged else str(self.shown)
        else:
            require_staged(load.table, load.key_range, load.staged_rows(), staged, "audited")
        if wrong:
            raise ReceiptMismatch(
                f"{load.table} range {load.key_range.name}: {staged} rows were staged, "
                f"but the target would hold {wrong}; rolled back"
            )

    def committed(self) -> int:
        """Return the rows that the range has, once they are visible.

        Raises:
            ReceiptMismatch: they are not as many as were audited.
        """
        load, expected = self.load, self._stay + self.staged
        if self.shown is None:
            self.shown = load.number(load.sql.count(load.table, load.in_range))
            if self.shown != expected:
                raise ReceiptMismatch(
                    f"{load.table} range {load.key_range.name}: {expected} rows were audited and "
                    f"made visible, but it has {self.shown}: another writer, or a trigger, "
                    "changed it"
                )
        return self.shown

    def _require_unchanged(self, written: Changes) -> None:
        """Require the rows of other ranges to be as they were, if they were looked at.

        Raises:
            ShownDiffers: names what may have changed them.
        """
        others, mark = self._others, self.load.options.mark
        if others and (changed := others.changed(written.marked(mark))):
            causes = with_remedies(present(self.load.look, self.load.options.hazards))
            raise ShownDiffers(f"{changed} along with it; {ROLLED_BACK}. {causes}")


@dataclass
class ContentAudit(CountAudit):
    """The comparison of one range by the session that publishes it, before it commits.

    The range must then have the staged rows and, with `upsert`, its rows that were not staged, as
    they were when it began. Sums of digests add up, so those of both are compared at once.
    """

    _kept: Summed = field(default=Summed(0, 0), init=False)

    def begin(self) -> None:
        """See `CountAudit.begin`."""
        super().begin()
        load = self.load
        if load.options.mode.updates_known and load.options.keeps_rows(load.plan):
            kept = load.sql.kept_rows(load.plan, load.table, load.staging, load.in_range)
            self._kept = self.same.of_rows(load.session.query, kept)

    def after(self, written: Changes) -> None:
        """Run what is deferred to the commit, and compare; see `CountAudit.after`.

        Raises:
            ReceiptMismatch: another number is staged now.
            ShownDiffers: the range is not what was audited, or other ranges have changed.
        """
        load, ask = self.load, self.load.session.query
        load.run(load.sql.run_deferred)
        staged = self.same.staged(ask)
        require_staged(load.table, load.key_range, staged.rows, self.staged, "audited")
        expected = staged.plus(self._kept)
        shown = self.same.shown(ask, load.in_range)
        if shown != expected:
            alike = self._kept.rows == 0 and shown.rows == expected.rows
            columns = self.same.differing(ask, load.in_range) if alike else []
            raise differs(
                expected, shown, columns, present(load.look, load.options.hazards), ROLLED_BACK
            )
        self._require_unchanged(written)
        self.shown = shown.rows


def require_deletable(
    ask: Ask,
    sql: Statements,
    plan: CopyPlan,
    key_range: KeyRange,
    options: TargetOptions,
    table: TableRef,
) -> None:
    """Refuse to delete the rows of a range if rows of other tables would be deleted with them.

    Raises:
        InputError: names the tables.
    """
    destroying = having(options.hazards, "destroys")
    if destroying and ask(sql.any_row(table, plan.target_range(key_range))):
        raise InputError(
            f"{table} range {key_range.name}: it has rows already, and to replace them would "
            f"change other tables: {with_remedies(destroying)}"
        )
