"""One key range on its way into SQL Server: bulk copied out of sight, then one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from resources import crash_points
from resources.artifacts import workspace
from resources.dialects import qualified
from resources.errors import InputError, RangeBusy, ReceiptMismatch, StatementFailed
from resources.keys.range import KeyRange
from resources.plan import CopyPlan
from resources.retry import retrying
from resources.sqlserver.bulk_copy import bulk_copy
from resources.sqlserver.connection import SqlServerConnection
from resources.sqlserver.ddl import (
    count,
    count_kept,
    delete_range,
    drop_known,
    drop_table,
    get_lock,
    identity_insert,
    insert_all,
    insert_new,
    rename,
    table_exists,
    tables_like,
    update_known,
)
from resources.sqlserver.errors import broke
from resources.sqlserver.load_text import load_files
from resources.sqlserver.resource import SqlServerResource
from resources.tables import TableRef, staging_prefix
from resources.target import (
    MOST_REJECTED,
    LoadReceipt,
    TargetOptions,
    appends,
    is_rejected,
    rejected_of,
    require_staged,
)

RESOLVE_SECONDS = 30
"""How long a lost session may take to end, before nobody can say what became of its commit."""


@dataclass
class SqlServerLoad:
    """A held range and its staging table; made by `SqlServerTarget.attempt`.

    The session that holds the range's application lock also runs the finalising transaction, so
    that an attempt that lost its lock cannot finalise.
    """

    resource: SqlServerResource
    plan: CopyPlan
    key_range: KeyRange
    options: TargetOptions
    table: TableRef
    """What is written to: the target, or with `swap` its shadow."""
    lock: str
    staging: TableRef
    identity_column: bool
    session: SqlServerConnection
    files: contextlib.ExitStack
    """Ends with the attempt, and so after the commit: what holds the artifact files."""
    _sent: int = field(default=0, init=False)
    _audited: int | None = field(default=None, init=False)
    """Rows of the staging table as it is to become visible."""

    def load_arrow(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema | None = None
    ) -> LoadReceipt:
        """Bulk copy batches into the staging table, on a connection of the driver's own.

        Args:
            batches: columns named as in the target, of the plan's Arrow types.
            schema: of the batches; the plan's if not given.

        Raises:
            ReceiptMismatch: the driver reports another number of rows than it was given.
        """
        receipt = bulk_copy(
            self.resource,
            self.session,
            self.plan,
            self.staging,
            batches,
            schema,
            batch_rows=self.options.batch_rows,
        )
        self._sent += receipt.rows
        return receipt

    def load_text(self, chunks: Iterator[bytes]) -> LoadReceipt:
        """Load framed rows through files and bcp; see `resources.sqlserver.load_text`.

        Args:
            chunks: rows with the terminators of the options.
        """
        if self.options.framing is None:
            raise InputError("text for sqlserver needs terminators: TargetOptions(framing=...)")
        receipt = load_files(
            self.resource,
            self.session,
            self.plan,
            self.key_range,
            self.staging,
            chunks,
            self.options.framing,
            self.files.enter_context(workspace(self.resource.artifact_folder_path())),
        )
        self._sent += receipt.rows
        return receipt

    def staged_rows(self) -> int:
        """Rows in the staging table."""
        return _number(self.session, count(self.staging))

    def audited_table(self) -> TableRef:
        """The staging table as the range is to become. See `RangeLoad.audited_table`."""
        if self._audited is None:
            self._audited = self._require_staged(self._sent, "sent")
            if appends(self.plan, self.options):
                execute = self.session.execute
                execute(drop_known(self.plan, self.table, self.staging))
                execute(insert_all(self.plan, self.staging, self.table, self._own))
                self._audited = self.staged_rows()
        return self.staging

    def keep_rejected(self) -> TableRef:
        """Rename the staging table, so that the attempt's end does not drop it."""
        target = self.plan.target
        rows = self.session.query(tables_like(target, staging_prefix(target)))
        others = [name for (name,) in rows if is_rejected(target, name)]
        for name in others[: max(0, len(others) - MOST_REJECTED + 1)]:
            self.session.execute(drop_table(replace(target, name=name)))
        kept = rejected_of(target, self.key_range.name)
        self.session.execute(rename(self.staging, kept.name))
        return kept

    def _require_staged(self, rows: int, which: str) -> int:
        return require_staged(self.table, self.key_range, self.staged_rows(), rows, which)

    @property
    def _own(self) -> str:
        """Condition: a row of the target that is in this range."""
        return self.plan.target_range(self.key_range)

    def finalise(self) -> int:
        """Make the range visible by one transaction, and know whether it committed.

        The transaction empties the staging table as its last step: a staging table that is there
        and empty is the commit's own mark. If the connection breaks, the outcome is read from it,
        in a new session that first waits for the lock, and so for the end of the lost one.

        Raises:
            ReceiptMismatch: staging holds another number of rows than were sent, or the range in
                the target does not hold what it should; the transaction is rolled back.
            RangeBusy: the lost session's lock went to another run.
        """
        self.audited_table()
        assert self._audited is not None
        rows = self._require_staged(self._audited, "audited")
        kept = 0
        if self.options.mode == "upsert":
            kept = _number(self.session, count_kept(self.plan, self.table, self.staging, self._own))
        for attempt in retrying():
            with attempt:
                self._commit(rows)
        return kept + rows

    def _commit(self, rows: int) -> None:
        try:
            self._transaction(rows)
        except StatementFailed as error:
            if not broke(error):
                self._rollback()
            elif self._committed(rows):
                return
            raise
        except BaseException:
            self._rollback()
            raise

    def _transaction(self, rows: int) -> None:
        execute = self.session.execute
        execute("SET XACT_ABORT ON")  # any error ends the whole transaction, not one statement
        execute("BEGIN TRANSACTION")
        if self.identity_column:
            execute(identity_insert(self.table, True))
        self._write(rows)
        if self.identity_column:
            execute(identity_insert(self.table, False))
        crash_points.reached("inside_finalise")
        execute(f"TRUNCATE TABLE {qualified(self.staging)}")
        execute("COMMIT TRANSACTION")

    def _write(self, rows: int) -> None:
        plan, table, staging, execute = self.plan, self.table, self.staging, self.session.execute
        mode = self.options.mode
        if mode == "upsert":
            update = update_known(plan, table, staging)
            updated = execute(update) if update else 0
            inserted = execute(insert_new(plan, table, staging))
            if update and updated + inserted != rows:
                raise self._mismatch(f"{updated} updated and {inserted} inserted", rows)
        elif appends(self.plan, self.options):
            execute(insert_new(plan, table, staging))
        else:
            execute(delete_range(plan, table, self._own))
            execute(insert_all(plan, table, staging))
            shown = _number(self.session, count(table, self._own))
            if shown != rows:
                raise self._mismatch(f"{shown}", rows)

    def _mismatch(self, found: str, rows: int) -> ReceiptMismatch:
        return ReceiptMismatch(
            f"{self.table} range {self.key_range.name}: {rows} rows were staged, "
            f"but the target would hold {found}; rolled back"
        )

    def _rollback(self) -> None:
        try:
            self.session.execute("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION")
        except StatementFailed as error:
            if not broke(error):
                raise

    def _committed(self, rows: int) -> bool:
        """Whether the lost session had committed; the range's lock is ours again afterwards."""
        self.session.close()
        self.session = self._reconnect()
        answer = _number(self.session, get_lock(self.lock, RESOLVE_SECONDS * 1000))
        if answer < 0 or not self.session.query(table_exists(self.staging)):
            raise RangeBusy(
                f"{self.table} range {self.key_range.name} was taken over by another run, "
                "after the connection had broken"
            )
        # without rows there is nothing to see it by, and nothing lost by doing it again
        return rows > 0 and self.staged_rows() == 0

    def _reconnect(self) -> SqlServerConnection:
        for attempt in retrying():
            with attempt:
                return self.resource.connected()
        raise AssertionError("a retry loop ends with a result or an error")


def _number(session: SqlServerConnection, query: str) -> int:
    return int(session.query(query)[0][0])
