"""Which errors pass by themselves, and how to try again."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator

import tenacity

from resources.clickhouse import errors as clickhouse_errors
from resources.errors import TableferryError, describe
from resources.postgres import errors as postgres_errors
from resources.sqlserver import errors as sqlserver_errors

logger = logging.getLogger(__name__)

ATTEMPTS = 7
"""With `backoff`, these last half a minute: a database server's restart."""

FIRST_SECONDS, MOST_SECONDS = 0.5, 30.0

SQLSERVER_TRANSIENT = {
    -2,  # the driver's timeout
    64,  # the connection was reset
    233,  # the other end closed it
    701,  # out of memory
    1204,  # out of locks
    1205,  # deadlock victim
    1222,  # lock timeout
    3960,  # update conflict under SNAPSHOT
    3961,  # metadata changed under SNAPSHOT
    6005,  # the server shuts down
    8645,  # no memory for the query in time
    8651,
    10053,  # network
    10054,
    10060,
    20003,  # DB-Library, under pymssql: timeout, read, write, connect, dead connection
    20004,
    20006,
    20009,
    20047,
    10928,  # Azure SQL: resource limits, reconfiguration, throttling
    10929,
    17142,  # the server is paused
    18401,  # the server is upgrading itself
    40197,
    40501,
    40613,
    49918,
    49919,
    49920,
}
"""Error numbers of SQL Server after which the same statement may succeed.
https://learn.microsoft.com/azure/azure-sql/database/troubleshoot-common-errors-issues"""

_SQLSERVER_STATES = ("08", "40001", "HYT00", "HYT01")
_SQLSERVER_TEXT = re.compile(
    r"communication link failure|deadlock|timeout|timed out|connection (?:is|was|has been) "
    r"(?:closed|broken|reset|aborted|lost|dead|forcibly)|not connected|DBPROCESS is dead"
    r"|read from the server failed|write to the server failed|reset by peer|broken pipe"
    r"|connection refused|unexpected eof",
    re.IGNORECASE,
)
_NETWORK_KINDS = {"ProtocolError", "ReadTimeoutError", "ConnectTimeoutError", "NewConnectionError"}


def is_transient(error: BaseException) -> bool:
    """Whether trying again may help: the network, a restart, a deadlock, an overloaded server.

    The error itself decides, or else the first of its causes that we know how to read: psycopg,
    ADBC, mssql-python, pymssql, clickhouse-connect, urllib3 and sockets.
    """
    return next((verdict for verdict in map(_verdict, _chain(error)) if verdict is not None), False)


def backoff(attempt: int) -> float:
    """Seconds to wait after the given attempt, counted from 1: doubled each time, with jitter.

    The jitter keeps ranges that failed together from coming back together.
    """
    seconds = min(MOST_SECONDS, FIRST_SECONDS * 2 ** (attempt - 1))
    return seconds * random.uniform(1.0, 1.5)


def retrying(attempts: int = ATTEMPTS) -> tenacity.Retrying:
    """A loop that repeats its block after transient errors.

    The last error is raised as it was, and so is, at once, one that is not transient.

    Examples:
        >>> for attempt in retrying():
        ...     with attempt:
        ...         move()
    """
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_transient),
        stop=tenacity.stop_after_attempt(attempts),
        wait=lambda state: backoff(state.attempt_number),
        before_sleep=_say,
        reraise=True,
    )


def _say(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    seconds = state.next_action.sleep if state.next_action else 0.0
    logger.warning(
        "attempt %d failed, again in %.1f s: %s",
        state.attempt_number,
        seconds,
        describe(error) if error else "no result",
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(8):
        if current is None:
            return
        yield current
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )


def _verdict(error: BaseException) -> bool | None:
    """Whether an error is transient; None if it says nothing of that."""
    transient = getattr(error, "transient", None)
    if isinstance(error, TableferryError):
        return transient if isinstance(transient, bool) else None
    library = type(error).__module__.partition(".")[0]
    if library in ("psycopg", "adbc_driver_manager"):
        return postgres_errors.is_transient(error)
    if library in ("mssql_python", "mssql_py_core", "pymssql"):
        return _sqlserver(error)
    if library in ("clickhouse_connect",):
        code = getattr(error, "code", None)
        return code in clickhouse_errors.TRANSIENT if code is not None else None
    if library in ("urllib3", "http"):
        return True if type(error).__name__ in _NETWORK_KINDS or library == "http" else None
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and "[libpq]" in str(error):
        # ADBC's errors in the middle of a stream
        return postgres_errors.is_transient(error)
    return None


def _sqlserver(error: BaseException) -> bool:
    text = str(error)
    number = error.args[0] if error.args and isinstance(error.args[0], int) else None
    if number is None and (found := re.search(r"(?:error|Msg|code)[ :(]+(\d{2,5})\b", text, re.I)):
        number = int(found[1])
    if number in SQLSERVER_TRANSIENT:
        return True
    state = sqlserver_errors.STATES.get(str(getattr(error, "driver_error", "")))
    if state is not None:
        return state.startswith(_SQLSERVER_STATES)
    return number is None and bool(_SQLSERVER_TEXT.search(text))
