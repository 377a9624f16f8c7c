"""Endpoints: the servers that Tableferry reads from and writes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa

from tableferry.resources.contract.limits import Budget, Sharing, SourceLimits, Value
from tableferry.resources.contract.looking_ahead import LookAhead
from tableferry.resources.contract.settings import ConnectionSettings, DigestsBy
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

NO_LIMITS: Mapping[str, Value] = {}

BATCH_ROWS = 65_536
"""The maximum rows of a batch that `read_arrow` yields."""


class Endpoint(Protocol):
    """A server with tables: `PostgresServer`, `SqlServerServer`, `ClickHouseServer`.

    All methods may be called from several threads at once; each call, and each open reader, works
    on a connection of its own. Drivers' errors arrive as `resources.errors.TableferryError`.
    """

    system_name: ClassVar[str]

    @property
    def system(self) -> System:
        """The server's system."""

    @property
    def has_address(self) -> bool:
        """Whether the server's address is given."""

    @property
    def bounded(self) -> bool:
        """Whether it is read within a budget, see `within_budget`."""

    @property
    def shares_snapshots(self) -> bool:
        """Whether its budget leaves a connection to hold a snapshot beside one that reads."""

    def budget(self, connection: str) -> Budget | None:
        """Return what reading by this connection may cost the server; None if nothing bounds it."""

    def read_beside(self, other: object) -> AbstractContextManager[None]:
        """Hold the right to read a table of this server, and one of another, at the same time."""

    def within_budget(
        self,
        connection: str,
        sharing: Sharing | None = None,
        limits: Mapping[str, Value] = NO_LIMITS,
    ) -> Self:
        """Return the server as a source that is read within the connection's budget and limits, and
        those that a transfer declares."""

    @property
    def limits(self) -> SourceLimits | None:
        """The limits that it is read within; None if it is not read as a source."""

    def guarded(
        self, waiting: Callable[[str], None] = lambda sentence: None, *, beside: bool = False
    ) -> dict[str, float]:
        """Wait while a signal of the source is above its bound, see `connecting.guard`.

        Args:
            waiting: called before each pause, with a sentence now and then, else ''.
            beside: whether the caller holds a connection: it only waits where another one can be
                had to ask by.

        Returns:
            The seconds that were waited, by the signal that was waited for.
        """

    def location_warning(self, table: TableRef) -> str | None:
        """Warn if another process might look for the table in another place."""

    def kept_by(self) -> str | None:
        """Say which servers keep what is written, if they are several; None if one does."""

    def settings(self) -> ConnectionSettings:
        """Return the server's address and login.

        Raises:
            InputError: the address is not given.
        """

    def under_policies(self) -> Self:
        """Return the server with the rows that row-level security shows; by default it refuses such
        tables."""

    def newest_versions(self) -> Self:
        """Return the server with the newest version of each row, where an engine keeps several."""

    @property
    def ahead(self) -> LookAhead | None:
        """What was read of the catalog ahead; None if each question is asked anew."""

    def looking_ahead(self, ahead: LookAhead) -> Self:
        """Return the server with a catalog that is read about many tables at once; see
        `contract.looking_ahead`."""

    def ping(self) -> str:
        """Return the server's version.

        Raises:
            ConnectionFailed: the message names system, host, port and the reason.
        """

    def identity(self) -> str:
        """A name that only this database has, whichever address leads to it."""

    def place(self, table: TableRef) -> tuple[str, str, str]:
        """A name that only this table has, whichever connection or spelling leads to it."""

    def instance(self) -> str | None:
        """What a physical copy of the server has otherwise, though all names in it are the same;
        None of a standby, whose tables are its primary's."""

    def digests_by(self) -> DigestsBy:
        """Return who computes the digests of the server's rows, by the connection's settings."""

    def columns(self, table: TableRef) -> list[Column]:
        """Return the table's columns in catalog order.

        Raises:
            TableMissing: there is no such table.
        """

    def columns_of(self, tables: Sequence[TableRef]) -> dict[TableRef, list[Column]]:
        """Return the columns of tables of one schema, without those that do not exist."""

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a small result, of catalog queries, control SQL or aggregates.

        Args:
            sql: a single statement.
            snapshot: see `read_arrow`.
        """

    def execute(self, sql: str) -> None:
        """Run a statement and commit it."""

    def read_arrow(
        self, sql: str, *, batch_rows: int = BATCH_ROWS, snapshot: str | None = None
    ) -> AbstractContextManager[pa.RecordBatchReader]:
        """Stream a query's result as Arrow batches of at most `batch_rows` rows.

        Args:
            sql: a single query.
            batch_rows: the maximum rows of a batch.
            snapshot: the name of a `PostgresServer.snapshot()`; other systems refuse it.
        """


def version_of(endpoint: Endpoint) -> str:
    """Return the server's version; a process asks each connection once."""
    return endpoint.settings().facts.known("version", endpoint.ping)


def release_of(endpoint: Endpoint) -> str | None:
    """Return the server's version if its types depend on it; else None."""
    return version_of(endpoint) if endpoint.system.types.by_release else None


def refuse_snapshot(system: System, snapshot: str | None) -> None:
    """Raise `InputError` if a snapshot is given to a system without snapshots."""
    if snapshot is not None:
        raise InputError(f"{system} has no snapshots to read from")
