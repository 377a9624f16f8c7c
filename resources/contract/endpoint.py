"""What every database that Tableferry reads from or writes to can do."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa

from tableferry.resources.contract.settings import ConnectionSettings, DigestsBy
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

BATCH_ROWS = 65_536
"""Most rows of a batch that `read_arrow` yields."""


class Endpoint(Protocol):
    """A server that holds tables: `PostgresServer`, `SqlServerServer`, `ClickHouseServer`.

    All methods may be called from several threads at once; each call, and each open reader, works
    on a connection of its own. Drivers' errors arrive as `resources.errors.TableferryError`.
    """

    system_name: ClassVar[str]

    @property
    def system(self) -> System:
        """The system that it is a server of."""
        ...

    @property
    def has_address(self) -> bool:
        """Whether the server's address is given."""
        ...

    def location_warning(self, table: TableRef) -> str | None:
        """Warn if another process might look for the table in another place."""
        ...

    def settings(self) -> ConnectionSettings:
        """Where the server is.

        Raises:
            InputError: its address is not given.
        """
        ...

    def under_policies(self) -> Self:
        """The server as its row-level security shows it, where it would refuse a table else."""
        ...

    def ping(self) -> str:
        """The server's version.

        Raises:
            ConnectionFailed: names system, host, port and the reason.
        """
        ...

    def identity(self) -> str:
        """A name that only this database has, whichever address leads to it."""
        ...

    def digests_by(self) -> DigestsBy:
        """Who computes the digests of the server's rows, if the connection says so."""
        ...

    def columns(self, table: TableRef) -> list[Column]:
        """The table's columns in catalog order.

        Raises:
            TableMissing: there is no such table.
        """
        ...

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of a small result: catalog and control SQL and aggregates, no table's data.

        Args:
            sql: A single statement.
            snapshot: As of `read_arrow`.
        """
        ...

    def execute(self, sql: str) -> None:
        """Run a statement and commit it."""
        ...

    def read_arrow(
        self, sql: str, *, batch_rows: int = BATCH_ROWS, snapshot: str | None = None
    ) -> AbstractContextManager[pa.RecordBatchReader]:
        """Stream a query's result as Arrow batches of at most `batch_rows` rows.

        Args:
            sql: A single query.
            batch_rows: Most rows of a batch; a batch may be smaller.
            snapshot: Of `PostgresServer.snapshot()`; other systems refuse it.
        """
        ...


def refuse_snapshot(system: System, snapshot: str | None) -> None:
    """Raise `InputError` if a snapshot was given to a system that has none to share."""
    if snapshot is not None:
        raise InputError(f"{system} has no snapshots to read from")
