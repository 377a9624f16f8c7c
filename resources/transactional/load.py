"""Loads one key range out of sight, and publishes it, with what it rejected, in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from tableferry.resources import crash_points, errors
from tableferry.resources.connecting.retry import retrying
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Look, having, with_remedies
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.table_sql import drop_table, most_ranges, qualified, range_number
from tableferry.resources.contract.target import TargetMoved
from tableferry.resources.contract.target_names import (
    COLUMNS,
    RANGE,
    ROW_NUMBER,
    of_ranges,
    quarantine_of,
    rejected_of,
    surplus_rejected,
)
from tableferry.resources.contract.target_options import TargetOptions, require_staged
from tableferry.resources.keys.range import KeyRange, parse_range
from tableferry.resources.tables import TableRef, staging_prefix
from tableferry.resources.transactional.delta import audit_of
from tableferry.resources.transactional.markers import MarkerTable
from tableferry.resources.transactional.preparing import create_beside
from tableferry.resources.transactional.publish_audit import Changes, CountAudit
from tableferry.resources.transactional.statements import Publishing, Statements, TargetSession
from tableferry.resources.types.type_map import Column

ROWS_AT_ONCE = 200
"""Maximum rows of one INSERT."""


def create_quarantine(sql: Statements, session: TargetSession, plan: CopyPlan) -> None:
    """Create the table beside a target that rejects rows, or give it the columns that it lacks."""
    if not plan.fitting:
        return
    target, system = plan.target, plan.target.system
    table = quarantine_of(target)
    columns = [f"{system.quote(name)} {system.types.text} NULL" for name in (RANGE, *COLUMNS)]
    create_beside(sql, session, target, table, columns)
    if not session.query(sql.column_exists(table, ROW_NUMBER)):
        name, new = system.quote(ROW_NUMBER), Column(ROW_NUMBER, system.types.text)
        session.execute(system.dialect.add_column(qualified(table), name, new))


def replace_quarantine(session: TargetSession, publication: Publication) -> None:
    """Replace what is kept of a range."""
    target, range_name = publication.plan.target, publication.key_range.name
    if publication.quarantine.rows is None:
        return
    system, table = target.system, qualified(quarantine_of(target))
    session.execute(f"DELETE FROM {table} WHERE {of_ranges(target, [range_name])}")
    names = ", ".join(map(system.quote, (RANGE, *COLUMNS)))
    kept = [*publication.quarantine.stored(range_name, system.dialect.literal)]
    for start in range(0, len(kept), ROWS_AT_ONCE):
        values = ", ".join(kept[start : start + ROWS_AT_ONCE])
        session.execute(f"INSERT INTO {table} ({names}) VALUES {values}")


def keep_quarantined(
    sql: Statements, session: TargetSession, target: TableRef, ranges: Collection[str]
) -> None:
    """Remove what is kept of other ranges than these."""
    if session.query(sql.table_exists(quarantine_of(target))):
        rest = f"NOT ({of_ranges(target, ranges)})" if ranges else "1 = 1"
        session.execute(f"DELETE FROM {qualified(quarantine_of(target))} WHERE {rest}")


RESOLVE_SECONDS = 30
"""How long a lost session may take to end before the outcome of its commit stays unknown."""

AnySession = TypeVar("AnySession", bound=TargetSession)


class StagingLost(errors.TableferryError):
    """The server has restarted, and the unlogged staging table was emptied."""

    transient = True


EXCHANGED = (
    "Where rows of several ranges exchange values of a unique index, each range waits for another: "
    "drop the index, run, and create it again"
)


@dataclass
class TransactionalLoad(Generic[AnySession]):
    """A held range and its staging table; made by `TransactionalTarget.attempt`.

    The session that holds the range's lock also runs the publishing transaction, so that an attempt
    that has lost its lock cannot publish. A system adds how rows are loaded.
    """

    sql: Statements
    plan: CopyPlan
    key_range: KeyRange
    options: TargetOptions
    table: TableRef
    """The table that is written to: the target, or with `swap` its shadow."""
    lock: str
    staging: TableRef
    session: AnySession
    resource: Any
    """The server, an `Endpoint`."""
    columns: Sequence[Column]
    """The columns of `table`."""
    look: Look
    """Reads the hazards of `table` again."""
    identity: str
    """The identity of `table`, for its markers."""
    publication: Publication
    publishing: Publishing
    _sent: int = field(default=0, init=False)
    _arrived: int | None = field(default=None, init=False)
    """Rows of the staging table after the load."""
    _audited: int | None = field(default=None, init=False)
    """Rows of the staging table after it was prepared for the audit."""
    _mark: str | None = field(default=None, init=False)
    """The mark of the transaction that was about to commit."""
    conflict: errors.StatementFailed | None = field(default=None, init=False)
    """What the rows failed with, if that may be a primary key that another range has."""
    _displaced: Sequence[str] = field(default=(), init=False)
    """The ranges of the transfer that lose rows in the open transaction."""

    def staged_rows(self) -> int:
        """Rows in the staging table."""
        self._arrived = self.number(self.sql.count(self.staging))
        return self._arrived

    def audited_table(self) -> TableRef:
        """See `RangeLoad.audited_table`."""
        if self._audited is None:
            # only this attempt writes to it, and what is published is counted as well
            arrived = self.staged_rows() if self._arrived is None else self._arrived
            self._audited = require_staged(self.table, self.key_range, arrived, self._sent, "sent")
            if self.publishing.known:
                self.run(self.publishing.known)
                self._audited = self.staged_rows()
        return self.staging

    def keep_rejected(self) -> TableRef:
        """Give the staged rows a table that the attempt's end does not drop."""
        target = self.plan.target
        rows = self.session.query(self.sql.by_age(target, staging_prefix(target)))
        names = surplus_rejected(target, (name for (name,) in rows))
        kept = rejected_of(target, self.key_range.name)
        self.run(drop_table(replace(target, name=name)) for name in names)
        self.run(self.sql.keep(self.plan, self.staging, kept))
        return kept

    def finalise(self) -> int:
        """Publish the range in one transaction, and find out whether it committed.

        If the connection breaks, a new session waits for the lock, and so for the end of the lost
        one, and looks for its mark.

        Raises:
            ReceiptMismatch: staging holds another number of rows than were sent, or the range in
                the target would not hold what was audited: rolled back, but where rows of it stay.
            RangeBusy: another run has taken the lost session's lock.
            TargetMoved: somebody else has published the range since it was planned; rolled back.
            StagingLost: the server has restarted, and the staged rows are lost.
        """
        self.audited_table()
        assert self._audited is not None
        audit, done, moved = audit_of(self, self._audited), False, None
        for attempt in retrying():
            with attempt:
                try:
                    done = self._commit(audit)
                except TargetMoved as error:
                    # transient for the range, but not for these rows
                    moved = error
        if moved is not None:
            raise moved
        if not done:
            raise StagingLost(
                f"{self.table} range {self.key_range.name}: the server has restarted, and the "
                "staged rows are gone; nothing was committed"
            )
        return audit.committed()

    def _commit(self, audit: CountAudit) -> bool:
        """Commit; return False if the staged rows were lost with the connection."""
        try:
            self._transaction(audit)
        except errors.StatementFailed as error:
            if not self.sql.broke(error):
                self._rollback()
                if self._may_displace(error):
                    self.conflict = error
                    return self._commit(audit)
                if self.sql.breaks_key(error) and "duplicate key" in str(error):
                    raise errors.TableferryError(
                        f"{error}; nothing is visible. {EXCHANGED}"
                    ) from error
                raise
            if self._committed(audit.staged):
                return True
            if self.staged_rows() != audit.staged:
                return False
            raise
        except BaseException:
            self._rollback()
            raise
        return True

    def _transaction(self, audit: CountAudit) -> None:
        self._mark, self._displaced = None, ()
        self.run(self.sql.begin)
        self._allow_identity(True)
        audit.begin()
        written = self._write(audit)
        self._allow_identity(False)
        audit.after(written)
        self._commit_marked()

    def _allow_identity(self, allowed: bool) -> None:
        written = {column.name for column in self.plan.target_columns}
        statement = self.sql.allow_identity(self.table, allowed)
        if statement and any(column.identity and column.name in written for column in self.columns):
            self.session.execute(statement)

    def _commit_marked(self) -> None:
        crash_points.reached("inside_finalise")
        replace_quarantine(self.session, self.publication)
        markers = MarkerTable(self.sql, self.plan.target, self.table)
        markers.put(self.session, self.identity, self.publication, self._displaced)
        self._mark = self.sql.mark(self.session, self.staging)
        self.session.execute(self.sql.commit)

    def _write(self, audit: CountAudit) -> Changes:
        _, removes, updates, inserts = self.publishing
        removed = sum(self.run(removes if audit.may_remove() else ()))
        updated = sum(self.run(updates))
        if self.conflict is not None:
            removed += self._displace(self.conflict)
        return Changes(sum(self.run(inserts)), updated, removed)

    def _may_displace(self, error: errors.StatementFailed) -> bool:
        """Whether a failed transaction may succeed without the rows that have left other ranges."""
        identity = self.plan.row_identity
        return (
            self.conflict is None
            and self.publication.displaced is not None
            and self.publication.known is not None
            and self.options.replaces(self.plan)
            and bool(identity)
            and self.plan.key.target.name not in identity
            and self.sql.breaks_key(error)
        )

    def _displace(self, conflict: errors.StatementFailed) -> int:
        """Delete the rows of other ranges that the source has in this one, and return their number.

        The source's primary key is unique, so that such a row has moved. Its old range is told, and
        loses its marker, until it is moved, too.

        Raises:
            InputError: rows of other tables would be deleted with them.
        """
        sql, plan, known, table = self.sql, self.plan, self.publication.known, self.table
        assert known is not None and self.publication.displaced is not None
        if destroying := having(self.options.hazards, "destroys"):
            raise errors.InputError(
                f"{table} range {self.key_range.name}: rows have moved here from other ranges, and "
                f"to delete them there would change other tables: {with_remedies(destroying)}"
            ) from conflict
        kind, digits = self.key_range.kind, self.key_range.digits
        names = sorted(known.transfer_ranges - {self.key_range.name})
        others = [each for name in names if (each := parse_range(name, kind, digits))]
        rows, losing = sql.known_rows(plan, table, self.staging), []
        most = most_ranges(sql.system)
        for start in range(0, len(others), most):
            some = others[start : start + most]
            number = range_number(some, plan.key.target, sql.system)
            found = self.session.query(f"SELECT DISTINCT {number} FROM {rows}")
            losing += [some[int(at)].name for (at,) in found if int(at) >= 0]
        deleted = self.session.execute(sql.delete_known(plan, table, self.staging))
        if not deleted:
            return 0  # they have left meanwhile, or something else is the matter
        # the deleted rows are locked: their ranges cannot be recorded before this one is published
        self.publication.displaced(losing)
        self._displaced = losing
        return deleted

    def _rollback(self) -> None:
        """Roll the session's transaction back, if it is in one."""
        try:
            self.session.execute(self.sql.rollback)
        except errors.StatementFailed as error:
            if not self.sql.broke(error):
                raise

    def _committed(self, rows: int) -> bool:
        """Whether the lost session has committed; a new one then holds the range's lock."""
        self.session.close()
        self.session = self._reconnect()
        taken = self.sql.take_lock(self.session, self.lock, RESOLVE_SECONDS)
        if not taken or not self.session.query(self.sql.table_exists(self.staging)):
            raise errors.RangeBusy(
                f"{self.table} range {self.key_range.name} was taken over by another run, "
                "after the connection had broken"
            )
        return self._mark is not None and self.sql.committed(
            self.session, self.staging, self._mark, rows
        )

    def _reconnect(self) -> AnySession:
        for attempt in retrying():
            with attempt:
                return self._connect()
        raise AssertionError("a retry loop ends with a result or an error")

    def _connect(self) -> AnySession:
        """Open a session."""
        raise NotImplementedError

    @property
    def in_range(self) -> str:
        """The condition that a row of `table` is in the range."""
        return self.plan.target_range(self.key_range)

    def run(self, statements: Iterable[str]) -> list[int]:
        return [self.session.execute(statement) for statement in statements]

    def number(self, query: str) -> int:
        """The number that a query returns."""
        return int(self.session.query(query)[0][0])
