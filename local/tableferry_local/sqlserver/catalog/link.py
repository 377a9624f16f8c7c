"""The engine's PostgreSQL connection: libpq, text for control and binary chunks for results."""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from contextlib import suppress

import psycopg.pq as pq
from psycopg import OperationalError
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format, TransactionStatus

from tableferry_local.sqlserver.errors import ErrorContext, PgFailure, SqlError, from_postgres

CHUNK_ROWS = 1024
MOST_PREPARED = 100
"""Statements that a session keeps prepared; each takes the server some 100 KiB."""

_FORGET = (
    "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *;"
    "SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES"
)
"""DISCARD ALL, but for what is prepared: that says nothing of the session that it served."""

_OK = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY)

Row = list[str | None]


class PgError(Exception):
    """PostgreSQL reported an error; `failure` has its fields."""

    def __init__(self, failure: PgFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


_AS_NEW = (
    "SET client_min_messages = warning; SET timezone = 'UTC'; SET datestyle = 'ISO, MDY';"
    "SET bytea_output = 'hex'; SET search_path = pg_catalog; SET extra_float_digits = 1;"
    "SET client_encoding = 'UTF8'; SET jit = off;"
    # sys.dm_exec_sessions shows those that are named so, and since when
    "SELECT set_config('application_name', 'session ' || clock_timestamp(), false)"
)
_spare: list[Link] = []
"""What this process has used last: a cold session costs more than most uses of one."""


def open_link(url: str) -> Link:
    """A PostgreSQL session in which nothing has happened; to be given to `keep_link` at the end.

    Raises:
        SqlError: 17142, PostgreSQL cannot be reached.
        PgError: it fails.
    """
    while _spare:
        link = _spare.pop()
        if link.url == url:
            with suppress(PgError):
                link.run(_AS_NEW)
                return link
        link.close()
    link = Link(url)
    link.run(_AS_NEW)
    return link


def keep_link(link: Link) -> None:
    """End what was done in a session, and keep it for the next `open_link` of this process."""
    try:
        link.clear()
    except (PgError, OperationalError):  # the latter once it is known that the server has gone
        link.close()
    else:
        _spare.append(link)


class Link:
    """One PostgreSQL session. Every method raises PgError when the server reports an error."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = pq.PGconn.connect(url.encode())
        if self.connection.status != ConnStatus.OK:
            reason = self.connection.get_error_message().strip()
            raise SqlError(17142, 21, f"The stand-in's PostgreSQL cannot be reached: {reason}")
        self._prepared: dict[str, bytes] = {}
        """Names of prepared statements, by what they are."""

    @property
    def status(self) -> TransactionStatus:
        return TransactionStatus(self.connection.transaction_status)

    @property
    def alive(self) -> bool:
        return self.connection.status == ConnStatus.OK

    def run(self, sql: str) -> None:
        """Run one or several statements whose results are not wanted."""
        self._check(self.connection.exec_(sql.encode()))

    def rows(
        self, sql: str, params: Sequence[str | None] = (), *, often: bool = False
    ) -> list[Row]:
        """Run one statement and fetch its rows as text.

        Args:
            sql: the statement.
            params: its parameters.
            often: it comes again, and reads the catalog alone: it is parsed, and in the end
                planned, once per link. The types of its columns must not change meanwhile.
        """
        if often:
            result = self.connection.exec_prepared(self._name(sql), _bytes(params))  # type: ignore[arg-type]
        else:
            result = self.connection.exec_params(sql.encode(), _bytes(params))
        return _text_rows(self._check(result))

    def execute(self, sql: str, params: Sequence[str | None] = ()) -> int | None:
        """Run one statement.

        Returns:
            The number of rows affected, or None if the command has no such number.
        """
        result = self._check(self.connection.exec_params(sql.encode(), _bytes(params)))
        return result.command_tuples

    def stream(
        self, sql: str, params: Sequence[str | None] = (), *, often: bool = False
    ) -> Iterator[pq.abc.PGresult]:
        """Run one query and yield its rows in binary chunks; the first may have no rows.

        The arguments are those of `rows`.
        """
        values, binary = _bytes(params), Format.BINARY
        if often:
            self.connection.send_query_prepared(self._name(sql), values, result_format=binary)
        else:
            self.connection.send_query_params(sql.encode(), values, result_format=binary)
        self.connection.set_chunked_rows_mode(CHUNK_ROWS)
        try:
            while (result := self._result()) is not None:
                status = result.status
                if status in (ExecStatus.TUPLES_CHUNK, ExecStatus.TUPLES_OK):
                    yield result
                elif status != ExecStatus.COMMAND_OK:
                    raise PgError(_failure(result))
        finally:
            self.drain()

    def drain(self) -> None:
        """Throw away what is left of the running command."""
        while self._result() is not None:
            pass

    def copy_start(self, sql: str) -> None:
        """Start a COPY ... FROM STDIN."""
        result = self.connection.exec_(sql.encode())
        if result.status != ExecStatus.COPY_IN:
            raise PgError(_failure(result))

    def copy_data(self, data: bytes) -> None:
        """Send a part of the COPY data."""
        self.connection.put_copy_data(data)

    def copy_end(self, error: bytes | None = None) -> int:
        """End the COPY; with an error, the server forgets it.

        Returns:
            The number of rows copied.
        """
        self.connection.put_copy_end(error)
        failure, rows = None, 0
        while (result := self._result()) is not None:
            if result.status == ExecStatus.FATAL_ERROR:
                failure = _failure(result)
            else:
                rows = result.command_tuples or 0
        if failure is not None and error is None:
            raise PgError(failure)
        return rows

    def limit(self) -> None:
        """Have the catalog views show what a `LIMITED` login sees, until the session is cleared."""
        self.run("SELECT set_config('tsql.limited', 'yes', false)")

    def cancel(self) -> None:
        """Ask the server to stop the running command; safe from another thread or a signal."""
        self.connection.get_cancel().cancel()

    def close(self) -> None:
        """End the session."""
        self.connection.finish()

    def clear(self) -> None:
        """Leave nothing of what was done in the session."""
        if self.status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            self.run("ROLLBACK")
        self.run(_FORGET)

    def _name(self, sql: str) -> bytes:
        """What the statement is prepared as."""
        name = self._prepared.get(sql)
        if name is None:
            if len(self._prepared) == MOST_PREPARED:
                self.run("DEALLOCATE ALL")
                self._prepared.clear()
            name = f"often_{len(self._prepared)}".encode()
            self._check(self.connection.prepare(name, sql.encode()))
            self._prepared[sql] = name
        return name

    def _result(self) -> pq.abc.PGresult | None:
        """The next result, waited for in poll(): psycopg's get_result holds the GIL meanwhile.

        Without that no other thread could notice that the client wants to cancel.
        """
        poll = select.poll()
        poll.register(self.connection.socket, select.POLLIN)
        while self.connection.is_busy():
            poll.poll()
            self.connection.consume_input()
        return self.connection.get_result()

    def _check(self, result: pq.abc.PGresult) -> pq.abc.PGresult:
        if result.status not in _OK:
            raise PgError(_failure(result))
        return result


def translated(error: PgError, context: ErrorContext) -> SqlError:
    """The SQL Server error for a PostgreSQL error."""
    return from_postgres(error.failure, context)


def _bytes(params: Sequence[str | None]) -> list[bytes | None]:
    return [None if value is None else value.encode() for value in params]


def _text_rows(result: pq.abc.PGresult) -> list[Row]:
    width = range(result.nfields)
    return [
        [
            None if (value := result.get_value(row, column)) is None else value.decode()
            for column in width
        ]
        for row in range(result.ntuples)
    ]


def _failure(result: pq.abc.PGresult) -> PgFailure:
    def get(field: DiagnosticField) -> str:
        return (result.error_field(field) or b"").decode(errors="replace")

    return PgFailure(
        get(DiagnosticField.SQLSTATE) or "08006",
        get(DiagnosticField.MESSAGE_PRIMARY)
        or result.error_message.decode(errors="replace").strip(),
        get(DiagnosticField.MESSAGE_DETAIL),
        get(DiagnosticField.SCHEMA_NAME),
        get(DiagnosticField.TABLE_NAME),
        get(DiagnosticField.COLUMN_NAME),
        get(DiagnosticField.CONSTRAINT_NAME),
    )
