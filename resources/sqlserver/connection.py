"""One session with SQL Server through `mssql-python`, and a pool of them."""

from __future__ import annotations

import functools
import logging
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tableferry.resources.connecting.pool import ConnectionPool
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import StatementFailed
from tableferry.resources.extras import require
from tableferry.resources.sqlserver.errors import connecting, driver_missing, from_driver, translate
from tableferry.resources.sqlserver.settings import SESSION, statements

logger = logging.getLogger(__name__)

LOGIN_TIMEOUT = 15
"""Seconds for one attempt to connect."""

REACHABLE_SECONDS = 60
"""How long after a connection an address is taken for reachable."""

CONNECTED = "connected at"
"""The fact of when a connection was last made."""


class SqlServerConnection:
    """One session in autocommit mode: transactions are opened and ended in T-SQL.

    Args:
        settings: where the server is.
        connection_string: for the driver.

    Raises:
        ConnectionFailed: the server is down, or refuses the login or the database.
    """

    def __init__(self, settings: ConnectionSettings, connection_string: str) -> None:
        self._settings = settings
        self.failed = False
        """Whether a statement has."""
        driver = load_driver()
        _check_reachable(self._settings)
        try:
            self.raw = driver.connect(connection_string, autocommit=True, timeout=LOGIN_TIMEOUT)
        except Exception as error:
            self._settings.facts.note(CONNECTED, -math.inf)
            if not from_driver(error):
                raise
            raise connecting(error, self._settings) from None
        self._settings.facts.note(CONNECTED, time.monotonic())
        try:
            self.pin()
        except BaseException:
            self.close()
            raise

    def pin(self) -> None:
        """Set the session to `SESSION`, by one batch.

        A server that refuses some of it (Babelfish, of what it has no other value) gets the
        statements one by one, and keeps its own there.

        Raises:
            StatementFailed: the session has ended.
        """
        pinned = statements(SESSION)
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
        """The rows of a small result: of the batch's first statement that has any."""
        with self.translated(sql), quiet_cursor(self.raw) as cursor:
            cursor.execute(sql, use_prepare=False)
            while cursor.description is None and cursor.nextset():
                pass
            return all_rows(cursor)

    def execute(self, sql: str) -> int:
        """Run a statement; returns the number of rows that it changed, or -1."""
        with self.translated(sql), quiet_cursor(self.raw) as cursor:
            cursor.execute(sql, use_prepare=False)
            rows = int(cursor.rowcount)
            while cursor.nextset():  # an error of a later statement of the batch comes only here
                pass
            return rows

    def answers(self) -> bool:
        """Whether the session still stands; asks the server."""
        try:
            return bool(self.query("SELECT 1"))
        except StatementFailed:
            return False

    def close(self) -> None:
        """End the session; harmless if it is gone."""
        try:
            self.raw.close()
        except Exception as error:
            if not from_driver(error):
                raise

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
    """A cursor of the driver that does not gather messages, such as those of PRINT.

    The driver looks for a driver manager to gather them, and without one opens and closes all
    libraries of the process, after each statement: milliseconds, which the package itself avoids
    where it can (`Cursor._capture_diagnostics`). Errors come another way.

    Args:
        raw: a connection of `mssql_python`.
    """
    cursor = raw.cursor()
    cursor._capture_diagnostics = _gather_nothing
    return cursor


def all_rows(cursor: Any) -> list[tuple[Any, ...]]:
    """The rows of a small result; an error that comes after some of them is raised.

    Args:
        cursor: of `quiet_cursor`; has executed a statement that has rows.
    """
    cursor.messages = None  # so that none are gathered after the last row
    return [tuple(row) for row in cursor.fetchall()]


def _gather_nothing(_status: int) -> None:
    pass


pool = ConnectionPool(
    SqlServerConnection.answers,
    lambda connection: bool(connection.raw.closed),
    SqlServerConnection.close,
)


def close_pooled_connections() -> None:
    """Close what is kept open of any server, so that a login or a database can be dropped."""
    pool.close()


def _check_reachable(settings: ConnectionSettings) -> None:
    """Say at once that nobody listens: the driver tries a refused address until its timeout."""
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


_loading = threading.Lock()


def load_driver() -> Any:
    """The module `mssql_python`, imported when it is first needed.

    Raises:
        InputError: it, or a system library that it needs, is missing.
    """
    with _loading:
        return _load_driver()


@functools.cache
def _load_driver() -> Any:
    require("sqlserver", "SQL Server")
    try:
        import mssql_python
    except ImportError as error:
        raise driver_missing(error) from None
    # A pooled connection keeps its session's application locks until somebody else takes it up.
    mssql_python.pooling(enabled=False)
    return mssql_python
