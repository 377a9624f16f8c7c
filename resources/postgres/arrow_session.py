"""Pooled ADBC sessions: opening one costs as much as exporting ten thousand rows.

ADBC logs in twice, and reads all types of the server.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

import adbc_driver_manager
import adbc_driver_postgresql
import pyarrow as pa
from adbc_driver_postgresql import StatementOptions

from tableferry.resources.connecting.pool import ConnectionPool
from tableferry.resources.contract.batches import BATCH_BYTES
from tableferry.resources.errors import InputError
from tableferry.resources.postgres.settings import AS_FOUND, MISREAD


class ArrowSession:
    """One connection, with the types that the server had when it was opened.

    Args:
        conninfo: libpq's connection string.
        preparation: the statements that set up the session.
        settling: seconds between the two logins, until the first one's session has ended.
        lent: whether a pooler has lent the session; see `session.PgConnection`.
        kept: whether it may be lent again; see there, too.

    Raises:
        adbc_driver_manager.Error: the connection failed.
        InputError: the types were read under a setting that garbles them.
    """

    def __init__(
        self,
        conninfo: str,
        preparation: Sequence[str],
        settling: float = 0.0,
        *,
        lent: bool = False,
        kept: bool = True,
    ) -> None:
        self.closed, self.lent, self.kept, self._fresh = False, lent, kept, True
        self._statement: adbc_driver_manager.AdbcStatement | None = None
        with ExitStack() as opened:
            # ADBC's DB-API layer would import polars, and pandas if that is installed
            database = opened.enter_context(adbc_driver_postgresql.connect(conninfo))
            time.sleep(settling)
            self._connection = opened.enter_context(adbc_driver_manager.AdbcConnection(database))
            for statement in preparation:
                self._run(statement)
            if self._rows(MISREAD):
                raise InputError(
                    "quote_all_identifiers of the role, the database or the server must be off "
                    "behind a pooler that does not pass startup options on: "
                    "ALTER ROLE ... RESET quote_all_identifiers"
                )
            self._opened = opened.pop_all()

    def select(self, sql: str, *before: str) -> pa.RecordBatchReader:
        """Stream a query's result; the caller closes the reader, and calls `reset`.

        Args:
            sql: a single SELECT.
            before: statements to run first.
        """
        for preceding in before:
            self._run(preceding)
        self._statement = statement = adbc_driver_manager.AdbcStatement(self._connection)
        statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(BATCH_BYTES)})
        statement.set_sql_query(sql)
        stream, _ = statement.execute_query()
        return pa.RecordBatchReader.from_stream(stream)

    def append(self, schema: str, table: str, reader: pa.RecordBatchReader) -> int:
        """Append batches to a table, all or none; return the number of rows accepted."""
        options = {
            "adbc.ingest.target_db_schema": schema,
            "adbc.ingest.target_table": table,
            "adbc.ingest.mode": "adbc.ingest.mode.append",
        }
        with adbc_driver_manager.AdbcStatement(self._connection) as statement:
            statement.set_options(**options)
            statement.bind_stream(reader)
            return int(statement.execute_update())

    def knows(self, schema: pa.Schema) -> bool:
        """Whether a new session would return the same result.

        This one does not know types that were created later, and a row type may have changed.
        """
        return self._fresh or all(_is_built_in(field.type) for field in schema)

    def cancel(self) -> None:
        """Stop the query, which the server would otherwise continue until its next write."""
        if self._statement is not None:
            with suppress(Exception):
                self._statement.cancel()

    def reset(self, *, in_transaction: bool) -> None:
        """End the query, whose result was read to its end, and its transaction."""
        self._fresh = False
        try:
            self._end_statement()
            if in_transaction:
                self._run("ROLLBACK")
        except adbc_driver_manager.Error:
            self.close()

    def answers(self) -> bool:
        """Whether the server still answers."""
        try:
            self._run("SELECT 1")
        except adbc_driver_manager.Error:
            return False
        return True

    def close(self) -> None:
        """End the session."""
        self.closed = True
        as_found = self.lent and self._statement is None
        with suppress(Exception):
            self._end_statement()
            if as_found:
                self._run(AS_FOUND)
        with suppress(Exception):
            self._opened.close()

    def _end_statement(self) -> None:
        statement, self._statement = self._statement, None
        if statement is not None:
            statement.close()

    def _rows(self, sql: str) -> int:
        with adbc_driver_manager.AdbcStatement(self._connection) as statement:
            statement.set_sql_query(sql)
            stream, _ = statement.execute_query()
            return int(pa.RecordBatchReader.from_stream(stream).read_all().num_rows)

    def _run(self, sql: str) -> None:
        with adbc_driver_manager.AdbcStatement(self._connection) as statement:
            statement.set_sql_query(sql)
            statement.execute_update()


def _is_built_in(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.OpaqueType):
        return not type_.type_name.startswith("unnamed<")
    if pa.types.is_struct(type_):
        return False
    return all(_is_built_in(type_.field(position).type) for position in range(type_.num_fields))


pool: ConnectionPool[ArrowSession] = ConnectionPool(
    ArrowSession.answers, lambda session: session.closed or not session.kept, ArrowSession.close
)
