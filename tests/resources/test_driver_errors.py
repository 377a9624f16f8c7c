"""What a user reads when a server or the system refuses: one line, no secret, the right class."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from dataclasses import replace
from pathlib import Path

import mssql_python
import pytest
import urllib3.exceptions
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from tableferry.resources.clickhouse import errors as clickhouse_errors
from tableferry.resources.connecting.address import parse_url
from tableferry.resources.connecting.retry import is_transient
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import ConnectionFailed, StatementFailed, ValueRefused
from tableferry.resources.files.errors import translated
from tableferry.resources.registry import system
from tableferry.resources.sqlserver import errors as sqlserver_errors
from tableferry.resources.sqlserver.resource import SqlServerResource

CLICKHOUSE = parse_url(system("clickhouse"), "http://app:s3cret@host:8123/shop")
SQLSERVER = parse_url(system("sqlserver"), "mssql://sa:s3cret@host:1433/shop")


def _server(code: int, text: str) -> DatabaseError:
    return DatabaseError(
        f"Received ClickHouse exception, code: {code}, server response: Code: {code}. "
        f"DB::Exception: {text} (version 26.9.2.1 (official build)) (for url http://host:8123)",
        code=code,
    )


LOST_DURING_LOGIN = (
    "Failed to connect to SQL Server: Protocol Error: Failed to receive token during login "
    "response parsing."
)
"""What the bulk copy's native core says when the server goes while it logs in."""


@pytest.mark.parametrize(
    ("error", "message", "transient"),
    [
        (_server(60, "Table shop.x does not exist."), "clickhouse (60): Table shop.x does", False),
        (_server(252, "Too many parts (300)."), "clickhouse (252): Too many parts (300).", True),
        (_server(241, "Memory limit\n exceeded"), "clickhouse (241): Memory limit exceeded", True),
        (_server(473, "WRITE locking attempt timed out"), "clickhouse (473): WRITE lock", True),
        (_server(745, "CPU is overloaded"), "clickhouse (745): CPU is overloaded", True),
        (_server(62, "Syntax error near s3cret"), "clickhouse (62): Syntax error near ***", False),
        (
            OperationalError("Error Connection aborted. Broken pipe"),
            "clickhouse: the connection to clickhouse at host:8123 broke: the server closed the",
            True,
        ),
    ],
)
def test_clickhouse_statement(error: Exception, message: str, transient: bool) -> None:
    translated = clickhouse_errors.translate(error, CLICKHOUSE)
    assert isinstance(translated, StatementFailed)
    assert str(translated).startswith(message)
    assert "version" not in str(translated)
    assert translated.transient is transient


@pytest.mark.parametrize(
    ("error", "message", "transient"),
    [
        (_server(516, "app: Authentication failed"), "login of user 'app' refused", False),
        (_server(81, "Database shop does not exist."), "Database shop does not exist.", False),
        (
            OperationalError("Failed to establish a new connection: Connection refused"),
            "connection refused",
            True,
        ),
        (
            OperationalError("SSLError: CERTIFICATE_VERIFY_FAILED"),
            "its certificate cannot be verified; give ca_cert, or verify=no",
            False,
        ),
    ],
)
def test_clickhouse_connection(error: Exception, message: str, transient: bool) -> None:
    translated = clickhouse_errors.translate(error, CLICKHOUSE)
    assert isinstance(translated, ConnectionFailed)
    assert str(translated) == f"cannot connect to clickhouse at host:8123: {message}"
    assert translated.transient is transient


def test_clickhouse_answer_that_breaks_off_says_why() -> None:
    body = (
        b"\x00rows\x01__exception__\r\nabcdefgh\r\n"
        b"Code: 241. DB::Exception: Memory limit exceeded. (MEMORY) (version 26.9.2.1)\n"
    )
    broken = urllib3.exceptions.ProtocolError(
        "Connection broken", http.client.IncompleteRead(body[30:])
    )
    translated = clickhouse_errors.translate(broken, CLICKHOUSE, answer=body[:30])
    assert isinstance(translated, StatementFailed)
    assert translated.code == 241
    assert str(translated) == "clickhouse (241): Memory limit exceeded. (MEMORY)"


class Odbc(Exception):
    """As the driver's own: words for the SQLSTATE, and the server's text."""

    def __init__(self, driver_error: str, ddbc_error: str) -> None:
        super().__init__(f"Driver Error: {driver_error}; DDBC Error: {ddbc_error}")
        self.driver_error, self.ddbc_error = driver_error, ddbc_error


PREFIX = "[Microsoft][ODBC Driver 18 for SQL Server][SQL Server]"


@pytest.mark.parametrize(
    ("error", "message", "transient", "broke"),
    [
        (
            Odbc("Base table or view not found", f"{PREFIX}Invalid object name 'x'."),
            "sqlserver (42S02): Invalid object name 'x'.",
            False,
            False,
        ),
        (
            Odbc("Serialization failure", f"{PREFIX}Transaction was deadlocked on lock"),
            "sqlserver (40001): Transaction was deadlocked on lock",
            True,
            False,
        ),
        (
            Odbc("General error", f"{PREFIX}canceling statement due to lock timeout"),
            "sqlserver: canceling statement due to lock timeout",
            True,
            False,
        ),
        (
            Odbc("Communication link failure", "[Microsoft]TCP Provider: Error code 0x68"),
            "sqlserver (08S01): TCP Provider: Error code 0x68",
            True,
            True,
        ),
        (RuntimeError("Unexpected EOF"), "sqlserver: Unexpected EOF", True, True),
        (
            RuntimeError(LOST_DURING_LOGIN),
            f"sqlserver: {LOST_DURING_LOGIN}",
            True,
            False,
        ),
        (RuntimeError("value s3cret too\nlong"), "sqlserver: value *** too long", False, False),
    ],
)
def test_sqlserver_statement(error: Exception, message: str, transient: bool, broke: bool) -> None:
    translated = sqlserver_errors.translate(error, SQLSERVER)
    assert str(translated) == message
    assert translated.transient is transient
    assert sqlserver_errors.broke(translated) is broke


@pytest.mark.parametrize(
    ("relation", "statement", "transient"),
    [
        ("__ferry_1_2", "SELECT name FROM sys.columns", True),
        ("master_dbo.other", '"dbo"."__ferry_1_2"', True),
        ('a""b', '"dbo"."__ferry_1_2"', True),
        ("__ferry_1_2", '"dbo"."__Ferry_1_2"', False),
        ("master_dbo.orders", 'SELECT * FROM "dbo"."Orders"', False),
        ('say ""hi""', 'SELECT * FROM "dbo"."Say ""hi"""', False),
        ("it's", "EXEC sp_rename N'\"dbo\".\"it''s\"', N'x', 'OBJECT'", False),
        ("orders", "", False),
    ],
)
def test_a_table_that_vanishes_matters_if_it_is_ours(
    relation: str, statement: str, transient: bool
) -> None:
    error = RuntimeError(f'SQL Server Error 33557097: relation "{relation}" does not exist')
    assert sqlserver_errors.translate(error, SQLSERVER, statement).transient is transient


PASSES = {
    701: "There is insufficient system memory in resource pool 'default' to run this query.",
    802: "There is insufficient memory available in the buffer pool.",
    1204: "The instance of the SQL Server Database Engine cannot obtain a LOCK resource at this "
    "time. Rerun your statement when there are fewer active users. Ask the database administrator "
    "to check the lock and memory configuration for this instance.",
    1205: "Transaction (Process ID 52) was deadlocked on lock resources with another process and "
    "has been chosen as the deadlock victim. Rerun the transaction.",
    1222: "Lock request time out period exceeded.",
    3957: "Snapshot isolation transaction failed in database 'shop' because the database did not "
    "allow snapshot isolation when the current transaction started. It may help to retry the "
    "transaction.",
    3960: "Snapshot isolation transaction aborted due to update conflict. You cannot use snapshot "
    "isolation to access table 'dbo.t' directly or indirectly in database 'shop' to update, "
    "delete, or insert the row that has been modified or deleted by another transaction.",
    3961: "Snapshot isolation transaction failed in database 'shop' because the object accessed by "
    "the statement has been modified by a DDL statement in another concurrent transaction since "
    "the start of this transaction.",
    6005: "SHUTDOWN is in progress.",
    8628: "A time out occurred while waiting to optimize the query. Rerun the query.",
    8645: "A timeout occurred while waiting for memory resources to execute the query in resource "
    "pool 'default' (2). Rerun the query.",
    8651: "Could not perform the operation because the requested memory grant was not available in "
    "resource pool 'default' (2).  Rerun the query, reduce the query load, or check resource "
    "governor configuration setting.",
    10928: "Resource ID: 1. The request limit for the database is 60 and has been reached.",
    10929: "Resource ID: 1. The request minimum guarantee is 0, maximum limit is 60 and the "
    "current usage for the database is 60. However, the server is currently too busy to support "
    "requests greater than 60 for this database. Otherwise, please try again.",
    10936: "Resource ID : 1. The request limit for the elastic pool is 60 and has been reached.",
    40197: "The service has encountered an error processing your request. Please try again. Error "
    "code 4221.",
    40501: "The service is currently busy. Retry the request after 10 seconds. Incident ID: 1.",
    40613: "Database 'shop' on server 'host' is not currently available.  Please retry the "
    "connection later.",
    41302: "The current transaction attempted to update a record that has been updated since this "
    "transaction started. The transaction was aborted.",
    41305: "The current transaction failed to commit due to a repeatable read validation failure.",
    49918: "Cannot process request. Not enough resources to process request. The service is "
    "currently busy. Please retry the request later.",
    49919: "Cannot process create or update request. Too many create or update operations in "
    'progress for subscription "1". Wait till pending requests complete or delete one of your '
    "pending create/update requests and retry your request later.",
    49920: 'Cannot process request. Too many operations in progress for subscription "1". Wait '
    "until pending requests complete, or delete one of your pending requests and retry your "
    "request later.",
}
"""Texts of sys.messages, by number: the driver hands out no number."""

PASSES_AT_LOGIN = {
    615: "Could not find database ID 5, name 'shop'. The database may be offline. Wait a few "
    "minutes and try again.",
    921: "Database 'shop' has not been recovered yet. Wait and try again.",
    922: "Database 'shop' is being recovered. Waiting until recovery is finished.",
    927: "Database 'shop' cannot be opened. It is in the middle of a restore.",
    952: "Database 'shop' is in transition. Try the statement later.",
    954: 'The database "shop" cannot be opened. It is acting as a mirror database.',
    976: "The target database, 'shop', is participating in an availability group and is currently "
    "not accessible for queries.",
    983: "Unable to access availability database 'shop' because the database replica is not in "
    "the PRIMARY or SECONDARY role. Connections to an availability database is permitted only "
    "when the database replica is in the PRIMARY or SECONDARY role. Try the operation again later.",
    988: "Unable to access database 'shop' because it lacks a quorum of nodes for high "
    "availability. Try the operation again later.",
    4221: "Login to read-secondary failed due to long wait on "
    "'HADR_DATABASE_WAIT_FOR_TRANSITION_TO_VERSIONING'.",
    17142: "SQL Server service has been paused. No new connections will be allowed.",
    17187: "SQL Server is not ready to accept new client connections. Wait a few minutes before "
    "trying again.",
    17188: "SQL Server cannot accept new connections, because it is shutting down. The connection "
    "has been closed.",
    17189: "SQL Server failed with error code 0x1 to spawn a thread to process a new login or "
    "connection.",
    17197: "Login failed due to timeout; the connection has been closed. This error may indicate "
    "heavy server load. Reduce the load on the server and retry login.",
    17809: "Could not connect because the maximum number of '10' user connections has already "
    "been reached.",
    18401: "Login failed for user 'sa'. Reason: Server is in script upgrade mode. Only "
    "administrator can connect at this time.",
    18451: "Login failed for user 'sa'. Only administrators may connect at this time.",
    18461: "Login failed for user 'sa'. Reason: Server is in single user mode. Only one "
    "administrator can connect at this time.",
    **{number: PASSES[number] for number in (6005, 10928, 40197, 40501, 40613, 49918)},
}
STAYS = {
    208: "Invalid object name 'retry the request'.",
    229: "The SELECT permission was denied on the object 't', database 'please try again'.",
    262: "CREATE VIEW permission denied in database 'shop'.",
    3952: "Snapshot isolation transaction failed accessing database 'shop' because snapshot "
    "isolation is not allowed in this database. Use ALTER DATABASE to allow snapshot isolation.",
    8114: "Error converting data type nvarchar to numeric.",
    40544: "The database 'shop' has reached its size quota. Partition or delete data, drop "
    "indexes, or consult the documentation for possible resolutions.",
}


class Asked:
    """Whom to ask for another password."""

    key = "asked"

    def password(self) -> str:
        return "s3cret"

    def forget(self, refused: str) -> bool:
        return refused == "s3cret"

    def given(self) -> list[str]:
        return ["s3cret"]


def asked() -> ConnectionSettings:
    """Settings of a login that has had its password from a command."""
    settings = replace(SQLSERVER, given_password=None, password_source=Asked())
    assert settings.password
    return settings


def by_driver(state: str, text: str) -> Exception:
    """What the driver raises."""
    error = mssql_python.exceptions.sqlstate_to_exception(state, PREFIX + text)
    assert error is not None
    return error


@pytest.mark.parametrize("number", PASSES | STAYS)
def test_what_passes_on_sqlserver_is_told_by_its_text(number: int) -> None:
    error = by_driver("42000", (PASSES | STAYS)[number])
    assert sqlserver_errors.is_transient(error) is (number in PASSES)
    assert sqlserver_errors.translate(error, SQLSERVER).transient is (number in PASSES)


@pytest.mark.parametrize("state", ["28000", "42000"])
@pytest.mark.parametrize("number", PASSES_AT_LOGIN)
def test_a_sqlserver_that_takes_no_logins_for_now_is_waited_for(number: int, state: str) -> None:
    text, settings = PASSES_AT_LOGIN[number], asked()
    failed = sqlserver_errors.connecting(by_driver(state, text), settings)
    assert isinstance(failed, ConnectionFailed)
    assert failed.transient
    assert not failed.outdated_password
    copying = RuntimeError(f"{sqlserver_errors.BULK_LOGIN}: {text}")
    assert is_transient(sqlserver_errors.copying(copying, settings, "t"))


@pytest.mark.parametrize(
    ("state", "text", "outdated"),
    [
        ("28000", "Login failed for user 'sa'.", True),
        ("28000", "Fehler bei der Anmeldung für den Benutzer 'sa'.", True),
        ("42000", 'Cannot open database "shop" requested by the login. The login failed.', False),
        ("28000", 'Cannot open database "shop" requested by the login. The login failed.', False),
    ],
)
def test_a_missing_database_is_no_wrong_password(state: str, text: str, outdated: bool) -> None:
    failed = sqlserver_errors.connecting(by_driver(state, text), asked())
    assert isinstance(failed, ConnectionFailed)
    assert failed.outdated_password is outdated
    assert ("login of user 'sa' refused" in str(failed)) is outdated
    assert ("database 'shop' does not exist" in str(failed)) is not outdated


@pytest.mark.parametrize(
    ("text", "message", "transient"),
    [
        ("Login failed for user 'sa'.", "login of user 'sa' refused", False),
        (
            "Cannot open database 'shop' requested by the login. The login failed.",
            "database 'shop' does not exist, or may not be used",
            False,
        ),
        ("Login timeout expired", "no answer", True),
        ("Communication link failure", "the connection was closed during the login", True),
    ],
)
def test_sqlserver_connection(text: str, message: str, transient: bool) -> None:
    failed = sqlserver_errors.connecting(Odbc("", PREFIX + text), SQLSERVER)
    assert str(failed) == f"cannot connect to sqlserver at host:1433: {message}"
    assert is_transient(failed) is transient


def test_a_sqlserver_that_hangs_up_before_the_login_may_be_back_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "0")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        port = server.getsockname()[1]
        with pytest.raises(ConnectionFailed, match="closed before the login") as caught:
            SqlServerResource(url=f"mssql://sa:s3cret@127.0.0.1:{port}/shop?encrypt=no").ping()
    assert caught.value.transient


def test_missing_system_library_is_named() -> None:
    error = ImportError("libgssapi_krb5.so.2: cannot open shared object file")
    assert "apt-get install libkrb5-3" in str(sqlserver_errors.driver_missing(error))


def test_connection_string_is_encrypted_verified_and_quoted() -> None:
    text = SqlServerResource(url="mssql://sa:a%7Db%3Bc@host/shop").connection_string()
    assert text == (
        "Server={host,1433};Database={shop};UID={sa};PWD={a}}b;c};Encrypt={yes};"
        "TrustServerCertificate={no};ConnectRetryCount={0};PacketSize={8000}"
    )


def test_the_system_says_in_its_own_words_why_a_file_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StatementFailed) as refused, translated():
        (tmp_path / "none" / "f").open("wb")
    assert str(refused.value) == f"files: No such file or directory: '{tmp_path}/none/f'"


def test_an_error_does_not_repeat_a_long_value() -> None:
    """PostgreSQL and ClickHouse name the value that they refuse whole."""
    value = "abc" * 1_000_000
    for error in (
        StatementFailed("postgres", f'invalid input syntax for type integer: "{value}"', code=22),
        ValueRefused("postgres://public.t", "note", value, value, "is not an integer"),
    ):
        assert len(str(error)) < 2_500
        assert " ... " in str(error) and "3,000,0" in str(error)


@pytest.mark.parametrize(("password", "hinted"), [("plain", False), ("p@ss", True), ("a#1", True)])
def test_a_refused_password_of_a_url_may_lack_its_encoding(password: str, hinted: bool) -> None:
    settings = replace(CLICKHOUSE, given_password=password)
    refused = str(settings.failed("login refused", refused=True))
    assert ("percent-encoded: % as %25, @ as %40, # as %23" in refused) is hinted
    assert password not in refused
    assert "percent-encoded" not in str(settings.failed("no answer in time"))


def test_a_proxy_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    error = OperationalError("Connection refused")
    assert "proxy" not in str(clickhouse_errors.translate(error, CLICKHOUSE))
    monkeypatch.setenv("HTTP_PROXY", "http://user:s3cret@proxy.example:3128/")
    said = str(clickhouse_errors.translate(error, CLICKHOUSE))
    assert "by the proxy proxy.example:3128 of HTTP_PROXY" in said and "s3cret" not in said
    monkeypatch.setenv("NO_PROXY", CLICKHOUSE.host)
    assert "proxy" not in str(clickhouse_errors.translate(error, CLICKHOUSE))
