"""Loads key ranges into SQL Server tables, each by one transaction."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace

from resources import crash_points
from resources.dialects import qualified
from resources.errors import InputError, RangeBusy, SchemaDrift, StatementFailed, TableferryError
from resources.keys.range import KeyRange
from resources.plan import CopyPlan
from resources.sqlserver.connection import SqlServerConnection
from resources.sqlserver.ddl import (
    copy_columns,
    count,
    create_schema,
    create_staging,
    create_table,
    drop_table,
    get_lock,
    object_id,
    release_lock,
    rename,
    required_columns,
    table_exists,
    tables_like,
)
from resources.sqlserver.load import SqlServerLoad
from resources.sqlserver.resource import SqlServerResource
from resources.tables import Column, TableRef, staging_name, staging_prefix
from resources.target import (
    Alive,
    TargetOptions,
    check_mode,
    is_rejected,
    nobody_else,
    rejected_of,
    shadow_of,
    written_to,
)
from resources.target_columns import unfilled, verify_columns
from resources.types.planner import compatible

LOCK_SECONDS = 10
"""How long an attempt waits for a range's lock: a session whose client was killed ends by itself,
but a statement that it was running may have to end first."""


class SqlServerTarget:
    """A SQL Server, or a Babelfish, as a load target.

    A range is held by an application lock of a session, bulk copied into a staging table, and made
    visible by one transaction of that same session. The server gives the lock back when the session
    ends, so that it alone tells whether an attempt lives, and `alive` is never asked.

    Args:
        resource: the server.
    """

    def __init__(self, resource: SqlServerResource) -> None:
        self.resource = resource
        self._identities: dict[TableRef, set[str]] = {}

    def __repr__(self) -> str:
        return f"SqlServerTarget({self.resource.settings()})"

    def require(self, plan: CopyPlan, options: TargetOptions) -> None:
        """Refuse a write mode that the plan cannot serve. See `Target.require`."""
        check_mode(plan, options)

    def prepare(
        self, plan: CopyPlan, options: TargetOptions, found: Sequence[Column] | None = None
    ) -> list[str]:
        """Create the table, and its schema, if missing; else verify it. See `Target.prepare`."""
        check_mode(plan, options)
        notes: list[str] = []
        self._identities = {plan.target: set(), shadow_of(plan.target): set()}
        with self.resource.connection() as connection:
            if not connection.query(table_exists(plan.target)):
                connection.execute(create_schema(plan.target))
                self._create(connection, plan, plan.target)
            else:
                columns = found or self.resource.columns(plan.target)
                notes += _verify(connection, plan, options, columns)
                self._identities[plan.target] = _identities(columns)
            if options.mode == "swap":
                self._ensure_shadow(connection, plan)
        return notes

    @contextlib.contextmanager
    def attempt(
        self,
        plan: CopyPlan,
        key_range: KeyRange,
        options: TargetOptions,
        *,
        owner: str,
        data_version: str,
        alive: Alive = nobody_else,
    ) -> Iterator[SqlServerLoad]:
        """Hold the range by an application lock, with a staging table. See `Target.attempt`."""
        table = written_to(plan, options)
        lock = staging_name(plan.target, key_range.name)
        # a name of its own, so that "gone" can never be somebody else's doing
        staging = replace(table, name=f"{lock}_{uuid.uuid4().hex[:12]}")
        if table not in self._identities:
            self._identities[table] = _identities(self.resource.columns(table))
        identity = self._identities[table]
        with contextlib.ExitStack() as stack:
            session = stack.enter_context(self.resource.connection())
            if not _take(session, lock, LOCK_SECONDS):
                raise RangeBusy(f"{table} range {key_range.name} is being loaded by another run")
            _drop_all(session, table, lock)
            session.execute(create_staging(plan, staging))
            load = SqlServerLoad(
                resource=self.resource,
                plan=plan,
                key_range=key_range,
                options=options,
                table=table,
                lock=lock,
                staging=staging,
                identity_column=any(column.name in identity for column in plan.target_columns),
                session=session,
                files=stack,
            )
            try:
                yield load
            finally:
                # if the server is away, the next attempt or `clean` drops it
                with contextlib.suppress(TableferryError):
                    load.session.execute(drop_table(staging))
                    load.session.execute(release_lock(lock))
                load.session.close()

    def identity(self, table: TableRef) -> str | None:
        """The table's object id, which sp_rename leaves alone."""
        rows = self.resource.query(object_id(table))
        return str(rows[0][0]) if rows else None

    def promote(self, plan: CopyPlan, options: TargetOptions) -> None:
        """Rename shadow and target, and drop the old table, in one transaction."""
        shadow, target = shadow_of(plan.target), plan.target
        old = replace(target, name=f"{shadow.name}_old")
        with self.resource.connection() as connection, _transaction(connection):
            if connection.query(table_exists(shadow)):
                connection.execute(rename(target, old.name))
                connection.execute(rename(shadow, target.name))
                connection.execute(drop_table(old))
                crash_points.reached("inside_swap")

    def retire(
        self,
        plan: CopyPlan,
        ranges: Sequence[KeyRange],
        into: Sequence[KeyRange],
        options: TargetOptions,
    ) -> None:
        """Nothing to do: a range's rows are found by their keys, whatever range they came with."""

    def clean(
        self, target: TableRef, alive: Alive = nobody_else, *, rejected: bool = True
    ) -> list[str]:
        """Drop the staging tables of ranges that no session holds. See `Target.clean`."""
        prefix = staging_prefix(target)
        lock_length = len(staging_name(target, ""))
        dropped = []
        with self.resource.connection() as connection:
            names = [row[0] for row in connection.query(tables_like(target, prefix))]
            found = [name for name in names if rejected or not is_rejected(target, name)]
            for lock in sorted({name[:lock_length] for name in found}):
                if _take(connection, lock):
                    dropped += _drop_all(connection, target, lock, rejected=rejected)
                    connection.execute(release_lock(lock))
        return dropped

    def rejected_table(self, plan: CopyPlan, key_range: KeyRange) -> TableRef | None:
        """The range's rows that failed their audit. See `Target.rejected_table`."""
        kept = rejected_of(plan.target, key_range.name)
        return kept if self.resource.query(table_exists(kept)) else None

    def range_rows(self, plan: CopyPlan, key_range: KeyRange, options: TargetOptions) -> int:
        """Rows of the range that are committed."""
        table = written_to(plan, options)
        return int(self.resource.query(count(table, plan.target_range(key_range)))[0][0])

    def _create(self, connection: SqlServerConnection, plan: CopyPlan, table: TableRef) -> None:
        try:
            with _transaction(connection):
                for statement in create_table(plan, table):
                    connection.execute(statement)
        except StatementFailed:
            # another run may have been faster; its table is as good
            if not connection.query(table_exists(table)):
                raise

    def _ensure_shadow(self, connection: SqlServerConnection, plan: CopyPlan) -> None:
        """A shadow that holds all of the target, so that ranges that are skipped are in it too."""
        shadow, columns = shadow_of(plan.target), copy_columns(plan)
        if connection.query(table_exists(shadow)):
            return verify_columns(plan, self.resource.columns(shadow), compatible)
        with _transaction(connection):
            for statement in create_table(plan, shadow):
                connection.execute(statement)
            connection.execute(
                f"INSERT INTO {qualified(shadow)} ({columns}) "
                f"SELECT {columns} FROM {qualified(plan.target)}"
            )


def _identities(columns: Sequence[Column]) -> set[str]:
    """The names of those that the server numbers."""
    return {column.name for column in columns if column.identity}


def _verify(
    connection: SqlServerConnection,
    plan: CopyPlan,
    options: TargetOptions,
    columns: Sequence[Column],
) -> list[str]:
    verify_columns(plan, columns, compatible)
    others = unfilled(plan, columns)
    required = {row[0] for row in connection.query(required_columns(plan.target))}
    blocking = [column.name for column in others if column.name in required]
    if blocking:
        raise SchemaDrift(
            f"{plan.target} has columns that the transfer does not write and that must not be "
            f"NULL: {', '.join(map(repr, blocking))}"
        )
    if others and options.mode == "swap":
        raise InputError(
            f"{plan.target}: swap would lose the columns that the transfer does not write: "
            f"{', '.join(repr(column.name) for column in others)}"
        )
    return [
        f"{plan.target}: column {column.name!r} is not in the transfer; new rows get its "
        "default or NULL"
        for column in others
    ]


@contextlib.contextmanager
def _transaction(connection: SqlServerConnection) -> Iterator[None]:
    connection.execute("SET XACT_ABORT ON")
    connection.execute("BEGIN TRANSACTION")
    try:
        yield
        connection.execute("COMMIT TRANSACTION")
    except BaseException:
        with contextlib.suppress(TableferryError):
            connection.execute("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION")
        raise


def _take(session: SqlServerConnection, lock: str, seconds: int = 0) -> bool:
    return int(session.query(get_lock(lock, seconds * 1000))[0][0]) >= 0


def _drop_all(
    session: SqlServerConnection, table: TableRef, prefix: str, *, rejected: bool = True
) -> list[str]:
    """Drop what an earlier attempt left under this lock, which is ours now."""
    names = [str(row[0]) for row in session.query(tables_like(table, prefix))]
    found = [name for name in names if rejected or not is_rejected(table, name)]
    for name in found:
        session.execute(drop_table(replace(table, name=name)))
    return found
