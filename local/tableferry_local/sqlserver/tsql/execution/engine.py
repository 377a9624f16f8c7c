"""The engine: one session's T-SQL, run on one PostgreSQL connection."""

from __future__ import annotations

import functools

from tableferry_local.sqlserver.catalog.bootstrap import bootstrap
from tableferry_local.sqlserver.catalog.link import PgError, keep_link, open_link
from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.tsql.execution.bulkload import BulkInsert
from tableferry_local.sqlserver.tsql.execution.interpreter import Interpreter
from tableferry_local.sqlserver.tsql.execution.state import Frame, Sink, State
from tableferry_local.sqlserver.types.sqltype import LIMITED

DEFAULT_DATABASE = "tableferry"


@functools.cache
def ready(postgres_url: str) -> None:
    """Prepare PostgreSQL, once per process.

    Raises:
        SqlError: 17142, PostgreSQL cannot be reached, or fails.
    """
    try:
        bootstrap(postgres_url, [DEFAULT_DATABASE])
    except PgError as error:
        raise SqlError(17142, 21, f"The stand-in's PostgreSQL fails: {error}") from error


class Engine:
    """One session. Not safe for several threads, except `cancel`."""

    def __init__(
        self,
        postgres_url: str,
        *,
        login: str,
        database: str | None = None,
    ) -> None:
        """Connect, and prepare PostgreSQL if this is its first session.

        Raises:
            SqlError: 4060, there is no such database; 17142, PostgreSQL cannot be reached.
        """
        ready(postgres_url)
        try:
            link = open_link(postgres_url)
        except PgError as error:
            raise SqlError(17142, 21, f"The stand-in's PostgreSQL fails: {error}") from error
        if login.lower().endswith(LIMITED):
            link.limit()
        self.state = State(link, login, DEFAULT_DATABASE)
        if database:
            try:
                self.state.set_database(database)
            except SqlError:
                link.close()
                raise SqlError(
                    4060,
                    11,
                    f'Cannot open database "{database}" requested by the login. The login failed.',
                ) from None

    @property
    def database(self) -> str:
        """The current database."""
        return self.state.database

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.state.trancount > 0

    def execute(self, batch: str, sink: Sink) -> None:
        """Run a batch; errors of its statements go to the sink.

        Raises:
            SqlError: the connection to PostgreSQL is lost.
        """
        Interpreter(self.state, sink).run_batch(batch, Frame())

    def bulk_begin(self, statement: str) -> BulkInsert:
        """Begin an INSERT BULK.

        Raises:
            SqlError: 208 or 207, the table or a column is not there.
        """
        return BulkInsert(self.state, statement)

    def cancel(self) -> None:
        """Stop what is running; safe from another thread."""
        self.state.link.cancel()

    def close(self) -> None:
        """End the session; an open transaction is rolled back."""
        keep_link(self.state.link)


__all__ = ["BulkInsert", "Engine"]
