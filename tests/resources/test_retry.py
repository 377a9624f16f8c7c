"""Which errors are worth another attempt."""

from __future__ import annotations

import adbc_driver_manager as adbc
import psycopg
import pytest
import tenacity
from clickhouse_connect.driver.exceptions import OperationalError as ClickHouseError
from mssql_python.exceptions import OperationalError as MssqlError
from urllib3.exceptions import ProtocolError

from tableferry.resources.connecting import retry
from tableferry.resources.connecting.retry import ATTEMPTS, backoff, is_transient, retrying
from tableferry.resources.errors import (
    ConnectionFailed,
    SnapshotLost,
    StatementFailed,
    TableferryError,
    ValueRefused,
)


def adbc_error(message: str, sqlstate: str | None = None) -> adbc.Error:
    return adbc.OperationalError(message, status_code=adbc.AdbcStatusCode.IO, sqlstate=sqlstate)


TRANSIENT = {
    "deadlock": psycopg.errors.DeadlockDetected("deadlock detected"),
    "serialization": psycopg.errors.SerializationFailure("could not serialize access"),
    "shutdown": psycopg.errors.AdminShutdown("terminating connection"),
    "starting": psycopg.errors.CannotConnectNow("the database system is starting up"),
    "too many": psycopg.errors.TooManyConnections("sorry, too many clients already"),
    "connection lost": psycopg.OperationalError("server closed the connection unexpectedly"),
    "adbc by state": adbc_error("IO: x", "40P01"),
    "adbc stream": OSError("[libpq] Execution error: server closed the connection unexpectedly"),
    "sqlserver deadlock": MssqlError("Serialization failure", "Transaction was deadlocked"),
    "sqlserver state": MssqlError(
        "Communication link failure", "[Microsoft][ODBC Driver 18 for SQL Server]TCP"
    ),
    "sqlserver number": MssqlError(
        "General error", "[Microsoft][ODBC Driver 18 for SQL Server]Msg 1222"
    ),
    "socket": ConnectionResetError("reset by peer"),
    "timeout": TimeoutError(),
    "urllib3": ProtocolError("Connection broken"),
    "ours": StatementFailed("clickhouse", "too many parts", code=252, transient=True),
    "server down": ConnectionFailed("cannot connect", transient=True),
    "snapshot": SnapshotLost("gone"),
}
PERMANENT = {
    "syntax": psycopg.errors.SyntaxError("syntax error"),
    "missing table": psycopg.errors.UndefinedTable("relation does not exist"),
    "division": OSError("[libpq] Execution error [PGRES_FATAL_ERROR]: ERROR:  division by zero"),
    "adbc missing": adbc_error('NOT_FOUND: column "x" does not exist. SQLSTATE: 42703'),
    "duplicate key": MssqlError("Integrity constraint violation", "a key named timeout"),
    "truncation": MssqlError(
        "String data, right-truncated", "[Microsoft][ODBC Driver 18 for SQL Server]a timeout"
    ),
    "no space": OSError(28, "No space left on device"),
    "refused value": ValueRefused("t", "c", 1, "x", "is too long"),
    "wrong password": ConnectionFailed("cannot connect"),
    "ours": StatementFailed("postgres", "no", code="42P01"),
    "a bug": KeyError("x"),
}


@pytest.mark.parametrize("error", TRANSIENT.values(), ids=TRANSIENT)
def test_worth_another_attempt(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize("error", PERMANENT.values(), ids=PERMANENT)
def test_not_worth_another_attempt(error: Exception) -> None:
    assert not is_transient(error)


@pytest.mark.parametrize(("code", "expected"), [(252, True), (159, True), (60, False)])
def test_clickhouse_codes(code: int, expected: bool) -> None:
    error = ClickHouseError("x")
    error.code = code
    assert is_transient(error) is expected


def test_the_cause_decides_where_the_error_itself_says_nothing() -> None:
    try:
        try:
            raise ConnectionResetError
        except ConnectionResetError as cause:
            raise TableferryError("the load broke off") from cause
    except TableferryError as error:
        assert is_transient(error)


def test_an_error_that_hides_its_context_is_judged_alone() -> None:
    try:
        try:
            raise ConnectionResetError
        except ConnectionResetError:
            raise TableferryError("no") from None
    except TableferryError as error:
        assert not is_transient(error)


def test_waits_double_up_to_a_limit_and_are_jittered() -> None:
    assert all(0.5 <= backoff(1) <= 0.75 and 4 <= backoff(4) <= 6 for _ in range(100))
    assert all(30 <= backoff(99) <= 45 for _ in range(100))
    assert len({backoff(3) for _ in range(10)}) > 1


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "backoff", lambda attempt: 0.0)


def run(errors: list[Exception]) -> int:
    attempts = 0
    for attempt in retrying():
        with attempt:
            attempts += 1
            if errors:
                raise errors.pop(0)
    return attempts


@pytest.mark.usefixtures("no_waiting")
def test_transient_errors_are_tried_again_until_it_works() -> None:
    assert run([ConnectionResetError(), TimeoutError()]) == 3


@pytest.mark.usefixtures("no_waiting")
def test_a_permanent_error_is_raised_at_once_and_as_it_was() -> None:
    later = TimeoutError()
    with pytest.raises(KeyError):
        run(errors := [KeyError("x"), later])
    assert errors == [later]


@pytest.mark.usefixtures("no_waiting")
def test_the_last_attempt_raises_the_error_itself() -> None:
    errors: list[Exception] = [TimeoutError(str(i)) for i in range(20)]
    with pytest.raises(TimeoutError, match=str(ATTEMPTS - 1)):
        run(errors)
    assert len(errors) == 20 - ATTEMPTS


@pytest.mark.usefixtures("no_waiting")
def test_what_an_inner_loop_has_given_up_is_not_tried_again_by_an_outer_one() -> None:
    tries = 0

    def load() -> None:
        nonlocal tries
        for attempt in retrying():
            with attempt:
                tries += 1
                raise TimeoutError

    with pytest.raises(StatementFailed):
        for attempt in retrying():
            with attempt:
                try:
                    load()
                except TimeoutError as error:
                    raise StatementFailed("postgres", "timeout", transient=True) from error
    assert tries == ATTEMPTS


def test_the_loop_is_tenacitys() -> None:
    assert isinstance(retrying(), tenacity.Retrying)
