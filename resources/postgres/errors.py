"""Translates the errors of PostgreSQL and its drivers into ours."""

from __future__ import annotations

import re

import psycopg

from tableferry.resources import errors
from tableferry.resources.contract.refusals import refused_in_query
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.postgres.dialect import DIALECT

DRIVERS = ("psycopg", "adbc_driver_manager")
TRANSIENT = (
    "08",  # connection exception
    "40",  # serialization failure, deadlock, a standby's conflict with recovery
    "533",  # too many connections
    "532",  # out of memory
    "55P03",  # lock not available
    "57P01",  # admin shutdown
    "57P02",  # crash shutdown
    "57P03",  # cannot connect now
)
"""Prefixes of the SQLSTATEs after which the same statement may succeed.
https://www.postgresql.org/docs/current/errcodes-appendix.html"""

_TRANSIENT_TEXT = re.compile(
    r"server closed the connection|terminating connection|connection (?:is|was|has been) (?:lost|"
    r"closed)|no connection to the server|could not (?:receive|send) data|reset by peer|broken pipe"
    r"|timed out|deadlock detected|could not serialize|conflict with recovery"
    r"|unexpected EOF|SSL SYSCALL|starting up|shutting down",
    re.IGNORECASE,
)
"""For errors without an SQLSTATE: of a broken connection, and ADBC's in the middle of a stream."""

_NO_SNAPSHOT = re.compile(
    r"snapshot .* does not exist|invalid snapshot|could not import the requested snapshot"
)

_PERMANENT_CONNECT = re.compile(
    r"authentication (?:failed|not supported)|does not exist|no pg_hba\.conf entry"
    r"|no password supplied|permission denied|invalid connection option"
    r"|not currently accepting connections|not permitted to log in|certificate|does not support SSL"
    r"|(?:translate host name|resolve host)(?!.*Temporary failure)|query_wait_timeout"
)
"""libpq gives no SQLSTATE for a connection that was never established, only a text."""

_REFUSED = re.compile(r"authentication|password|token", re.IGNORECASE)
"""What servers say of a password or token that is wrong or has expired."""


NO_KERBEROS = (
    "it asks for Kerberos, which ADBC's libpq does not have, unlike psycopg's: 'wire: text' and "
    "the levels count and checksum do without"
)


NO_SESSION = (
    "a pooler between may have no free connection, or the server hangs: give the pool as many as a "
    "run takes (PgBouncer: default_pool_size), or let a source be read by as many as it has "
    "(..._MAX_CONNECTIONS)"
)
"""What to do about a connection that was let in, and was given no session."""


NO_OWN_SESSION = (
    "a pooler between gives each transaction another session, but settings, snapshots and locks "
    "need one that stays: name the server's own port, or a pool in session mode (PgBouncer: "
    "pool_mode = session)"
)
"""Why a pool of transactions or statements is refused."""


def connection_failed(settings: ConnectionSettings, error: Exception) -> errors.ConnectionFailed:
    """Why a connection failed, in one line and without secrets."""
    # libpq tries every address of the host, and reports each on a line
    reasons = re.findall(r".* failed: (?:FATAL: +)?([^\n]+)", str(error))
    if not reasons:
        reasons = (str(error).strip() or type(error).__name__).splitlines()[:1]
    reason = "; ".join(dict.fromkeys(reason.strip() for reason in reasons))
    if "GSSAPI authentication not supported" in reason:
        reason = NO_KERBEROS
    elif "query_wait_timeout" in reason:
        reason = f"{reason}; {NO_SESSION}"
    elif "unnamed prepared statement does not exist" in reason:
        reason = NO_OWN_SESSION  # its mode has changed since the process has looked
    return settings.failed(
        reason,
        transient=not _PERMANENT_CONNECT.search(str(error)),
        refused=bool(_REFUSED.search(reason)),
    )


def statement_failed(
    settings: ConnectionSettings, error: Exception, snapshot: str | None = None
) -> errors.TableferryError:
    """The error of a statement or its stream, without the driver's hints and queries."""
    text, code = str(error), sqlstate(error)
    if snapshot is not None and _NO_SNAPSHOT.search(text):
        return snapshot_lost(snapshot)
    if hidden := re.search(r'row-level security policy for table ("(?:[^"]|"")+")', text):
        return errors.RowsHidden(f"table {hidden[1]} of {settings}: {rows_hidden(settings.user)}")
    refused = refused_in_query(text)
    if refused is not None:
        return refused
    transient = _is_transient(error)
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        text = " ".join(filter(None, (error.diag.message_primary, error.diag.message_detail)))
    elif match := re.search(r"(?:ERROR|FATAL|PANIC): +([^\n]+)(?:\nDETAIL: +([^\n]+))?", text):
        text = " ".join(filter(None, match.groups()))
    return errors.StatementFailed("postgres", settings.redact(text), code=code, transient=transient)


def rows_hidden(user: str | None) -> str:
    """Why a table whose policies apply to the login is refused, and the remedies."""
    role = DIALECT.quote(user) if user else "the role"
    return (
        f"row-level security would hide rows from {role}; have an administrator run ALTER ROLE "
        f"{role} BYPASSRLS, connect as the table's owner, or declare 'row_security: apply' to take "
        "the rows that are shown for all"
    )


def snapshot_lost(snapshot: str) -> errors.SnapshotLost:
    """The error of a snapshot that has ended."""
    return errors.SnapshotLost(
        f"the snapshot {snapshot!s} has ended, because the connection that held it is gone"
    )


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of a driver's error, if it has one."""
    match = re.search(r"SQLSTATE: ([0-9A-Z]{5})", str(error))
    return getattr(error, "sqlstate", None) or (match[1] if match else None)


def broke(error: errors.StatementFailed) -> bool:
    """Whether the connection is lost, so that the statement's outcome is unknown."""
    # libpq's own errors have no SQLSTATE
    return not error.code or str(error.code).startswith(("08", "57P"))


def is_transient(error: BaseException) -> bool | None:
    """Whether the same statement may succeed later; None if the error is not a driver's."""
    library = type(error).__module__.partition(".")[0]
    # ADBC raises a bare OSError in the middle of a stream
    streamed = isinstance(error, OSError) and "[libpq]" in str(error)
    return _is_transient(error) if library in DRIVERS or streamed else None


def _is_transient(error: BaseException) -> bool:
    if "query_wait_timeout" in str(error):
        return False  # PgBouncer has had no free connection for as long as it was told to wait
    state = sqlstate(error)
    if state and state != "XX000":
        return state.startswith(TRANSIENT)
    return bool(_TRANSIENT_TEXT.search(str(error)))
