"""What a user reads when a server or the system refuses: one line, no secret, the right class."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from pathlib import Path

import pytest
import urllib3.exceptions
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from tableferry.resources.clickhouse import errors as clickhouse_errors
from tableferry.resources.connecting.address import parse_url
from tableferry.resources.connecting.retry import is_transient
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


@pytest.mark.parametrize(
    ("text", "message", "transient"),
    [
        ("Login failed for user 'sa'.", "login of user 'sa' refused", False),
        (
            "Cannot open database 'shop'",
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


def test_a_sqlserver_that_hangs_up_before_the_login_may_be_back_later() -> None:
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
