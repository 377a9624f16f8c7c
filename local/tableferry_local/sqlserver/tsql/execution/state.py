"""What one session knows between statements: options, transaction, variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import psycopg.pq as pq

from tableferry_local.sqlserver.catalog.link import Link, PgError, translated
from tableferry_local.sqlserver.catalog.tables import Catalog
from tableferry_local.sqlserver.errors import ErrorContext, PgFailure, SqlError
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler, Language
from tableferry_local.sqlserver.tsql.translation.functions import call
from tableferry_local.sqlserver.tsql.translation.metafunctions import SESSION_VALUES, VERSION_TEXT
from tableferry_local.sqlserver.tsql.translation.nodes import NODES
from tableferry_local.sqlserver.tsql.translation.queries import compile_query
from tableferry_local.sqlserver.types.sqltype import ResultColumn, SqlType
from tableferry_local.sqlserver.types.value import literal


class Sink(Protocol):
    """Receives what a batch yields, in order."""

    def columns(self, cols: list[ResultColumn]) -> None:
        """A result set begins."""

    def rows(self, chunk: pq.abc.PGresult) -> None:
        """Rows in binary format, matching the columns."""

    def done(self, rowcount: int | None, command: str) -> None:
        """A statement ended."""

    def info(self, number: int, message: str, severity: int = 0) -> None:
        """A message that is no error."""

    def error(self, error: SqlError) -> None:
        """A statement failed."""

    def database(self, new: str, old: str) -> None:
        """USE changed the database."""


@dataclass
class Variable:
    """A variable; `value` is PostgreSQL's text of the storage type."""

    type: SqlType
    value: str | None = None


@dataclass
class Frame:
    """The variables of one batch."""

    variables: dict[str, Variable] = field(default_factory=dict)
    parent: Frame | None = None


@dataclass
class State:
    """One session."""

    link: Link
    login: str
    database: str
    trancount: int = 0
    xact_abort: bool = False
    nocount: bool = False
    fmtonly: bool = False
    row_limit: int = 0
    isolation: str = "READ COMMITTED"
    lock_timeout: int = -1
    identity_insert: str | None = None
    """The PostgreSQL name of the table for which IDENTITY_INSERT is on."""
    frame: Frame = field(default_factory=Frame)
    applocks: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalog = Catalog(self.link)

    # Variables ---------------------------------------------------------------------------------

    def compiler(self) -> Compiler:
        """A compiler for one statement."""
        return Compiler(TSQL, self.catalog, self.database, self.variable_type)

    def variable_type(self, name: str) -> SqlType:
        """The type of a variable or of a session value.

        Raises:
            SqlError: 137, not declared.
        """
        if name in SESSION_VALUES:
            return SESSION_VALUES[name]
        return self.variable(name).type

    def variable(self, name: str) -> Variable:
        """A declared variable.

        Raises:
            SqlError: 137, not declared.
        """
        found = self.frame.variables.get(name.lower())
        if found is None:
            raise SqlError(137, 15, f'Must declare the scalar variable "{name}".', 2)
        return found

    def values(self, names: list[str]) -> list[str | None]:
        """The parameters of a statement, as PostgreSQL text."""
        return [
            self._session_value(name) if name in SESSION_VALUES else self.variable(name).value
            for name in names
        ]

    def _session_value(self, name: str) -> str:
        values: dict[str, Callable[[], object]] = {
            "@@trancount": lambda: self.trancount,
            "@@spid": lambda: self.spid,
            "@@version": lambda: VERSION_TEXT,
            "@@datefirst": lambda: 7,
            "@@lock_timeout": lambda: self.lock_timeout,
            "@@options": lambda: (
                5432 | (16384 if self.xact_abort else 0) | (512 if self.nocount else 0)
            ),
            "@@db_name": lambda: self.database,
            "@@user_name": lambda: self.login,
        }
        return str(values[name]())

    @property
    def spid(self) -> int:
        """The session's number."""
        return 51 + self.link.connection.backend_pid % 32000

    # Transactions ------------------------------------------------------------------------------

    def begin(self) -> None:
        """BEGIN TRANSACTION."""
        if not self.trancount:
            level = {
                "SNAPSHOT": "REPEATABLE READ",
                "READ UNCOMMITTED": "READ COMMITTED",
            }.get(self.isolation, self.isolation)
            self.link.run(f"BEGIN ISOLATION LEVEL {level}")
        self.trancount += 1

    def commit(self) -> None:
        """COMMIT.

        Raises:
            SqlError: 3902, there is no transaction.
        """
        if not self.trancount:
            raise SqlError(
                3902, 16, "The COMMIT TRANSACTION request has no corresponding BEGIN TRANSACTION."
            )
        self.trancount -= 1
        if not self.trancount:
            try:
                self.link.run("COMMIT")
            finally:
                self._release("transaction")

    def rollback(self) -> None:
        """ROLLBACK.

        Raises:
            SqlError: 3903, there is no transaction.
        """
        if not self.trancount:
            raise SqlError(
                3903, 16, "The ROLLBACK TRANSACTION request has no corresponding BEGIN TRANSACTION."
            )
        self.abort()

    def abort(self) -> None:
        """Undo the whole transaction."""
        if self.trancount:
            self.link.run("ROLLBACK")
        self.trancount = 0
        self._release("transaction")

    @contextmanager
    def statement(self, context: ErrorContext) -> Iterator[None]:
        """Run one statement so that its failure undoes it and nothing else.

        Raises:
            SqlError: the statement failed, in SQL Server's words.
        """
        inside = self.trancount > 0
        if inside:
            self.link.run("SAVEPOINT statement")
        try:
            yield
            if inside:
                self.link.run("RELEASE SAVEPOINT statement")
        except BaseException as error:
            if not self.link.alive:
                raise SqlError(
                    596,
                    21,
                    "Cannot continue the execution because the session is in the kill state.",
                ) from error
            if inside:
                self.link.run("ROLLBACK TO SAVEPOINT statement; RELEASE SAVEPOINT statement")
            elif self.link.status != pq.TransactionStatus.IDLE and not self.trancount:
                self.link.run("ROLLBACK")
            if isinstance(error, PgError):
                context.describe = self._describe
                raise self._translated(error, context) from error
            raise

    def _translated(self, error: PgError, context: ErrorContext) -> SqlError:
        found = translated(error, context)
        if found.number == 3960 and self.isolation != "SNAPSHOT":
            return SqlError(
                1205,
                13,
                f"Transaction (Process ID {self.spid}) was deadlocked on lock resources with "
                "another process and has been chosen as the deadlock victim. Rerun the "
                "transaction.",
                51,
            )
        return found

    def _describe(self, failure: PgFailure) -> dict[str, str]:
        """T-SQL's names for what a PostgreSQL error names."""
        names = {"database": self.database}
        if failure.table:
            rows = self.link.rows(
                "SELECT r.oid, r.name, s.name, s.database FROM pg_class c JOIN pg_namespace n "
                "ON n.oid = c.relnamespace "
                "JOIN sys._relation r ON r.oid = c.oid LEFT JOIN sys._schema s ON s.pg_schema "
                "= r.pg_schema "
                "WHERE c.relname = $1 AND n.nspname = $2",
                [failure.table, failure.schema],
            )
            if rows:
                oid, table, schema, database = (str(item or "") for item in rows[0])
                names["table"] = f"{schema or 'dbo'}.{table}"
                names["full_table"] = f"{database or 'tempdb'}.{schema or 'dbo'}.{table}"
                names["database"] = database or "tempdb"
                names |= self._described_parts(failure, oid)
        return names

    def _described_parts(self, failure: PgFailure, oid: str) -> dict[str, str]:
        found: dict[str, str] = {}
        columns = self.link.rows(
            "SELECT k.attnum, k.name, k.type, a.attname FROM sys._column k JOIN pg_attribute a "
            "ON a.attrelid = k.oid AND a.attnum = k.attnum WHERE k.oid = $1 ORDER BY 1",
            [oid],
        )
        for position, (attnum, name, kind, attname) in enumerate(columns):
            if attname == failure.column or failure.constraint in (
                f"ts_len_{attnum}", f"ts_range_{attnum}",
            ):  # fmt: skip
                found["column"], found["type"] = str(name), str(kind)
                values = failure.detail.partition("(")[2].rpartition(")")[0].split(", ")
                if len(values) == len(columns):
                    found["value"] = values[position][:100]
        for name, kind in self.link.rows(
            "SELECT i.name, i.kind FROM sys._index i JOIN pg_class c ON c.oid = i.oid "
            "WHERE i.relation = $1 AND c.relname = $2",
            [oid, failure.constraint],
        ):
            found["index"] = str(name)
            found["kind"] = {"PK": "PRIMARY KEY", "UQ": "UNIQUE KEY"}.get(str(kind), "unique index")
        return found

    # Application locks -------------------------------------------------------------------------

    def _release(self, owner: str) -> None:
        for key in [key for key in self.applocks if key[0] == owner]:
            for number, mode in self.applocks.pop(key):
                self.link.run(f"SELECT pg_advisory_unlock{mode}({number})")

    def set_database(self, name: str) -> str:
        """USE: change the current database; returns its name as created.

        Raises:
            SqlError: 911, there is none.
        """
        rows = self.link.rows(f"SELECT name FROM sys._database WHERE key = {literal(name.lower())}")
        if not rows:
            raise SqlError(
                911,
                16,
                f"Database '{name}' does not exist. Make sure that the name is entered correctly.",
            )
        self.database = str(rows[0][0])
        return self.database


TSQL = Language(NODES, call, compile_query)
