"""The engine: one session's T-SQL, run on one PostgreSQL connection."""

from __future__ import annotations

import functools

from tableferry_local.sqlserver.catalog.bootstrap import bootstrap
from tableferry_local.sqlserver.catalog.link import PgError, keep_link, open_link
from tableferry_local.sqlserver.catalog.tables import object_name
from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.tsql.execution.bulkload import BulkInsert
from tableferry_local.sqlserver.tsql.execution.describe import described_in
from tableferry_local.sqlserver.tsql.execution.interpreter import Interpreter
from tableferry_local.sqlserver.tsql.execution.state import Frame, Sink, State, Variable
from tableferry_local.sqlserver.tsql.syntax.clauses import name_at
from tableferry_local.sqlserver.tsql.syntax.parsing import tokenize
from tableferry_local.sqlserver.types.sqltype import Param, ResultColumn

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
        app_name: str = "",
        host_name: str = "",
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
        self.state = State(link, login, DEFAULT_DATABASE, app_name, host_name)
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

    def execute(self, batch: str, params: list[Param] | None, sink: Sink) -> None:
        """Run a batch; errors of its statements go to the sink.

        Args:
            params: the batch's parameters, as sp_executesql declares them; the values of those
                marked `output` are returned through the sink.

        Raises:
            SqlError: the connection to PostgreSQL is lost.
        """
        state = self.state
        frame = Frame(
            {param.name.lower(): Variable(param.type, param.value) for param in params or []}
        )
        Interpreter(state, sink).run_batch(batch, frame)
        for param in params or []:
            if param.output:
                value = frame.variables[param.name.lower()].value
                sink.return_value(param.name, param.type, value)

    def describe(self, batch: str, params: list[Param] | None) -> list[ResultColumn]:
        """The columns of a batch's first result; none if it yields no rows.

        Raises:
            SqlError: the batch cannot be translated.
        """
        variables = {param.name.lower(): Variable(param.type) for param in params or []}
        return described_in(self.state, batch, Frame(variables))

    def bulk_columns(self, table: str) -> list[ResultColumn]:
        """A table's columns.

        Raises:
            SqlError: 208, there is no such table.
        """
        parts, _ = name_at(tokenize(table), 0)
        found = self.state.catalog.get(object_name(parts, self.state.database), table)
        return [column.result for column in found.columns]

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
