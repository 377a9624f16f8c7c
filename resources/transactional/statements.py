"""The statements of a target that publishes a range by one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tableferry.resources import registry
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.dialects import drop_table, qualified, quote, string_literal
from tableferry.resources.contract.system import System
from tableferry.resources.contract.target import TargetOptions, appends, row_identity
from tableferry.resources.errors import StatementFailed
from tableferry.resources.own_names import own_prefix
from tableferry.resources.ranges.key_kind import is_text_key
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column


class Session(Protocol):
    """A connection in autocommit mode: transactions are opened and ended in SQL."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a small result."""

    def execute(self, sql: str) -> int:
        """Run a statement; returns the number of rows that it changed, or -1."""

    def close(self) -> None:
        """End the session; harmless if it is gone."""


class Statements:
    """What a system's SQL is for each step. What stands here is standard SQL."""

    system_name: str

    overriding = ""
    """What an INSERT says in front of its SELECT, so that it may write an identity column."""

    collates_key = False
    """Whether a key that is a text has that collation in the target, too: an index cannot."""

    indexed_text, any_text = "text", "text"
    """Types of a text that is part of a key, and of any other."""

    begin: Sequence[str] = ("BEGIN TRANSACTION",)
    commit = "COMMIT TRANSACTION"
    rollback = "ROLLBACK"
    settle: Sequence[str] = ()
    """What runs now, in a transaction, all that would run at its commit."""

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

        The source's primary key becomes the table's, where it can be one. The index lets a range
        be deleted and counted without a scan.
        """
        raise NotImplementedError

    def create_staging(self, plan: CopyPlan, staging: TableRef) -> list[str]:
        """A heap without any constraint but NOT NULL: the fastest thing to load."""
        raise NotImplementedError

    def drop_staging(self, staging: TableRef) -> str:
        """Undo `create_staging`, as far as it came."""
        return drop_table(staging)

    def create_shadow(self, plan: CopyPlan, shadow: TableRef) -> list[str]:
        """An empty shadow of the plan's target, which is there."""
        return self.create_table(plan, shadow)

    def put_in_place(self, shadow: TableRef, target: TableRef) -> list[str]:
        """Put the shadow in the target's place, and drop what was there.

        DDL is part of the transaction, so that the name may be free for a moment.
        """
        return [f"DROP TABLE {qualified(target)}", self.rename(shadow, target.name)]

    def object_id(self, table: TableRef) -> str:
        """A query with what the table keeps for life, if it exists."""
        raise NotImplementedError

    def waiting(self, seconds: int) -> tuple[str, str]:
        """What stands before and after a statement of a transaction that waits for the locks of
        others no longer than that."""
        raise NotImplementedError

    def object_ids(self, schema: str, names: Sequence[str]) -> str:
        """A query with name and object id of those tables of a schema that exist."""
        raise NotImplementedError

    def rename(self, table: TableRef, name: str) -> str:
        """Rename a table, within its schema."""
        raise NotImplementedError

    def keep(self, plan: CopyPlan, staging: TableRef, kept: TableRef) -> list[str]:
        """Have what is staged in a table of another name, within its schema."""
        return [self.rename(staging, kept.name)]

    def table_exists(self, table: TableRef) -> str:
        """A query with one row if the table exists."""
        return (
            "SELECT 1 FROM INFORMATION_SCHEMA.TABLES "
            f"WHERE TABLE_SCHEMA = {self.text(table.schema)} AND TABLE_NAME = "
            f"{self.text(table.name)}"
        )

    def tables_like(self, table: TableRef, prefix: str) -> str:
        """Schema, name and kind of what is in the table's schema and begins with a prefix."""
        return (
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES "
            f"WHERE TABLE_SCHEMA = {self.text(table.schema)} "
            f"AND LEFT(TABLE_NAME, {len(prefix)}) = {self.text(prefix)} ORDER BY TABLE_NAME"
        )

    def required_columns(self, table: TableRef) -> str:
        """The columns that an INSERT must give: NOT NULL and without a default."""
        return (
            "SELECT COLUMN_NAME FROM INFORMATION_SCHEMA.COLUMNS "
            f"WHERE TABLE_SCHEMA = {self.text(table.schema)} AND TABLE_NAME = "
            f"{self.text(table.name)} AND IS_NULLABLE = 'NO' AND COLUMN_DEFAULT IS NULL"
        )

    # the range

    def take(self, session: Session, lock: str, seconds: float) -> bool:
        """Take a lock of the session, unless somebody else holds it for longer than that."""
        raise NotImplementedError

    def release(self, lock: str) -> str:
        """Give the session's lock back."""
        raise NotImplementedError

    def allow_identity(self, table: TableRef, allowed: bool) -> str | None:
        """Allow or forbid to write the table's identity column in this session, where that must
        be said."""
        return None

    def mark(self, session: Session, staging: TableRef) -> str:
        """Do, as the last step of a transaction, what `committed` will look for."""
        raise NotImplementedError

    def committed(self, session: Session, staging: TableRef, mark: str, rows: int) -> bool:
        """Whether a transaction that a lost session ran had committed.

        Args:
            session: a new one, which holds the range's lock.
            staging: the staging table, which is there.
            mark: of `mark`.
            rows: that the staging table had.
        """
        raise NotImplementedError

    def broke(self, error: StatementFailed) -> bool:
        """Whether the connection is gone, so that nobody knows what the statement did."""
        raise NotImplementedError

    # what else the transaction did

    def touched(self, table: TableRef) -> str | None:
        """A query with how many rows of the table this transaction has inserted, updated and
        deleted, by whatever statement; None where the server does not tell."""
        return None

    def made_elsewhere(self, table: TableRef, condition: str) -> str:
        """A query with the number of rows besides those of a condition that this transaction has
        made; of servers that have `touched`."""
        raise NotImplementedError

    def alone(self, lock: str, seconds: float) -> str:
        """A query that takes a lock until the end of the transaction; its answer is negative if
        somebody else holds it for longer than that. Of servers without `touched`."""
        raise NotImplementedError

    # the rows

    def count(self, table: TableRef, condition: str = "1 = 1") -> str:
        """Count rows, however many there are."""
        return f"SELECT {self.system.dialect.count} FROM {qualified(table)} WHERE {condition}"

    def look_by_index(self, table: TableRef) -> Sequence[str]:
        """What a transaction does first that looks for a key range of a table which may be new."""
        return ()

    def any_row(self, table: TableRef, condition: str) -> str:
        """A query with one row if there is any."""
        first, last = self.system.dialect.limited(1)
        return f"SELECT {first}1 FROM {qualified(table)} WHERE {condition}{last}"

    def delete_range(self, table: TableRef, condition: str) -> str:
        """Remove a key range."""
        return f"DELETE FROM {qualified(table)} WHERE {condition}"

    def insert_all(
        self, plan: CopyPlan, table: TableRef, rows_of: TableRef, condition: str = "1 = 1"
    ) -> str:
        """Copy rows."""
        return (
            f"{self._insert(plan, table)} "
            f"SELECT {self.columns(plan)} FROM {qualified(rows_of)} WHERE {condition}"
        )

    def insert_new(self, plan: CopyPlan, table: TableRef, staging: TableRef) -> str:
        """Copy the staged rows whose primary key the table does not have."""
        staged, own = aliases(plan)
        return (
            f"{self._insert(plan, table)} SELECT {self.columns(plan)} "
            f"FROM {qualified(staging)} AS {staged} WHERE NOT EXISTS "
            f"(SELECT 1 FROM {qualified(table)} AS {own} WHERE {self.same_row(plan)})"
        )

    def take_in(self, plan: CopyPlan, table: TableRef, staging: TableRef, own: str) -> list[str]:
        """Put the table's own rows in the place of those staged ones that it has already.

        Args:
            plan: the hop.
            table: what is written to.
            staging: the range's staging table.
            own: condition of the table's rows that are in the range.
        """
        return [
            self.drop_known(plan, table, staging),
            self.insert_all(plan, staging, table, own),
        ]

    def writing(
        self, plan: CopyPlan, options: TargetOptions, table: TableRef, staging: TableRef, own: str
    ) -> list[str]:
        """Bring the staged rows into the table, as the write mode says; see `take_in`."""
        if options.mode.updates_known:
            update = self.update_known(plan, table, staging)
            return [*([update] if update else []), self.insert_new(plan, table, staging)]
        if appends(plan, options):
            return [self.insert_new(plan, table, staging)]
        return [self.delete_range(table, own), self.insert_all(plan, table, staging)]

    def drop_known(self, plan: CopyPlan, table: TableRef, staging: TableRef) -> str:
        """Remove the staged rows whose primary key the table has."""
        staged, own = aliases(plan)
        return (
            f"DELETE FROM {qualified(staging)} AS {staged} WHERE EXISTS "
            f"(SELECT 1 FROM {qualified(table)} AS {own} WHERE {self.same_row(plan)})"
        )

    def count_kept(self, plan: CopyPlan, table: TableRef, staging: TableRef, condition: str) -> str:
        """Count the rows whose primary key was not staged."""
        count = self.system.dialect.count
        return f"SELECT {count} FROM {self.kept_rows(plan, table, staging, condition)}"

    def kept_rows(self, plan: CopyPlan, table: TableRef, staging: TableRef, condition: str) -> str:
        """The same rows, as they stand behind FROM."""
        staged, own = aliases(plan)
        return (
            f"{qualified(table)} AS {own} WHERE ({condition}) AND NOT EXISTS "
            f"(SELECT 1 FROM {qualified(staging)} AS {staged} WHERE {self.same_row(plan)})"
        )

    def update_known(self, plan: CopyPlan, table: TableRef, staging: TableRef) -> str | None:
        """Overwrite the rows whose primary key was staged; None if there is nothing but the key."""
        assignments = self.assignments(plan)
        staged, own = aliases(plan)
        return assignments and (
            f"UPDATE {qualified(table)} AS {own} SET {assignments} "
            f"FROM {qualified(staging)} AS {staged} WHERE {self.same_row(plan)}"
        )

    def assignments(self, plan: CopyPlan) -> str:
        """The columns besides the primary key, each set to what was staged."""
        identity, (staged, _) = row_identity(plan), aliases(plan)
        others = [column.name for column in plan.target_columns if column.name not in identity]
        return ", ".join(f"{self.names([name])} = {staged}.{self.names([name])}" for name in others)

    def same_row(self, plan: CopyPlan) -> str:
        """Condition: the rows of both `aliases` have one primary key."""
        by_name = {column.name: column for column in plan.target_columns}
        return " AND ".join(self.equal(plan, by_name[name]) for name in row_identity(plan))

    def equal(self, plan: CopyPlan, column: Column) -> str:
        """Condition: the rows of both `aliases` have the same in a column."""
        name, (staged, own) = self.names([column.name]), aliases(plan)
        return f"{own}.{name} = {staged}.{name}"

    # the words

    def names(self, columns: Sequence[str]) -> str:
        """Quoted column names, separated by commas."""
        return ", ".join(quote(self.system, column) for column in columns)

    def columns(self, plan: CopyPlan) -> str:
        """The plan's columns as a list."""
        return self.names([column.name for column in plan.target_columns])

    def definitions(self, plan: CopyPlan, *, staging: bool = False) -> list[str]:
        """The plan's columns as those of CREATE TABLE.

        A key that is a text gets the collation that its ranges are cut by: in a staging table
        always, whose ranges are looked for as in a target that may have it.
        """
        key = plan.key.target
        ordered = (staging or self.collates_key) and self.text_key(plan)
        return [
            self.definition(one, self.key_order(one) if ordered and one.name == key.name else "")
            for one in plan.target_columns
        ]

    def text_key(self, plan: CopyPlan) -> bool:
        """Whether ranges are cut by the order of texts."""
        return is_text_key(plan.key.source, plan.source.system) and is_text_key(
            plan.key.target, self.system
        )

    def key_order(self, column: Column) -> str:
        """The collation that orders a text by its bytes; none where it has to be cast anyhow."""
        raise NotImplementedError

    def definition(self, column: Column, collation: str = "") -> str:
        """A column of CREATE TABLE."""
        type_ = f"{column.type} COLLATE {collation}" if collation else column.type
        return f"{self.names([column.name])} {type_} {'NULL' if column.nullable else 'NOT NULL'}"

    def text(self, value: str) -> str:
        """A text literal."""
        return string_literal(self.system, value)

    def _insert(self, plan: CopyPlan, table: TableRef) -> str:
        return f"INSERT INTO {qualified(table)} ({self.columns(plan)}){self.overriding}"


def aliases(plan: CopyPlan) -> tuple[str, str]:
    """What a statement calls the staging table, and the table that is written to."""
    prefix = own_prefix(*(column.name for column in plan.target_columns))
    return f"{prefix}s", f"{prefix}t"
