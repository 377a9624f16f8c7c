"""One key range on its way into a table: loaded out of sight, then one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from tableferry.resources import crash_points
from tableferry.resources.connecting.retry import retrying
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.dialects import drop_table
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import Look
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target import (
    TargetMoved,
    TargetOptions,
    appends,
    make_room,
    rejected_of,
    replaces,
    require_staged,
)
from tableferry.resources.digest.same_rows import SameRows
from tableferry.resources.errors import RangeBusy, ReceiptMismatch, StatementFailed, TableferryError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef, staging_prefix
from tableferry.resources.transactional.markers import MarkerTable
from tableferry.resources.transactional.publish_audit import (
    PublishAudit,
    explained,
    require_room_for,
)
from tableferry.resources.transactional.reader import SessionReader
from tableferry.resources.transactional.statements import Session, Statements
from tableferry.resources.types.column import Column

RESOLVE_SECONDS = 30
"""How long a lost session may take to end, before nobody can say what became of its commit."""

AnySession = TypeVar("AnySession", bound=Session)


class StagingLost(TableferryError):
    """The server has restarted, and the staged rows are gone with what it kept in memory."""

    transient = True


@dataclass
class TransactionalLoad(Generic[AnySession]):
    """A held range and its staging table; made by `TransactionalTarget.attempt`.

    The session that holds the range's lock also runs the finalising transaction, so that an attempt
    that lost its lock cannot finalise. A system adds how rows are loaded.

    Unstaged rows enter the table in that transaction. The staging table stays empty then, and tells
    whether another run has taken the range over.
    """

    sql: Statements
    plan: CopyPlan
    key_range: KeyRange
    options: TargetOptions
    table: TableRef
    """What is written to: the target, or with `swap` its shadow."""
    lock: str
    staging: TableRef
    identity_column: bool
    """Whether an identity column of the table is written."""
    session: AnySession
    resource: Any
    """The server, an `Endpoint`."""
    unstaged: bool
    """Whether rows go into `table` itself."""
    columns: Sequence[Column]
    """Of `table`, as they were found."""
    look: Look
    """What of `table` may change rows that are published, asked anew."""
    identity: str
    """Of `table`, for its markers."""
    publication: Publication
    _sent: int = field(default=0, init=False)
    _audited: int | None = field(default=None, init=False)
    """Rows of the staging table as it is to become visible."""
    _mark: str | None = field(default=None, init=False)
    """Of the transaction that was about to commit."""

    def staged_rows(self) -> int:
        """Rows in the staging table; unstaged, those that the server has taken."""
        return self._sent if self.unstaged else self._number(self.sql.count(self.staging))

    def reader(self) -> Endpoint | None:
        """The session, if the rows are unstaged. See `RangeLoad.reader`."""
        return cast(Endpoint, SessionReader(self.resource, self.session)) if self.unstaged else None

    def audited_table(self) -> TableRef:
        """The staging table as the range is to become. See `RangeLoad.audited_table`."""
        if self.unstaged:
            return self.table
        if self._audited is None:
            self._audited = self._require_staged(self._sent, "sent")
            if appends(self.plan, self.options):
                for statement in self.sql.take_in(self.plan, self.table, self.staging, self._own):
                    self.session.execute(statement)
                self._audited = self.staged_rows()
        return self.staging

    def shown_rows(self) -> None:
        """Whoever commits looks by another session. See `RangeLoad.shown_rows`."""

    def keep_rejected(self) -> TableRef:
        """Give the staging table a name that the attempt's end does not drop."""
        target = self.plan.target
        rows = self.session.query(self.sql.tables_like(target, staging_prefix(target)))
        for name in make_room(target, (name for _, name, _ in rows)):
            self.session.execute(drop_table(replace(target, name=name)))
        kept = rejected_of(target, self.key_range.name)
        for statement in self.sql.keep(self.plan, self.staging, kept):
            self.session.execute(statement)
        return kept

    def finalise(self) -> int:
        """Make the range visible by one transaction, and know whether it committed.

        If the connection breaks, the outcome is found out in a new session that first waits for the
        lock, and so for the end of the lost one.

        Raises:
            ReceiptMismatch: staging holds another number of rows than were sent, or the range in
                the target does not hold what it should; the transaction is rolled back.
            RangeBusy: the lost session's lock went to another run.
            TargetMoved: somebody else has published the range since it was planned; likewise.
            StagingLost: the server restarted, and the staged rows went with it.
        """
        if self.unstaged:
            return self._finalise_unstaged()
        self.audited_table()
        assert self._audited is not None
        rows = self._require_staged(self._audited, "audited")
        kept = 0
        if self.options.mode.updates_known:
            kept = self._number(self.sql.count_kept(self.plan, self.table, self.staging, self._own))
        done, moved = False, None
        for attempt in retrying():
            with attempt:
                try:
                    done = self._commit(rows)
                except TargetMoved as error:
                    # these very rows will not do at any time
                    moved = error
        if moved is not None:
            raise moved
        if not done:
            raise StagingLost(
                f"{self.table} range {self.key_range.name}: the server has restarted, and the "
                "staged rows are gone; nothing was committed"
            )
        return kept + rows

    def _begin_unstaged(self) -> None:
        """Open the transaction that the rows are loaded in, and take the range's old ones out."""
        for statement in (*self.sql.begin, *self.sql.look_by_index(self.table)):
            self.session.execute(statement)
        if replaces(self.plan, self.options):
            self.session.execute(self.sql.delete_range(self.table, self._own))

    def _finalise_unstaged(self) -> int:
        try:
            self._commit_marked()
        except StatementFailed as error:
            if not self.sql.broke(error) or not self._committed(self._sent):
                raise
        return self._sent

    def _commit(self, rows: int) -> bool:
        """Commit, unless the staged rows are lost with the connection."""
        try:
            self._transaction(rows)
        except StatementFailed as error:
            if not self.sql.broke(error):
                self.rollback()
                raise explained(error, self.options.hazards) from error
            if self._committed(rows):
                return True
            if self.staged_rows() != rows:
                return False
            raise
        except BaseException:
            self.rollback()
            raise
        return True

    def _transaction(self, rows: int) -> None:
        execute, sql = self.session.execute, self.sql
        self._mark = None
        for statement in sql.begin:
            execute(statement)
        switches = [sql.allow_identity(self.table, allowed) for allowed in (True, False)]
        on, off = switches if self.identity_column else (None, None)
        if on:
            execute(on)
        audit = self._publish_audit()
        if audit:
            audit.before()
        written = self._write(rows)
        if off:
            execute(off)
        if audit:
            audit.after(written)
        self._commit_marked()

    def _publish_audit(self) -> PublishAudit | None:
        if not self.options.audits_shown:
            return None
        same = SameRows.of(self.resource, self.plan, self.staging, self.table, self.columns)
        return PublishAudit(self, same, self.look)

    def _commit_marked(self) -> None:
        crash_points.reached("inside_finalise")
        markers = MarkerTable(self.sql, self.plan.target, self.table)
        markers.put(self.session, self.identity, self.publication)
        self._mark = self.sql.mark(self.session, self.staging)
        self.session.execute(self.sql.commit)

    def _write(self, rows: int) -> list[int]:
        require_room_for(self)
        statements = self.sql.writing(self.plan, self.options, self.table, self.staging, self._own)
        changed = [self.session.execute(statement) for statement in statements]
        if self.options.audits_shown:
            return changed  # `PublishAudit` sees more than these counts, which triggers add to
        if self.options.mode.updates_known:
            if len(changed) > 1 and sum(changed) != rows:
                raise self._mismatch(f"{changed[0]} updated and {changed[1]} inserted", rows)
        elif replaces(self.plan, self.options):
            shown = self._number(self.sql.count(self.table, self._own))
            if shown != rows:
                raise self._mismatch(f"{shown}", rows)
        return changed

    def _mismatch(self, found: str, rows: int) -> ReceiptMismatch:
        return ReceiptMismatch(
            f"{self.table} range {self.key_range.name}: {rows} rows were staged, "
            f"but the target would hold {found}; rolled back"
        )

    def rollback(self) -> None:
        """Undo what the session's transaction did, if it is in one."""
        try:
            self.session.execute(self.sql.rollback)
        except StatementFailed as error:
            if not self.sql.broke(error):
                raise

    def _committed(self, rows: int) -> bool:
        """Whether the lost session had committed; the range's lock is ours again afterwards."""
        self.session.close()
        self.session = self._reconnect()
        taken = self.sql.take(self.session, self.lock, RESOLVE_SECONDS)
        if not taken or not self.session.query(self.sql.table_exists(self.staging)):
            raise RangeBusy(
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
        """A new session."""
        raise NotImplementedError

    @property
    def _own(self) -> str:
        """Condition: a row of the target that is in this range."""
        return self.plan.target_range(self.key_range)

    def _require_staged(self, rows: int, which: str) -> int:
        return require_staged(self.table, self.key_range, self.staged_rows(), rows, which)

    def _number(self, query: str) -> int:
        return int(self.session.query(query)[0][0])
