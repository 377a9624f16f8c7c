"""A server as a load target whose ranges are published by transactions of one session."""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Generic, cast

from tableferry.resources import crash_points
from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract.copy_plan import CopyPlan, Format
from tableferry.resources.contract.dialects import drop_table, qualified
from tableferry.resources.contract.hazards import Hazard, having
from tableferry.resources.contract.markers import Publication, Published
from tableferry.resources.contract.target import (
    Alive,
    Target,
    TargetOptions,
    check_mode,
    is_rejected,
    nobody_else,
    rejected_of,
    replaces,
    row_identity,
    shadow_of,
    written_to,
)
from tableferry.resources.contract.target_columns import converted, unfilled, verify_columns
from tableferry.resources.errors import (
    InputError,
    RangeBusy,
    SchemaDrift,
    StatementFailed,
    TableferryError,
)
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef, staging_name, staging_prefix
from tableferry.resources.transactional import preview
from tableferry.resources.transactional.load import AnySession, TransactionalLoad
from tableferry.resources.transactional.markers import MarkerTable
from tableferry.resources.transactional.publish_audit import require_room
from tableferry.resources.transactional.statements import Statements
from tableferry.resources.types.column import Column

LOCK_SECONDS = 10
"""How long an attempt waits for a range's lock: a session whose client was killed ends by itself,
but a statement that it was running may have to end first."""


class TransactionalTarget(Target, Generic[AnySession]):
    """See `Target`.

    A range is held by a lock of a session, loaded into a staging table, and made visible by one
    transaction of that same session. The server gives the lock back when the session ends, so that
    it alone tells whether an attempt lives, and `alive` is never asked.

    Args:
        resource: the server, an `Endpoint`.
    """

    sql: Statements
    unstaged_formats: Sequence[Format] = ()
    """Of what comes along these, the session that holds a range loads it, see `RangeLoad`."""

    def __init__(self, resource: Any) -> None:
        self.resource = resource
        self._columns: dict[TableRef, Sequence[Column]] = {}
        self._identities: dict[TableRef, str] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.resource.settings()})"

    def require(self, plan: CopyPlan, options: TargetOptions) -> None:
        """Refuse a write mode that the plan cannot serve. See `Target.require`."""
        check_mode(plan, options)

    def prepare(
        self, plan: CopyPlan, options: TargetOptions, found: Sequence[Column] | None = None
    ) -> list[str]:
        """Create the table, and its schema, if missing; else verify it. See `Target.prepare`."""
        self.require(plan, options)
        notes: list[str] = []
        self._columns = {plan.target: plan.target_columns}
        markers = MarkerTable(self.sql, plan.target)
        with self._session() as session:
            if not session.query(self.sql.table_exists(plan.target)):
                self._create(session, plan)
                markers.create(session)
                markers.remove_others(session, [plan.target.name, shadow_of(plan.target).name])
            else:
                markers.create(session)
                columns = found or self.resource.columns(plan.target)
                notes += self._verify(session, plan, options, columns)
                self._columns[plan.target] = columns
            self._identities = {plan.target: markers.begin(session)}
            if options.mode.whole_table:
                self._ensure_shadow(session, plan)
                shadow = shadow_of(plan.target)
                markers = MarkerTable(self.sql, plan.target, shadow)
                self._identities[shadow] = markers.begin(session)
                # what numbers rows is no part of a shadow
                self._columns[shadow_of(plan.target)] = [
                    replace(column, identity=False) for column in self._columns[plan.target]
                ]
        return notes

    def hazards(
        self, plan: CopyPlan, options: TargetOptions, found: Sequence[Column]
    ) -> list[Hazard]:
        """Those of the catalog, and columns that are of other types than what is staged.

        See `Target.hazards`.
        """
        return [*self._in_catalog(plan, options), *converted(plan, found)]

    def expect(self, plan: CopyPlan) -> None:
        """Take the plan's target to be as planned, without looking at it."""
        self._columns[plan.target] = plan.target_columns

    def creation(self, plan: CopyPlan, options: TargetOptions, *, creates: bool) -> list[str]:
        """See `Target.creation`."""
        return list(preview.creation(self.sql, plan, options, creates=creates))

    def publication(
        self, plan: CopyPlan, key_range: KeyRange, options: TargetOptions, *, creates: bool
    ) -> list[str]:
        """See `Target.publication`."""
        unstaged = self._may_load(options)
        if unstaged and not creates:
            # a shadow is made of the target
            shadow = options.mode.whole_table and self.identity(written_to(plan, options))
            table = written_to(plan, options) if shadow else plan.target
            unstaged = self._fits(
                self.resource.query, plan, key_range, options, table, self.resource.columns(table)
            )
        return list(preview.publication(self.sql, plan, key_range, options, unstaged=unstaged))

    @contextlib.contextmanager
    def attempt(
        self, publication: Publication, options: TargetOptions, alive: Alive = nobody_else
    ) -> Iterator[Any]:
        """Hold the range by a session's lock, with a staging table. See `Target.attempt`."""
        plan, key_range = publication.plan, publication.key_range
        table = written_to(plan, options)
        lock = staging_name(plan.target, key_range.name)
        if table not in self._columns:
            self._columns[table] = self.resource.columns(table)
        identity = {column.name for column in self._columns[table] if column.identity}
        with contextlib.ExitStack() as stack:
            session = stack.enter_context(self._session())
            self._take(session, lock, table, key_range)
            if replaces(plan, options) and table == plan.target:
                self._require_room(session, plan, key_range, options)
            self._drop_all(session, table, lock)
            # a name of its own, so that "gone" can never be somebody else's doing
            name, schema = f"{lock}_{uuid.uuid4().hex[:12]}", self._staging_schema(session, table)
            staging = replace(table, schema=schema, name=name)
            try:
                for statement in self.sql.create_staging(plan, staging):
                    session.execute(statement)
            except StatementFailed:
                with contextlib.suppress(TableferryError):
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
                identity_column=any(column.name in identity for column in plan.target_columns),
                session=session,
                resource=self.resource,
                columns=self._columns[table],
                look=functools.partial(self.hazards, plan, options, self._columns[table]),
                identity=self._known_identity(table),
                publication=publication,
                unstaged=self._may_load(options)
                and self._fits(
                    session.query, plan, key_range, options, table, self._columns[table]
                ),
            )
            try:
                yield load
            finally:
                # if the server is away, the next attempt or `clean` drops it
                with contextlib.suppress(TableferryError):
                    if load.unstaged:
                        load.rollback()
                    load.session.execute(self.sql.drop_staging(staging))
                    load.session.execute(self.sql.release(lock))
                if load.session is not session:
                    load.session.close()

    def published(self, plan: CopyPlan, options: TargetOptions) -> Published:
        """See `Target.published`."""
        return MarkerTable(self.sql, plan.target).read(self.resource.query, options)

    @contextlib.contextmanager
    def marking(
        self, publication: Publication, options: TargetOptions, alive: Alive = nobody_else
    ) -> Iterator[None]:
        """Hold the range by a session's lock. See `Target.marking`."""
        target, key_range = publication.plan.target, publication.key_range
        table, lock = written_to(publication.plan, options), staging_name(target, key_range.name)
        with self._session() as session:
            self._take(session, lock, target, key_range)
            try:
                with self._transaction(session):
                    markers = MarkerTable(self.sql, target, table)
                    markers.put(session, self._known_identity(table), publication)
                yield
            finally:
                with contextlib.suppress(TableferryError):
                    session.execute(self.sql.release(lock))

    def _known_identity(self, table: TableRef) -> str:
        """The identity of a table as it was prepared."""
        if table not in self._identities:
            self._identities[table] = self.identity(table) or ""
        return self._identities[table]

    def _take(self, session: AnySession, lock: str, table: TableRef, key_range: KeyRange) -> None:
        if not self.sql.take(session, lock, LOCK_SECONDS):
            raise RangeBusy(f"{table} range {key_range.name} is being loaded by another run")

    def forget_markers(self, table: TableRef) -> None:
        """See `Target.forget_markers`."""
        with self._session() as session, self._transaction(session):
            MarkerTable(self.sql, table).remove(session)

    def identity(self, table: TableRef) -> str | None:
        """The table's object id, which a new name leaves alone."""
        rows = self.resource.query(self.sql.object_id(table))
        return str(rows[0][0]) if rows else None

    def promote(
        self, plan: CopyPlan, options: TargetOptions, gathered: Mapping[str, str] | None = None
    ) -> None:
        """Put the shadow in the target's place, and drop the old table, in one transaction.

        The markers stay those of the shadow, which keeps its object id.
        """
        shadow, target = shadow_of(plan.target), plan.target
        with self._session() as session, self._transaction(session):
            if session.query(self.sql.table_exists(shadow)):
                if gathered is not None:
                    MarkerTable(self.sql, target, shadow).require(session, gathered)
                self._before_swap(session, shadow, target)
                MarkerTable(self.sql, target).remove_others(session, [shadow.name])
                for statement in self.sql.put_in_place(shadow, target):
                    session.execute(statement)
                crash_points.reached("inside_swap")

    def retire(
        self,
        plan: CopyPlan,
        ranges: Sequence[KeyRange],
        into: Sequence[KeyRange],
        options: TargetOptions,
    ) -> None:
        """Only the rows that nothing covers have to go. See `Target.retire`.

        A range's rows are found by their keys, whatever range they came with.
        """
        table = written_to(plan, options)
        markers = MarkerTable(self.sql, plan.target, table)
        with self._session() as session:
            if not session.query(self.sql.table_exists(table)):
                return
            for key_range in ranges:
                with self._transaction(session):
                    if not into:
                        self._require_room(session, plan, key_range, options)
                        session.execute(self.sql.delete_range(table, plan.target_range(key_range)))
                    markers.remove(session, [key_range.name])

    def clean(
        self, target: TableRef, alive: Alive = nobody_else, *, rejected: bool = True
    ) -> list[str]:
        """Drop the staging tables of ranges that no session holds. See `Target.clean`."""
        prefix = staging_prefix(target)
        lock_length = len(staging_name(target, ""))
        dropped = []
        with self._session() as session:
            names = [row[1] for row in session.query(self.sql.tables_like(target, prefix))]
            found = [name for name in names if rejected or not is_rejected(target, name)]
            for lock in sorted({name[:lock_length] for name in found}):
                if self.sql.take(session, lock, 0):
                    dropped += self._drop_all(session, target, lock, rejected=rejected)
                    session.execute(self.sql.release(lock))
        return dropped

    def rejected_table(self, plan: CopyPlan, key_range: KeyRange) -> TableRef | None:
        """The range's rows that failed their audit. See `Target.rejected_table`."""
        kept = rejected_of(plan.target, key_range.name)
        return kept if self.resource.query(self.sql.table_exists(kept)) else None

    def staged_columns(self, plan: CopyPlan, staging: TableRef) -> list[Column]:
        """See `Target.staged_columns`."""
        return cast(list[Column], self.resource.columns(staging))

    def range_rows(self, plan: CopyPlan, key_range: KeyRange, options: TargetOptions) -> int:
        """Rows of the range that are committed."""
        table = written_to(plan, options)
        query = self.sql.count(table, plan.target_range(key_range))
        return int(self.resource.query(query)[0][0])

    def _session(self) -> AbstractContextManager[AnySession]:
        """A session that nobody else has meanwhile.

        Others may have it afterwards, unless an error was raised, or a statement failed: it is
        closed then, and its locks are released.
        """
        raise NotImplementedError

    def _staging_schema(self, session: AnySession, table: TableRef) -> str:
        """Where the staging tables of a table are made: beside it."""
        return table.schema

    def _load(self, stack: contextlib.ExitStack, **parts: Any) -> TransactionalLoad[AnySession]:
        """The load of a held range; what it opens may end with the stack."""
        raise NotImplementedError

    def _in_catalog(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        """What the server's catalog has of the table that may change rows."""
        raise NotImplementedError

    def _may_load(self, options: TargetOptions) -> bool:
        """Whether rows may go into the table itself, and come in a form that a session loads.

        Only staged rows can be compared with what a table shows that may change them.
        """
        safe = not options.audits_shown and not having(options.hazards, "destroys")
        return options.unstaged and options.format in self.unstaged_formats and safe

    def _require_room(
        self, session: AnySession, plan: CopyPlan, key_range: KeyRange, options: TargetOptions
    ) -> None:
        own = plan.target_range(key_range)
        require_room(session.query, self.sql, plan.target, key_range, own, options.hazards)

    def _fits(
        self,
        ask: Callable[[str], list[tuple[Any, ...]]],
        plan: CopyPlan,
        key_range: KeyRange,
        options: TargetOptions,
        table: TableRef,
        columns: Sequence[Column],
    ) -> bool:
        """Whether the range's rows can go into the table itself.

        That takes the table's columns to be of the plan's types, as nothing converts them. Rows
        that are there must give way, and in no other range must there be one that the new ones
        collide with: ranges that wait for each other's transactions would not end.
        """
        types = {column.name: column.type for column in columns}
        if any(types.get(column.name) != column.type for column in plan.target_columns):
            return False
        if replaces(plan, options) and plan.key.target.name in row_identity(plan):
            return True
        return not ask(self.sql.any_row(table, plan.target_range(key_range)))

    def _before_swap(self, session: AnySession, shadow: TableRef, target: TableRef) -> None:
        """What else the shadow needs before it takes the target's place."""

    def _require_swap(self, session: AnySession, plan: CopyPlan) -> None:
        """Refuse to swap a table of which the shadow would not have everything."""

    def _create(self, session: AnySession, plan: CopyPlan) -> None:
        # another run may be faster with the schema, and then with the table: its are as good
        for last in (False, True):
            try:
                session.execute(self.sql.create_schema(plan.target))
                with self._transaction(session):
                    for statement in self.sql.create_table(plan, plan.target):
                        session.execute(statement)
                return
            except StatementFailed:
                if session.query(self.sql.table_exists(plan.target)):
                    return
                if last:
                    raise

    def _verify(
        self,
        session: AnySession,
        plan: CopyPlan,
        options: TargetOptions,
        columns: Sequence[Column],
    ) -> list[str]:
        verify_columns(plan, columns, incompatibility)
        others = unfilled(plan, columns)
        required = {row[0] for row in session.query(self.sql.required_columns(plan.target))}
        blocking = [column.name for column in others if column.name in required]
        if blocking:
            raise SchemaDrift(
                f"{plan.target} has columns that the transfer does not write and that must not be "
                f"NULL: {', '.join(map(repr, blocking))}"
            )
        if options.mode.whole_table:
            self._require_swap(session, plan)
            if others:
                raise InputError(
                    f"{plan.target}: {options.mode} would lose the columns that the transfer does "
                    f"not write: {', '.join(repr(column.name) for column in others)}"
                )
        return [
            f"{plan.target}: column {column.name!r} is not in the transfer; new rows get its "
            "default or NULL"
            for column in others
        ]

    def _ensure_shadow(self, session: AnySession, plan: CopyPlan) -> None:
        """A shadow that holds all of the target, so that ranges that are skipped are in it too."""
        shadow = shadow_of(plan.target)
        if session.query(self.sql.table_exists(shadow)):
            return verify_columns(plan, self.resource.columns(shadow), incompatibility)
        with self._transaction(session):
            for statement in self.sql.create_shadow(plan, shadow):
                session.execute(statement)
            session.execute(self.sql.insert_all(plan, shadow, plan.target))

    @contextlib.contextmanager
    def _transaction(self, session: AnySession) -> Iterator[None]:
        for statement in self.sql.begin:
            session.execute(statement)
        try:
            yield
            session.execute(self.sql.commit)
        except BaseException:
            with contextlib.suppress(TableferryError):
                session.execute(self.sql.rollback)
            raise

    def _drop_all(
        self, session: AnySession, table: TableRef, prefix: str, *, rejected: bool = True
    ) -> list[str]:
        """Drop what an earlier attempt left under this lock, which is ours now."""
        dropped = []
        left = session.query(self.sql.tables_like(table, prefix))
        # a view goes before the table that it shows
        for schema, name, kind in sorted(left, key=lambda row: row[2] != "VIEW"):
            if rejected or not is_rejected(table, name):
                one = replace(table, schema=schema, name=name)
                if kind == "VIEW":
                    session.execute(f"DROP VIEW IF EXISTS {qualified(one)}")
                else:
                    session.execute(drop_table(one))
                    dropped.append(str(name))
        return dropped
