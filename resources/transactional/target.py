"""A load target that publishes each range in one transaction."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Generic, cast

import pyarrow as pa

from tableferry.resources import crash_points, errors
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.contract.looking_ahead import answer
from tableferry.resources.contract.markers import Publication, Published
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target import (
    ATTEMPT,
    Alive,
    Target,
    TargetMoved,
    altered_meanwhile,
    no_live_owner,
)
from tableferry.resources.contract.target_columns import converted
from tableferry.resources.contract.target_names import is_rejected, rejected_of, shadow_of
from tableferry.resources.contract.target_options import TargetOptions, check_mode, require_named
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef, staging_name, staging_prefix
from tableferry.resources.transactional.delta import script
from tableferry.resources.transactional.load import (
    AnySession,
    TransactionalLoad,
    create_quarantine,
    keep_quarantined,
)
from tableferry.resources.transactional.markers import (
    TURN_SECONDS,
    LackingIn,
    MarkerTable,
    PublishedIn,
)
from tableferry.resources.transactional.preparing import create_table, verify_table
from tableferry.resources.transactional.publish_audit import require_deletable
from tableferry.resources.transactional.statements import Statements
from tableferry.resources.types.type_map import Column


class _NotEmpty(Exception):
    """Rolls a transaction back."""


LOCK_SECONDS = 10
"""How long an attempt waits for a range's lock: the session of a killed client ends by itself, but
only after the statement that it is running."""


class TransactionalTarget(Target, Generic[AnySession]):
    """See `Target`.

    A session's lock holds the range, and a transaction of that session publishes it from a staging
    table. The server releases the lock when the session ends, so the lock alone tells whether an
    attempt lives, and `alive` is never called.

    Args:
        resource: the server, an `Endpoint`.
    """

    sql: Statements

    def __init__(self, resource: Any) -> None:
        self.resource = resource
        self._columns: dict[TableRef, Sequence[Column]] = {}
        self._identities: dict[TableRef, str] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.resource.settings()})"

    def require(self, plan: CopyPlan, options: TargetOptions) -> None:
        """See `Target.require`."""
        require_named(plan.target)
        check_mode(plan, options)
        lacking = answer(self.resource, LackingIn(self.sql), plan.target)
        # who may read them can check a table that others load
        if lacking and not (lacking[1] and self.identity(plan.target)):
            raise errors.InputError(f"{plan.target}: {lacking[0]}")

    def verify(
        self, plan: CopyPlan, options: TargetOptions, columns: Sequence[Column]
    ) -> list[str]:
        """See `Target.verify`."""
        with self._session() as session:
            return self._verified(session, plan, options, columns)

    def _verified(
        self,
        session: AnySession,
        plan: CopyPlan,
        options: TargetOptions,
        columns: Sequence[Column],
    ) -> list[str]:
        MarkerTable(self.sql, plan.target).require_writable(session)
        return verify_table(self.sql, session, plan, options, columns)

    def prepare(
        self, plan: CopyPlan, options: TargetOptions, columns: Sequence[Column] | None = None
    ) -> list[str]:
        """See `Target.prepare`."""
        self.require(plan, options)
        notes: list[str] = []
        created = False
        target, shadow = plan.target, shadow_of(plan.target)
        self._columns = {target: plan.target_columns}
        markers = MarkerTable(self.sql, target)
        with self._session() as session:
            if not session.query(self.sql.table_exists(target)):
                created = create_table(self.sql, session, plan)
                if options.mark:
                    session.execute(self.sql.add_mark(target, options.mark))
                markers.create(session)
                markers.remove_others(session, [target.name, shadow.name])
            else:
                markers.create(session)
                columns = columns or self.resource.columns(target)
                notes = self._verified(session, plan, options, columns)
                self._columns[target] = columns
            create_quarantine(self.sql, session, plan)
            self._identities = {target: markers.begin(session)}
            self.created = self._identities[target] if created else None
            if options.mode.whole_table:
                self._ensure_shadow(session, plan, options, shadow)
                self._identities[shadow] = MarkerTable(self.sql, target, shadow).identity(session)
        return notes

    def unalterable(self, table: TableRef, statements: Sequence[str]) -> str:
        """See `Target.unalterable`."""
        if all(statement.startswith("UPDATE ") for statement in statements):
            return ""
        rows = self.resource.query(self.sql.may_alter(table))
        return "; ".join(
            f"{self.sql.system.quote(login)} may not alter {table}: {remedy}"
            for login, may, remedy in rows
            if may is not None and not may
        )

    def hazards(
        self, plan: CopyPlan, options: TargetOptions, columns: Sequence[Column]
    ) -> list[Hazard]:
        """Hazards in the catalog, and columns of other types than staged. See `Target.hazards`."""
        return [*self._in_catalog(plan, options), *converted(plan, columns)]

    def expect(self, plan: CopyPlan) -> None:
        """Take the plan's columns for the target's, without reading them."""
        self._columns[plan.target] = plan.target_columns

    def creation(self, plan: CopyPlan, options: TargetOptions) -> list[str]:
        """See `Target.creation`."""
        statements = self.sql.create_table(plan, plan.target)
        if options.mark:
            statements = [*statements, self.sql.add_mark(plan.target, options.mark)]
        return [self.sql.create_schema(plan.target), *statements]

    def publication(self, publication: Publication, options: TargetOptions) -> list[str]:
        """See `Target.publication`."""
        plan, key_range = publication.plan, publication.key_range
        sql, table = self.sql, options.written_to(plan)
        with self._session() as session:
            schema = self._staging_schema(session, table)
        name = f"{staging_name(plan.target, key_range.name)}_{ATTEMPT}"
        staging = replace(table, schema=schema, name=name)
        known, *changes = sql.publish(publication, options, table, staging)
        return [
            *sql.create_staging(plan, staging),
            f"-- the rows, by the server's bulk loader, into {staging}",
            *known,
            *sql.begin,
            *(each for statements in changes for each in statements),
            *(sql.run_deferred if options.audits_shown or options.replaces(plan) else ()),
            sql.commit,
            sql.drop_staging(staging),
        ]

    def script(
        self,
        publication: Publication,
        options: TargetOptions,
        rows: Iterable[pa.RecordBatch],
    ) -> Iterator[str]:
        """See `Target.script`."""
        plan = publication.plan
        written = {column.name for column in plan.target_columns}
        columns = self.resource.columns(plan.target)
        identity = any(column.identity and column.name in written for column in columns)
        yield from script(self.sql, publication, options, rows, identity=identity)

    @contextlib.contextmanager
    def attempt(
        self, publication: Publication, options: TargetOptions, alive: Alive = no_live_owner
    ) -> Iterator[Any]:
        """See `Target.attempt`."""
        plan, key_range = publication.plan, publication.key_range
        table, lock = options.written_to(plan), staging_name(plan.target, key_range.name)
        if table not in self._columns:
            self._columns[table] = self.resource.columns(table)
        columns = self._columns[table]
        options = self._as_it_is(plan, options, columns)
        with contextlib.ExitStack() as stack:
            session = stack.enter_context(self._session())
            self._take_lock(session, lock, table, key_range)
            if options.replaces(plan) and table == plan.target:
                require_deletable(session.query, self.sql, plan, key_range, options, table)
            self._drop_all(session, table, lock)
            # a unique name: that it is gone is then never another attempt's doing
            name, schema = f"{lock}_{uuid.uuid4().hex[:12]}", self._staging_schema(session, table)
            staging = replace(table, schema=schema, name=name)
            try:
                for statement in self.sql.create_staging(plan, staging):
                    session.execute(statement)
            except errors.StatementFailed:
                with contextlib.suppress(errors.TableferryError):
                    session.execute(self.sql.drop_staging(staging))
                raise
            load = self._load(
                stack,
                sql=self.sql,
                plan=plan,
                key_range=key_range,
                options=options,
                table=table,
                lock=lock,
                staging=staging,
                session=session,
                resource=self.resource,
                columns=columns,
                look=functools.partial(self.hazards, plan, options, columns),
                identity=self._prepared_identity(table),
                publication=publication,
                publishing=self.sql.publish(publication, options, table, staging),
            )
            try:
                yield load
            finally:
                # if the server is away, the next attempt or `clean` drops it
                with contextlib.suppress(errors.TableferryError):
                    load.session.execute(self.sql.drop_staging(staging))
                    load.session.execute(self.sql.release_lock(lock))
                if load.session is not session:
                    load.session.close()

    def published(self, plan: CopyPlan, options: TargetOptions) -> Published:
        """See `Target.published`."""
        return answer(self.resource, PublishedIn(self.sql), plan.target) or Published()

    @contextlib.contextmanager
    def marking(
        self, publication: Publication, options: TargetOptions, alive: Alive = no_live_owner
    ) -> Iterator[None]:
        """See `Target.marking`."""
        target, key_range = publication.plan.target, publication.key_range
        table, lock = options.written_to(publication.plan), staging_name(target, key_range.name)
        with self._session() as session:
            self._take_lock(session, lock, target, key_range)
            try:
                with self.sql.transaction(session):
                    markers = MarkerTable(self.sql, target, table)
                    markers.put(session, self._prepared_identity(table), publication)
                yield
            finally:
                with contextlib.suppress(errors.TableferryError):
                    session.execute(self.sql.release_lock(lock))

    def forget_markers(self, table: TableRef) -> bool:
        """See `Target.forget_markers`."""
        with self._session() as session, self.sql.transaction(session):
            return MarkerTable(self.sql, table).remove_all(session)

    def identity(self, table: TableRef) -> str | None:
        """See `Target.identity`."""
        rows = self.resource.query(self.sql.object_ids(table.schema, [table.name]))
        return str(rows[0][1]) if rows else None

    def gathered_in(self, plan: CopyPlan, options: TargetOptions) -> str | None:
        """See `Target.gathered_in`."""
        shadow = shadow_of(plan.target)
        with self._session() as session:
            markers = MarkerTable(self.sql, plan.target, shadow)
            same = markers.shape(session) == self._shape(session, plan, options)
            return markers.identity(session) if same else None

    def drop_empty(self, table: TableRef, identity: str) -> bool:
        """The lock lets nobody write between the look and the DROP. See `Target.drop_empty`."""
        with self._session() as session:
            try:
                with self.sql.transaction(session):
                    limit, lift = self.sql.limit_waiting(TURN_SECONDS)
                    for statement in (limit, self.sql.lock_table(table), lift):
                        session.execute(statement)
                    ids = session.query(self.sql.object_ids(table.schema, [table.name]))
                    same = [str(number) for _, number in ids] == [identity]
                    if not same or session.query(self.sql.any_row(table, "1 = 1")):
                        raise _NotEmpty
                    session.execute(drop_table(table))
            except _NotEmpty:
                return False
        return True

    def promote(
        self,
        plan: CopyPlan,
        options: TargetOptions,
        gathered: Mapping[str, str] | None = None,
        known: Published | None = None,
    ) -> None:
        """See `Target.promote`. The shadow keeps its id, and so its markers."""
        shadow, target = shadow_of(plan.target), plan.target
        with self._session() as session, self.sql.transaction(session):
            if session.query(self.sql.table_exists(shadow)):
                if gathered is not None:
                    of_shadow = MarkerTable(self.sql, target, shadow)
                    of_shadow.require(session, gathered)
                    if of_shadow.shape(session) != self._shape(session, plan, options):
                        raise TargetMoved(altered_meanwhile(target))
                self._before_swap(session, plan)
                markers = MarkerTable(self.sql, target)
                before = markers.identity(session)
                for statement in self.sql.put_in_place(shadow, target):
                    session.execute(statement)
                if known is not None:
                    # now that nobody can publish in it any more
                    markers.require_unmoved(session, before, known)
                markers.remove_others(session, [target.name])
                crash_points.reached("inside_swap")

    def retire(
        self,
        plan: CopyPlan,
        ranges: Sequence[KeyRange],
        into: Sequence[KeyRange],
        options: TargetOptions,
    ) -> None:
        """See `Target.retire`. Rows belong to ranges by their keys, so none move."""
        table = options.written_to(plan)
        markers = MarkerTable(self.sql, plan.target, table)
        with self._session() as session:
            if not session.query(self.sql.table_exists(table)):
                return
            for key_range in ranges:
                with self.sql.transaction(session):
                    if not into:
                        require_deletable(
                            session.query, self.sql, plan, key_range, options, plan.target
                        )
                        session.execute(self.sql.delete_range(table, plan.target_range(key_range)))
                    markers.remove(session, [key_range.name])

    def keep_quarantined(self, plan: CopyPlan, ranges: Sequence[str]) -> None:
        """See `Target.keep_quarantined`."""
        with self._session() as session:
            keep_quarantined(self.sql, session, plan.target, ranges)

    def clean(
        self, target: TableRef, alive: Alive = no_live_owner, *, rejected: bool = True
    ) -> list[str]:
        """See `Target.clean`. A range without a lock has no living owner."""
        lock_length = len(staging_name(target, ""))
        dropped = []
        with self._session() as session:
            rows = session.query(self.sql.tables_like(target, staging_prefix(target)))
            names = [name for _, name, _ in rows if rejected or not is_rejected(target, name)]
            for lock in sorted({name[:lock_length] for name in names}):
                if self.sql.take_lock(session, lock, 0):
                    dropped += self._drop_all(session, target, lock, rejected=rejected)
                    session.execute(self.sql.release_lock(lock))
        return dropped

    def rejected_table(self, plan: CopyPlan, key_range: KeyRange) -> TableRef | None:
        """See `Target.rejected_table`."""
        kept = rejected_of(plan.target, key_range.name)
        return kept if self.resource.query(self.sql.table_exists(kept)) else None

    def staged_columns(self, plan: CopyPlan, staging: TableRef) -> list[Column]:
        """See `Target.staged_columns`."""
        return cast(list[Column], self.resource.columns(staging))

    def _session(self) -> AbstractContextManager[AnySession]:
        """Lend a session; it is closed, and its locks released, after an error or a failed
        statement."""
        raise NotImplementedError

    def _staging_schema(self, session: AnySession, table: TableRef) -> str:
        """The schema of a table's staging tables: its own."""
        return table.schema

    def _load(self, stack: contextlib.ExitStack, **parts: Any) -> TransactionalLoad[AnySession]:
        """Make the load of a held range; what it opens ends with the stack."""
        raise NotImplementedError

    def _as_it_is(
        self, plan: CopyPlan, options: TargetOptions, columns: Sequence[Column]
    ) -> TargetOptions:
        """Return the options with hazards that are newer than the plan, where these are looked for
        at each range."""
        return options

    def _in_catalog(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        """The hazards in the server's catalog."""
        raise NotImplementedError

    def _take_lock(
        self, session: AnySession, lock: str, table: TableRef, key_range: KeyRange
    ) -> None:
        if not self.sql.take_lock(session, lock, LOCK_SECONDS):
            raise errors.RangeBusy(f"{table} range {key_range.name} is being loaded by another run")

    def _prepared_identity(self, table: TableRef) -> str:
        """The identity of a table when it was prepared."""
        if table not in self._identities:
            self._identities[table] = self.identity(table) or ""
        return self._identities[table]

    def _before_swap(self, session: AnySession, plan: CopyPlan) -> None:
        """Give the shadow what it still lacks before it replaces the target."""

    def _ensure_shadow(
        self, session: AnySession, plan: CopyPlan, options: TargetOptions, shadow: TableRef
    ) -> None:
        """Create a shadow unless there is one of the shape that it should have.

        It has all of the target's rows, and so those of skipped ranges; or none, and the plan's
        columns, if the target is recreated.
        """
        markers = MarkerTable(self.sql, plan.target, shadow)
        shape = self._shape(session, plan, options)
        if markers.shape(session) == shape:
            return
        former = markers.identity(session)
        made = self.sql.create_shadow(plan, shadow)
        filled = [self.sql.insert_all(plan, shadow, plan.target)]
        if options.recreate:
            made, filled = self.sql.create_table(plan, shadow), []
        with self.sql.transaction(session):
            for statement in [drop_table(shadow), *made]:
                session.execute(statement)
            # an index that is refused leaves no shadow
            self._add_indexes(session, plan, shadow)
            markers.begin_shadow(session, "", former)
        # SQL Server blocks whoever reads its catalog until statements of DDL are committed
        with self.sql.transaction(session):
            for statement in filled:
                session.execute(statement)
            markers.begin_shadow(session, shape, former)

    def _shape(self, session: AnySession, plan: CopyPlan, options: TargetOptions) -> str:
        """A hash of the target and of all that its shadow is made like."""
        copied = self.sql.shape(plan.target)
        identity = MarkerTable(self.sql, plan.target).identity(session)
        like = [options.recreate, identity, plan.target_columns, sorted(plan.row_identity)]
        like += session.query(copied) if copied else []
        return hashlib.blake2b(repr(like).encode(), digest_size=16).hexdigest()

    def _add_indexes(self, session: AnySession, plan: CopyPlan, shadow: TableRef) -> None:
        """Give a new shadow the indexes that others have given to the target, or refuse them."""

    def _drop_all(
        self, session: AnySession, table: TableRef, prefix: str, *, rejected: bool = True
    ) -> list[str]:
        """Drop what earlier attempts left under a lock that the session holds."""
        dropped = []
        rows = session.query(self.sql.tables_like(table, prefix))
        # views before the tables that they show
        for schema, name, type_ in sorted(rows, key=lambda row: row[2] != "VIEW"):
            if rejected or not is_rejected(table, name):
                staging = replace(table, schema=schema, name=name)
                if type_ == "VIEW":
                    session.execute(f"DROP VIEW IF EXISTS {qualified(staging)}")
                else:
                    session.execute(drop_table(staging))
                    dropped.append(str(name))
        return dropped
