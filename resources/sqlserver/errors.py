"""Translates errors of SQL Server and its driver."""

from __future__ import annotations

import re

from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import InputError, StatementFailed, TableferryError

STATES = {
    "Base table or view not found": "42S02",
    "Base table or view already exists": "42S01",
    "Column not found": "42S22",
    "Syntax error or access violation": "42000",
    "Integrity constraint violation": "23000",
    "String data, right-truncated": "22001",
    "Numeric value out of range": "22003",
    "Invalid datetime format": "22007",
    "Datetime field overflow": "22008",
    "Division by zero": "22012",
    "Invalid authorization specification": "28000",
    "Client unable to establish connection": "08001",
    "Connection not open": "08003",
    "Server rejected the connection": "08004",
    "Connection failure during transaction": "08007",
    "Communication link failure": "08S01",
    "Serialization failure": "40001",
    "Statement completion unknown": "40003",
    "Timeout expired": "HYT00",
    "Connection timeout expired": "HYT01",
}
"""SQLSTATE by its text in mssql-python's exceptions.py: the driver hands out only the text."""

BROKEN = {"08001", "08003", "08004", "08007", "08S01", "40003", "HYT01"}
"""SQLSTATEs after which the connection, and with it the outcome of a commit, is unknown."""

TRANSIENT = {
    64,  # the connection was reset
    233,  # the other end closed it
    701,  # out of memory
    1204,  # out of locks
    1205,  # deadlock victim
    1222,  # lock timeout
    3960,  # update conflict under SNAPSHOT
    3961,  # metadata changed under SNAPSHOT
    6005,  # the server shuts down
    *(8645, 8651),  # no memory for the query in time
    *(10053, 10054, 10060),  # network
    17142,  # the server is paused
    18401,  # the server is upgrading itself
    *(10928, 10929, 40197, 40501, 40613, 49918, 49919, 49920),  # Azure SQL limits and moves it
}
"""Error numbers after which the same statement may succeed, for bcp and the bulk copy, whose
sessions may speak another language.
https://learn.microsoft.com/azure/azure-sql/database/troubleshoot-common-errors-issues"""

_TRANSIENT_STATES = BROKEN | {"40001", "HYT00"}
_DATA = ("22", "23")
"""SQLSTATE classes of bad values and violated constraints."""

_BROKEN_TEXT = re.compile(
    r"communication link|connection (?:reset|refused|closed|broken)|reset by peer|broken pipe"
    r"|unexpected eof|server closed the connection|terminating connection|tcp provider"
    r"|connection is closed|kill state",
    re.IGNORECASE,
)
_TRANSIENT_TEXT = re.compile(
    f"{_BROKEN_TEXT.pattern}|deadlock|lock request time out"
    # Babelfish's words for 1222, as error 33557097
    "|due to lock timeout"
    # the bulk copy's native core, when the server goes away while it connects
    "|failed to receive token|connection aborted"
    # an end that asks to come back
    r"|please (?:re)?try|wait and try|re(?:try|run) (?:the|your)\b|retry login|before trying again"
    "|try the (?:operation|statement) (?:again )?later|wait a few minutes"
    # the server starts, ends, is patched or has its breath taken
    "|shutdown is in progress|shutting down|service has been paused|script upgrade mode"
    "|only administrators? (?:may|can) connect|single user mode|service is currently busy"
    "|insufficient (?:system )?memory|request limit|limit for the (?:database|elastic pool) is"
    "|maximum number of .* user connections|spawn a thread to process a new login"
    # a database that recovers or fails over
    "|is being recovered|has not been recovered yet|not currently available|is in transition"
    "|in the middle of a restore|not in the primary or secondary role|acting as a mirror database"
    "|an availability group and is currently|lacks (?:a )?quorum|login to read-secondary failed"
    # SNAPSHOT and memory-optimised tables
    "|update conflict|has been modified by a ddl statement in another concurrent transaction"
    "|updated since this transaction started|took a dependency on has aborted"
    "|(?:repeatable read|serializable) validation failure",
    re.IGNORECASE,
)
"""Texts of sys.messages, as the driver hands out neither their number nor always the SQLSTATE
(microsoft/mssql-python#581). A session speaks us_english; a login may be refused in the login's
language, and is not tried again then."""

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
"""Names and values within a text."""

_NUMBER = re.compile(r"(?:error|Msg|code)[ :(]+(\d{2,5})\b", re.IGNORECASE)
_DECORATION = re.compile(
    r"\[Microsoft\]|\[ODBC Driver \d+ for SQL Server\]|\[SQL Server\]|^Driver Error:.*?DDBC Error: "
)
LOGIN_REFUSED = "login failed"
BULK_LOGIN = "Failed to connect to SQL Server"
"""How an error of the bulk copy begins if its own login failed."""

_REFUSED = {
    # before the next one, as its text ends with "The login failed."
    "cannot open database": "database {database!r} does not exist, or may not be used",
    LOGIN_REFUSED: "login of {user} refused",
    "certificate verify failed": (
        "its certificate cannot be verified for this name; SSL_CERT_FILE names an authority of "
        "your own, trust_server_certificate=yes accepts any certificate"
    ),
    "ssl provider": "no TLS connection: {text}",
}
"""Why a connection failed for good, by a part of the driver's text."""

_UNREACHABLE = {
    "login timeout expired": "no answer",
    "tcp provider": "no answer",
    "connection refused": "connection refused",
    # a server that starts or stops, or a proxy in front of it
    "handshakes before login": "the connection was closed before the login",
    "communication link failure": "the connection was closed during the login",
}
"""Why a connection failed that may succeed later."""

_MISSING_RELATION = re.compile(r'relation "((?:[^"]|"")+)" does not exist', re.IGNORECASE)
"""Babelfish's text (error 33557097) when a catalog query meets a table that is dropped meanwhile,
and sometimes for a missing table."""

DRIVERS = ("mssql_python", "mssql_py_core")
LIBRARIES = ("libkrb5-3", "libgssapi-krb5-2", "libltdl7")


def driver_missing(error: ImportError) -> InputError:
    """The error for a machine on which the installed driver cannot be loaded."""
    return InputError(
        f"the SQL Server driver needs the system libraries {', '.join(LIBRARIES[:2])} and "
        f"{LIBRARIES[2]} ({error}); on Debian: apt-get install {' '.join(LIBRARIES)}"
    )


def from_driver(error: BaseException) -> bool:
    """Whether the server, the driver or the network failed, and not our own code."""
    module = type(error).__module__.partition(".")[0]
    # the bulk copy's native core raises RuntimeError, the ODBC bindings sometimes too
    return isinstance(error, OSError | RuntimeError) or module in DRIVERS


def connecting(error: BaseException, settings: ConnectionSettings) -> TableferryError:
    """The error that says why a connection failed."""
    if own := _own(error):
        return own
    text = _plain(error)
    passes = _passes(text)
    mark = why_refused(text)
    if mark is None and not passes and _state(error) == "28000":
        mark = LOGIN_REFUSED  # in the login's language
    if mark is None:
        return settings.failed(text, transient=passes)
    message = (_REFUSED | _UNREACHABLE)[mark]
    user = f"user {settings.user!r}" if settings.user else "the token's or ticket's user"
    reason = message.format(user=user, database=settings.database, text=text)
    refused = mark == LOGIN_REFUSED
    return settings.failed(reason, transient=mark in _UNREACHABLE, refused=refused)


def why_refused(text: str) -> str | None:
    """The part of a login's error that says why it failed; None if it is none of those known.

    The part is `LOGIN_REFUSED` if the user or the password is wrong, and not if the server says
    that it takes no logins for the time being.
    """
    lower = text.lower()
    found = next((mark for mark in _REFUSED | _UNREACHABLE if mark in lower), None)
    return None if found == LOGIN_REFUSED and _passes(text) else found


def _own(error: BaseException) -> TableferryError | None:
    """The error of ours for which the driver got no token."""
    cause = error.__cause__
    while cause is not None and not isinstance(cause, TableferryError):
        cause = cause.__cause__
    return cause


def translate(
    error: BaseException, settings: ConnectionSettings, statement: str = ""
) -> StatementFailed:
    """The error that says why a statement failed; its `code` is the SQLSTATE if the driver has it.

    `statement` may be the name of the bulk copy's table: a missing table that it does not name
    belongs to another session, which dropped it during a catalog query.
    """
    text = _plain(error)
    transient = _is_transient(error) or met_a_vanishing_table(text, statement)
    return StatementFailed(
        "sqlserver",
        settings.redact(text) or "unknown error",
        code=_state(error),
        transient=transient,
    )


class BulkLoginFailed(StatementFailed):
    """The driver's bulk copy, which logs in by itself, cannot; see `copying`."""


def copying(error: BaseException, settings: ConnectionSettings, table: str) -> TableferryError:
    """The error that says why a bulk copy failed."""
    text = _plain(error)
    if own := _own(error):
        return own
    if not text.startswith(BULK_LOGIN):
        return translate(error, settings, table)
    refused = why_refused(text) == LOGIN_REFUSED
    outdated = settings.failed(text, refused=refused).outdated_password
    return BulkLoginFailed(
        "sqlserver",
        "the driver logs in a second time to bulk copy, by a way of its own, and that login "
        f"failed: {settings.redact(text)}",
        transient=outdated or _is_transient(error),
    )


def is_transient(error: BaseException) -> bool | None:
    """Whether the same statement may succeed later; None if the error is not the driver's."""
    library = type(error).__module__.partition(".")[0]
    return _is_transient(error) if library in DRIVERS else None


def _is_transient(error: BaseException) -> bool:
    text, state = _plain(error), _state(error)
    if state is not None and state.startswith(_DATA):
        return False  # the message quotes data
    match = _NUMBER.search(text)
    number = int(match[1]) if match else None
    return number in TRANSIENT or state in _TRANSIENT_STATES or _passes(text)


def _passes(text: str) -> bool:
    """Whether a text says that it may work later; a name or a value in it says nothing."""
    return bool(_TRANSIENT_TEXT.search(_QUOTED.sub("", text)))


def _state(error: BaseException) -> str | None:
    return STATES.get(str(getattr(error, "driver_error", "")))


def met_a_vanishing_table(message: str, statement: str) -> bool:
    """Whether a statement failed because of a missing table that it does not name."""
    match = _MISSING_RELATION.search(message)
    if match is None or not statement:
        return False
    # the server may add its schema, and changes the case of names
    name = match[1].replace('""', '"').casefold()
    named = statement.replace('""', '"').replace("''", "'").casefold()
    return name not in named and name.rpartition(".")[2] not in named


def broke(error: StatementFailed) -> bool:
    """Whether the connection broke, so that the statement's outcome is unknown."""
    return error.code in BROKEN or bool(_BROKEN_TEXT.search(str(error)))


def _plain(error: BaseException) -> str:
    text = str(getattr(error, "ddbc_error", "") or error)
    return " ".join(_DECORATION.sub("", text).split())
