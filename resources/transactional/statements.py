"""The SQL of a target that publishes each range in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from tableferry.resources import errors, registry
from tableferry.resources.columns.key_kind import is_text_key
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.system import System
from tableferry.resources.contract.table_sql import alias_prefix, drop_table, qualified
from tableferry.resources.contract.target_options import Mark, TargetOptions
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column


class TargetSession(Protocol):
    """A connection in autocommit mode: transactions are opened and ended in SQL."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result."""

    def execute(self, sql: str) -> int:
        """Run a statement; return the number of rows that it changed, or -1."""

    def close(self) -> None:
        """End the session; harmless if it is already closed."""


class Reference(NamedTuple):
    """A pair of columns of a foreign key."""

    key: str
    """The foreign key's name."""
    schema: str
    """The schema of the table that refers."""
    table: str
    """Its name."""
    referring: str
    """Its column."""
    referred: str
    """The column that it refers to."""
    compares: str
    """The operator that the foreign key compares them by."""
    collates: str
    """The clause, if any, that has it compare them as the column that is referred to."""


class Publishing(NamedTuple):
    """The statements that publish staged rows, in their order."""

    known: Sequence[str]
    """Replace the staged rows that the table has by the table's own, before these are audited."""
    removes: Sequence[str]
    """Delete or mark rows, in the transaction that the others are in, too."""
    updates: Sequence[str]
    inserts: Sequence[str]


RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
"""What loading needs on tables that others have created."""


class Statements:
    """The SQL for each step. What stands here is standard SQL; systems override the rest."""

    system_name: str

    overriding = ""
    """Clause between the columns and the SELECT of an INSERT that may write an identity column."""

    collates_key = False
    """Whether a text key has the collation of its ranges, because an index cannot have another."""

    indexed_text, any_text = "text", "text"
    """Types of a text that is part of a key, and of any other."""

    begin: Sequence[str] = ("BEGIN TRANSACTION",)
    script_begin: Sequence[str] = ()
    """What a script for the system's own command line begins with."""
    commit = "COMMIT TRANSACTION"
    rollback = "ROLLBACK"
    run_deferred: Sequence[str] = ()
    """Statements that at once run what is deferred to the commit."""

    @property
    def system(self) -> System:
        """The system whose SQL it is."""
        return registry.system(self.system_name)

    # the table

    def create_schema(self, table: TableRef) -> str:
        """CREATE SCHEMA if missing."""
        raise NotImplementedError

    def create_table(self, plan: CopyPlan, table: TableRef) -> list[str]:
        """CREATE TABLE of the target or its shadow, and an index on the key column.

        The source's primary key becomes the table's where possible. The index lets a range be
        deleted and counted without a scan.
        """
        raise NotImplementedError

    def add_mark(self, table: TableRef, mark: Mark) -> str:
        """Add the column that marks rows to a new table."""
        name = self.names([mark.column.name])
        return self.system.dialect.add_column(qualified(table), name, mark.column)

    def create_staging(self, plan: CopyPlan, staging: TableRef) -> list[str]:
        """CREATE TABLE of a heap with no constraint but NOT NULL, which loads fastest."""
        raise NotImplementedError

    def drop_staging(self, staging: TableRef) -> str:
        """Drop whatever `create_staging` has created."""
        return drop_table(staging)

    def create_shadow(self, plan: CopyPlan, shadow: TableRef) -> list[str]:
        """CREATE TABLE of an empty shadow of the plan's existing target."""
        return self.create_table(plan, shadow)

    def shape(self, table: TableRef) -> str:
        """A query for one text, of all that `create_shadow` copies of a table; '' if that is
        nothing."""
        return ""

    def put_in_place(self, shadow: TableRef, target: TableRef) -> list[str]:
        """Drop the target and rename the shadow to it, in a transaction that includes DDL."""
        return [f"DROP TABLE {qualified(target)}", self.rename(shadow, target.name)]

    def lock_table(self, table: TableRef) -> str:
        """Let no other session write to a table until the transaction ends, and wait for those
        that have."""
        raise NotImplementedError

    def object_ids(self, schema: str, names: Sequence[str]) -> str:
        """A query for the names and ids of those tables in a schema that exist."""
        raise NotImplementedError

    def limit_waiting(self, seconds: int) -> tuple[str, str]:
        """The statements that limit the waiting for locks in a transaction, and lift the limit."""
        raise NotImplementedError

    def rename(self, table: TableRef, name: str) -> str:
        """Rename a table within its schema."""
        raise NotImplementedError

    def keep(self, plan: CopyPlan, staging: TableRef, kept: TableRef) -> list[str]:
        """Give the staged rows a table of another name in the same schema."""
        return [self.rename(staging, kept.name)]

    def table_exists(self, table: TableRef) -> str:
        """A query that returns a row if the table exists."""
        return f"SELECT 1 FROM INFORMATION_SCHEMA.TABLES WHERE {self._in_catalog(table)}"

    def permissions(self, table: TableRef) -> str:
        """A query for the login, and whether it has each of `RIGHTS` on a table, or NULL if that is
        unknown; without a row if there is no such table, or none that the login is shown."""
        raise NotImplementedError

    def may_alter(self, table: TableRef) -> str:
        """A query for the login, whether it may alter a table, or NULL if that is unknown, and what
        would let it."""
        raise NotImplementedError

    def column_exists(self, table: TableRef, name: str) -> str:
        """A query that returns a row if the table has the column."""
        return (
            f"SELECT 1 FROM INFORMATION_SCHEMA.COLUMNS WHERE {self._in_catalog(table)} "
            f"AND COLUMN_NAME = {self.text(name)}"
        )

    def tables_like(self, table: TableRef, prefix: str) -> str:
        """A query for schema, name and type of the tables beside one that have a prefix."""
        return (
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES "
            f"WHERE TABLE_SCHEMA = {self.text(table.schema)} "
            f"AND LEFT(TABLE_NAME, {len(prefix)}) = {self.text(prefix)} ORDER BY TABLE_NAME"
        )

    def by_age(self, table: TableRef, prefix: str) -> str:
        """A query for the tables in the schema of one that have a prefix, the oldest first."""
        raise NotImplementedError

    def required_columns(self, table: TableRef) -> str:
        """A query for the columns that are NOT NULL and have no default."""
        return (
            f"SELECT COLUMN_NAME FROM INFORMATION_SCHEMA.COLUMNS WHERE {self._in_catalog(table)} "
            "AND IS_NULLABLE = 'NO' AND COLUMN_DEFAULT IS NULL"
        )

    # the range

    @contextmanager
    def transaction(self, session: TargetSession) -> Iterator[None]:
        """Commit what is executed inside, or roll it back on any error."""
        for statement in self.begin:
            session.execute(statement)
        try:
            yield
            session.execute(self.commit)
        except BaseException:
            with suppress(errors.TableferryError):
                session.execute(self.rollback)
            raise

    def take_lock(self, session: TargetSession, lock: str, seconds: float) -> bool:
        """Take a lock of the session; return False if another session holds it for that long."""
        raise NotImplementedError

    def release_lock(self, lock: str) -> str:
        """Release the session's lock."""
        raise NotImplementedError

    def allow_identity(self, table: TableRef, allowed: bool) -> str | None:
        """Allow or forbid writing the identity column in this session; None if always allowed."""
        return None

    def mark(self, session: TargetSession, staging: TableRef) -> str:
        """Leave, as the last step of a transaction, what `committed` looks for."""
        raise NotImplementedError

    def committed(self, session: TargetSession, staging: TableRef, mark: str, rows: int) -> bool:
        """Whether the transaction of a lost session has committed.

        Args:
            session: a new one, which holds the range's lock.
            staging: the staging table, which exists.
            mark: returned by `mark`.
            rows: those that the staging table had.
        """
        raise NotImplementedError

    def broke(self, error: errors.StatementFailed) -> bool:
        """Whether the connection is lost, so that the statement's outcome is unknown."""
        raise NotImplementedError

    def breaks_key(self, error: errors.StatementFailed) -> bool:
        """Whether a statement may have failed because of a key that another row has."""
        raise NotImplementedError

    # what else the transaction changed

    def change_counts(self, table: TableRef) -> str | None:
        """A query for the rows of the table that this transaction has inserted, updated and
        deleted, triggers included; None if the server does not count them."""
        return None

    def count_new_elsewhere(self, table: TableRef, condition: str) -> str:
        """Count the rows that this transaction has written and that do not meet a condition; for
        servers with `change_counts`."""
        raise NotImplementedError

    def lock_transaction(self, lock: str, seconds: float) -> str:
        """Take a lock until the transaction ends; the result is negative if another session holds
        it for that long. For servers without `change_counts`."""
        raise NotImplementedError

    # what refers to the rows

    holding = ""
    """The hint by which a SELECT keeps others from inserting what it has not found."""

    def referring(self, table: TableRef) -> str:
        """A query for the pairs of columns of the foreign keys whose rows change if those of the
        table are deleted, in the order of the keys; see `Reference`."""
        raise NotImplementedError

    def lock_referred(self, table: TableRef, condition: str) -> str | None:
        """Lock rows so that none comes to refer to them until the transaction ends; None if
        `holding` sees to that."""
        return None

    def referred(
        self, plan: CopyPlan, table: TableRef, references: Sequence[Reference], condition: str
    ) -> str:
        """A query for the primary key of a row that meets a condition, and that others refer to.

        Args:
            plan: the hop.
            table: the table that is written to.
            references: the pairs of columns of one foreign key.
            condition: the condition of the rows, in the names of the table's columns.
        """
        other, own = aliases(plan)
        child = replace(table, schema=references[0].schema, name=references[0].table)
        joined = [
            f"{own}.{self.names([each.referred])} {each.compares} "
            f"{other}.{self.names([each.referring])}{each.collates}"
            for each in references
        ]
        if child == table:
            # rows that go together may refer to each other; the names mean the nearest table
            joined.append(f"NOT ({condition})")
        first, last = self.system.dialect.limited(1)
        key = ", ".join(f"{own}.{self.names([name])}" for name in plan.row_identity)
        return (
            f"SELECT {first}{key} FROM {qualified(table)} AS {own} WHERE ({condition}) AND EXISTS "
            f"(SELECT 1 FROM {qualified(child)} AS {other}{self.holding} "
            f"WHERE {' AND '.join(joined)}){last}"
        )

    # the rows

    def count(self, table: TableRef, condition: str = "1 = 1") -> str:
        """Count rows in 64 bits."""
        return f"SELECT {self.system.dialect.count} FROM {qualified(table)} WHERE {condition}"

    def any_row(self, table: TableRef, condition: str) -> str:
        """A query that returns a row if any meets a condition."""
        first, last = self.system.dialect.limited(1)
        return f"SELECT {first}1 FROM {qualified(table)} WHERE {condition}{last}"

    def delete_range(self, table: TableRef, condition: str) -> str:
        """Delete the rows of a range."""
        return f"DELETE FROM {qualified(table)} WHERE {condition}"

    def insert_all(
        self, plan: CopyPlan, table: TableRef, rows_of: TableRef, condition: str = "1 = 1"
    ) -> str:
        """Copy rows from another table."""
        return (
            f"{self._insert(plan, table)} "
            f"SELECT {self.columns(plan)} FROM {qualified(rows_of)} WHERE {condition}"
        )

    def insert_new(self, plan: CopyPlan, table: TableRef, staging: TableRef) -> str:
        """Copy the staged rows whose primary key the table does not have."""
        staged, target = aliases(plan)
        return (
            f"{self._insert(plan, table)} SELECT {self.columns(plan)} "
            f"FROM {qualified(staging)} AS {staged} WHERE NOT EXISTS "
            f"(SELECT 1 FROM {qualified(table)} AS {target} WHERE {self.same_row(plan)})"
        )

    def stage_known(
        self, plan: CopyPlan, table: TableRef, staging: TableRef, where: str
    ) -> list[str]:
        """Replace the staged rows that the table already has by the table's own.

        Args:
            plan: the hop.
            table: the table that is written to.
            staging: the range's staging table.
            where: the condition of the table's rows in the range.
        """
        known = self.drop_known(plan, table, staging)
        return [known, self.insert_all(plan, staging, table, where)]

    def publish(
        self, publication: Publication, options: TargetOptions, table: TableRef, staging: TableRef
    ) -> Publishing:
        """Write the staged rows to the table, by themselves or by the write mode.

        Rows are deleted first, so that others can take over their unique values.
        """
        plan, mark = publication.plan, options.mark
        written = options.written_by(plan)
        where, update = plan.target_range(publication.key_range), None
        known, removes, insert = list[str](), list[str](), self.insert_new(plan, table, staging)
        if options.replaces(plan):
            insert = self.insert_all(plan, table, staging)
            removes = [self.delete_range(table, where)]
        elif options.appends(plan):
            known = self.stage_known(plan, table, staging, where)
        elif written.updates:
            update = self.update_known(plan, table, staging, mark)
        if options.single_rows:
            gone = publication.delta.delete
            removes = [self.remove(table, condition, mark) for condition in gone]
        elif options.removes:
            removes = [self.remove_gone(plan, table, staging, where, mark)]
        inserts = [insert] if written.inserts else []
        return Publishing(known, removes, [update] if update else [], inserts)

    def remove(self, table: TableRef, condition: str, mark: Mark | None) -> str:
        """Delete or mark the rows that meet a condition."""
        if mark is None:
            return self.delete_range(table, condition)
        return f"UPDATE {qualified(table)} SET {mark.setting(self.system)} WHERE {condition}"

    def remove_gone(
        self,
        plan: CopyPlan,
        table: TableRef,
        staging: TableRef,
        condition: str,
        mark: Mark | None,
    ) -> str:
        """Delete or mark the rows that meet a condition and whose primary key was not staged."""
        if mark is None:
            return f"DELETE FROM {self.kept_rows(plan, table, staging, condition)}"
        _, target = aliases(plan)
        return (
            f"UPDATE {qualified(table)} AS {target} SET {mark.setting(self.system)} "
            f"WHERE {self._not_staged(plan, staging, condition)}"
        )

    def drop_known(self, plan: CopyPlan, table: TableRef, staging: TableRef) -> str:
        """Delete the staged rows whose primary key the table has."""
        staged, target = aliases(plan)
        return (
            f"DELETE FROM {qualified(staging)} AS {staged} WHERE EXISTS "
            f"(SELECT 1 FROM {qualified(table)} AS {target} WHERE {self.same_row(plan)})"
        )

    def delete_known(self, plan: CopyPlan, table: TableRef, staging: TableRef) -> str:
        """Delete the rows whose primary key was staged."""
        return f"DELETE FROM {self.known_rows(plan, table, staging)}"

    def known_rows(self, plan: CopyPlan, table: TableRef, staging: TableRef) -> str:
        """The same rows, as a FROM clause."""
        staged, target = aliases(plan)
        return (
            f"{qualified(table)} AS {target} WHERE EXISTS "
            f"(SELECT 1 FROM {qualified(staging)} AS {staged} WHERE {self.same_row(plan)})"
        )

    def count_kept(self, plan: CopyPlan, table: TableRef, staging: TableRef, condition: str) -> str:
        """Count the rows whose primary key was not staged."""
        count = self.system.dialect.count
        return f"SELECT {count} FROM {self.kept_rows(plan, table, staging, condition)}"

    def kept_rows(self, plan: CopyPlan, table: TableRef, staging: TableRef, condition: str) -> str:
        """The same rows, as a FROM clause."""
        _, target = aliases(plan)
        not_staged = self._not_staged(plan, staging, condition)
        return f"{qualified(table)} AS {target} WHERE {not_staged}"

    def _not_staged(self, plan: CopyPlan, staging: TableRef, condition: str) -> str:
        """The condition that a row meets another one, and its primary key was not staged."""
        staged, _ = aliases(plan)
        return (
            f"({condition}) AND NOT EXISTS "
            f"(SELECT 1 FROM {qualified(staging)} AS {staged} WHERE {self.same_row(plan)})"
        )

    def update_known(
        self, plan: CopyPlan, table: TableRef, staging: TableRef, mark: Mark | None = None
    ) -> str | None:
        """Update the rows whose primary key was staged, and remove their marks; None if there are
        only key columns."""
        assignments = self.assignments(plan, mark)
        staged, target = aliases(plan)
        return assignments and (
            f"UPDATE {qualified(table)} AS {target} SET {assignments} "
            f"FROM {qualified(staging)} AS {staged} WHERE {self.same_row(plan)}"
        )

    def assignments(self, plan: CopyPlan, mark: Mark | None) -> str:
        """The columns outside the primary key, each set to its staged value, and no mark."""
        identity, (staged, _) = plan.row_identity, aliases(plan)
        others = [column.name for column in plan.target_columns if column.name not in identity]
        values = [f"{self.names([name])} = {staged}.{self.names([name])}" for name in others]
        return ", ".join([*values, *([mark.clearing(self.system)] if mark else [])])

    def same_row(self, plan: CopyPlan) -> str:
        """The condition that the rows of both `aliases` have the same primary key."""
        by_name = {column.name: column for column in plan.target_columns}
        return " AND ".join(self.equal(plan, by_name[name]) for name in plan.row_identity)

    def equal(self, plan: CopyPlan, column: Column) -> str:
        """The condition that the rows of both `aliases` have equal values in a column."""
        name, (staged, target) = self.names([column.name]), aliases(plan)
        return f"{target}.{name} = {staged}.{name}"

    # parts of statements

    def names(self, columns: Sequence[str]) -> str:
        """Quoted names, separated by commas."""
        return ", ".join(self.system.quote(column) for column in columns)

    def columns(self, plan: CopyPlan) -> str:
        """The plan's target columns, quoted and separated by commas."""
        return self.names([column.name for column in plan.target_columns])

    def definitions(self, plan: CopyPlan, *, staging: bool = False) -> list[str]:
        """The plan's columns for CREATE TABLE.

        A text key has the collation that its ranges are cut by: always in a staging table, which
        is searched by ranges like a target that may have it.
        """
        ordered = (staging or self.collates_key) and self.text_key(plan)
        definitions = []
        for column in plan.target_columns:
            parts = [self.names([column.name]), column.type]
            is_key = column.name == plan.key.target.name
            if ordered and is_key and (collation := self.key_order(column)):
                parts += ["COLLATE", collation]
            definitions.append(" ".join((*parts, "NULL" if column.nullable else "NOT NULL")))
        return definitions

    def text_key(self, plan: CopyPlan) -> bool:
        """Whether ranges are cut by a text key."""
        return is_text_key(plan.key.source, plan.source.system) and is_text_key(
            plan.key.target, self.system
        )

    def key_order(self, column: Column) -> str:
        """The collation that orders a text by its bytes; empty if ranges cast the key anyway."""
        raise NotImplementedError

    def text(self, value: str) -> str:
        """A text literal."""
        return self.system.dialect.literal(value)

    def _in_catalog(self, table: TableRef) -> str:
        schema, name = self.text(table.schema), self.text(table.name)
        return f"TABLE_SCHEMA = {schema} AND TABLE_NAME = {name}"

    def _insert(self, plan: CopyPlan, table: TableRef) -> str:
        return f"INSERT INTO {qualified(table)} ({self.columns(plan)}){self.overriding}"


def aliases(plan: CopyPlan) -> tuple[str, str]:
    """The aliases of the staging table and of the table that is written to."""
    prefix = alias_prefix(*(column.name for column in plan.target_columns))
    return f"{prefix}s", f"{prefix}t"
