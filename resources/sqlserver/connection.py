"""Sessions with SQL Server through `mssql-python`, and a pool of them."""

from __future__ import annotations

import functools
import logging
import math
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

from tableferry.resources.connecting.pool import ConnectionPool
from tableferry.resources.connecting.waiting import (
    lock_milliseconds,
    may_write,
    seconds_left,
    watched,
)
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.extras import require
from tableferry.resources.sqlserver.dialect import is_taken_back
from tableferry.resources.sqlserver.errors import connecting, driver_missing, from_driver, translate
from tableferry.resources.sqlserver.login import SESSION, Login, statements

logger = logging.getLogger(__name__)

# Without VIEW SERVER STATE a login is shown the request of its own session alone. Babelfish has no
# sys.dm_exec_requests.
REQUESTS_SQL = """
SELECT r.blocking_session_id, CAST(b.login_name AS nvarchar(128)),
    CAST(b.program_name AS nvarchar(128)), CAST(b.status AS nvarchar(30))
FROM sys.dm_exec_requests AS r
INNER JOIN sys.dm_exec_sessions AS w ON w.session_id = r.session_id
INNER JOIN sys.dm_exec_sessions AS o ON o.login_name = w.login_name
LEFT JOIN sys.dm_exec_sessions AS b ON b.session_id = r.blocking_session_id
WHERE o.session_id = @@SPID AND r.session_id <> @@SPID
"""

LOGIN_TIMEOUT = 15
"""Seconds for one attempt to connect."""

REACHABLE_SECONDS = 60
"""How long an address counts as reachable after a connection to it."""

CONNECTED = "connected at"
"""The fact that holds the time of the latest connection."""


class SqlServerConnection:
    """One session in autocommit mode: transactions are opened and ended in T-SQL.

    Raises:
        ConnectionFailed: the server is down, or refuses the login or the database.
    """

    raw: Any
    """The driver's connection."""

    def __init__(self, login: Login, connection_string: Callable[[Login], str]) -> None:
        self.login, self._string = login, connection_string
        self._settings = login.settings
        self.failed = False
        """Whether any statement has failed."""
        load_driver()
        _check_reachable(self._settings)
        try:
            self.raw = self._opened()
        except Exception as error:
            self._settings.facts.note(CONNECTED, -math.inf)
            if not from_driver(error):
                raise
            raise connecting(error, login.settings) from None
        self._settings.facts.note(CONNECTED, time.monotonic())
        try:
            self.pin()
        except BaseException:
            self.close()
            raise

    def _opened(self) -> Any:
        string = self._string(self.login)
        provider = self.login.token_provider
        driver = load_driver()
        # the driver's own pool, which others of the process may have switched on, keeps a session's
        # isolation and application locks until it is used again
        driver.pooling(enabled=False)
        return driver.connect(
            string, autocommit=True, timeout=LOGIN_TIMEOUT, token_provider=provider
        )

    def pin(self) -> None:
        """Set the session to `SESSION` by one batch.

        A server that refuses the batch gets the statements one by one, and keeps its own value
        where it refuses one: Babelfish does so for options of which it has a single value.

        Raises:
            StatementFailed: the session has ended.
        """
        pinned = statements({**SESSION, "LOCK_TIMEOUT": lock_milliseconds("-1")})
        try:
            self.execute("; ".join(pinned))
        except StatementFailed as error:
            if error.transient:
                raise
            for statement in pinned:
                try:
                    self.execute(statement)
                except StatementFailed as refused:
                    if refused.transient:
                        raise
                    logger.info("%s: refuses %s: %s", self._settings, statement, refused)
            self.failed = False

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result: that of the batch's first statement with a result."""
        self.bound()
        with self.waits(), self.translated(sql), quiet_cursor(self.raw) as cursor:
            cursor.execute(sql, use_prepare=False)
            while cursor.description is None and cursor.nextset():
                pass
            return all_rows(cursor)

    def bound(self) -> None:
        """Have statements from now on end when those of this thread have to."""
        self.raw.timeout = seconds_left() or 0

    @contextmanager
    def taking_back(self, sql: str) -> Iterator[None]:
        """Take back what is written where nothing may be: no transaction of the server only reads.

        After an error that is left to the end of the session.

        Raises:
            InputError: the batch is no query, or could end the transaction.
        """
        if may_write():
            yield
            return
        if not is_taken_back(sql):
            raise InputError(
                "a query of yours should begin with SELECT, WITH or DECLARE, and have no COMMIT, "
                "ROLLBACK or EXECUTE: what it writes is taken back"
            )
        self.execute("BEGIN TRANSACTION")
        yield
        if not self.raw.closed:
            self.execute("ROLLBACK TRANSACTION")

    def execute(self, sql: str) -> int:
        """Run a batch; return the number of rows that its last statement changed, or -1.

        Those that a trigger has changed are told before those of the statement that fired it.
        """
        with self.waits(), self.translated(sql), quiet_cursor(self.raw) as cursor:
            cursor.execute(sql, use_prepare=False)
            rows = int(cursor.rowcount)
            count = load_driver().ddbc_bindings.DDBCSQLRowCount
            while cursor.nextset():  # errors of later statements of the batch are raised here
                # the driver counts the rows of the first statement alone
                later = int(count(cursor.hstmt))
                rows = later if later >= 0 else rows
            return rows

    def answers(self) -> bool:
        """Whether the server still answers in this session."""
        try:
            return bool(self.query("SELECT 1"))
        except StatementFailed:
            return False

    def close(self) -> None:
        """End the session, unless it has ended."""
        try:
            self.raw.close()
        except Exception as error:
            if not from_driver(error):
                raise

    def waits(self) -> AbstractContextManager[None]:
        """Tell if a statement of the block waits for long; see `connecting.waiting`."""
        return watched(self._settings.address, self._blocked)

    def _blocked(self) -> list[str]:
        raw = self._opened()
        raw.timeout = seconds_left() or 0
        with closing(raw), quiet_cursor(raw) as cursor:
            cursor.execute(REQUESTS_SQL, use_prepare=False)
            rows = all_rows(cursor)
        if not rows:
            raise StatementFailed("sqlserver", "the login may lack VIEW SERVER STATE")
        return [
            f"waits for a lock of session {session} of {', '.join(filter(None, about))}"
            for session, *about in rows
            if session
        ]

    @contextmanager
    def translated(self, statement: str = "") -> Iterator[None]:
        """Turn the driver's errors into ours; see `errors.translate`."""
        try:
            yield
        except Exception as error:
            self.failed = True
            if not from_driver(error):
                raise
            raise translate(error, self._settings, statement) from None


def quiet_cursor(raw: Any) -> Any:
    """Return a cursor of the driver that collects no messages, such as those of PRINT.

    To collect them, the driver looks through all libraries of the process for a driver manager
    after each statement, under a lock that all threads share: 0.3 ms of CPU per statement, and
    2.3 of 5.2 CPU s and 7 of 19 s in a run of 100 ranges. It has no switch for this; a test of the
    session says when a release needs the replacement no more. Errors are raised regardless.
    """
    cursor = raw.cursor()
    cursor._capture_diagnostics = lambda status: None
    return cursor


def all_rows(cursor: Any) -> list[tuple[Any, ...]]:
    """Return all rows of a statement that a quiet cursor has executed; raise late errors."""
    cursor.messages = None  # so that none are collected after the last row
    return [tuple(row) for row in cursor.fetchall()]


pool = ConnectionPool(
    SqlServerConnection.answers,
    lambda connection: bool(connection.raw.closed),
    SqlServerConnection.close,
)


def close_pooled_connections() -> None:
    """Close the pooled connections to all servers, so that logins and databases can be dropped."""
    pool.close()


def _check_reachable(settings: ConnectionSettings) -> None:
    """Fail at once where nobody listens: the driver retries a refused address until its timeout."""
    connected = settings.facts.latest(CONNECTED, -math.inf)
    if time.monotonic() - connected < REACHABLE_SECONDS:
        return
    try:
        socket.create_connection((settings.host, settings.port), timeout=LOGIN_TIMEOUT).close()
    except socket.gaierror:
        raise settings.failed("host name not known", transient=True) from None
    except TimeoutError:
        raise settings.failed("no answer in time", transient=True) from None
    except OSError as error:
        raise settings.failed((error.strerror or str(error)).lower(), transient=True) from None


@functools.cache
def load_driver() -> Any:
    """Import the module `mssql_python`.

    Raises:
        InputError: it, or a system library that it needs, is missing.
    """
    require("sqlserver", "SQL Server")
    try:
        import mssql_python
    except ImportError as error:
        raise driver_missing(error) from None
    return mssql_python
