"""The SQL Server stand-in's side of the protocol, seen by clients that others wrote."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import mssql_python
import pyarrow as pa
import pymssql
import pytest
from local.tests.standin.integration.clients import Clients

from tableferry_local import sqlserver_part
from tableferry_local.stack import Stack

pytestmark = pytest.mark.integration

TABLE = "dbo.standin_protocol"
# A query that runs for minutes unless it is cancelled: it counts 10^10 combinations.
_DIGITS = "(VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)) AS {0}(n)"
ENDLESS = "SELECT COUNT_BIG(*) FROM " + " CROSS JOIN ".join(
    _DIGITS.format(name) for name in "abcdefghij"
)
MANY = "SELECT a.n FROM " + " CROSS JOIN ".join(_DIGITS.format(name) for name in "abcdef")


@pytest.fixture(scope="module")
def clients(local_stack: Stack) -> Iterator[Clients]:
    """Clients of a server that has an empty table (id int PRIMARY KEY, note nvarchar(10))."""
    found = Clients.of(local_stack.sqlserver_url)
    found.run(
        f"IF OBJECT_ID('{TABLE}') IS NOT NULL DROP TABLE {TABLE}",
        f"CREATE TABLE {TABLE} (id int NOT NULL PRIMARY KEY, note nvarchar(10) NULL)",
    )
    yield found
    found.run(f"DROP TABLE {TABLE}")


@pytest.fixture
def table(clients: Clients) -> str:
    """The table, empty."""
    clients.run(f"DELETE FROM {TABLE}")
    return TABLE


@pytest.mark.parametrize("encrypt", ["yes", "no"])
def test_odbc_logs_in(clients: Clients, encrypt: str) -> None:
    with clients.odbc(Encrypt=encrypt) as connection:
        assert connection.cursor().execute("SELECT 1").fetchval() == 1


def test_strict_encryption_trusts_the_certificate_it_is_given(
    clients: Clients, local_stack: Stack
) -> None:
    certificate = sqlserver_part.home(local_stack.folder) / "server.pem"
    with clients.odbc(
        Encrypt="strict", ServerCertificate=str(certificate), TrustServerCertificate="no"
    ) as connection:
        assert connection.cursor().execute("SELECT 1").fetchval() == 1


def test_a_certificate_that_is_not_trusted_is_not_accepted(clients: Clients) -> None:
    with (
        pytest.raises(mssql_python.Error, match="certificate verify failed"),
        clients.odbc(TrustServerCertificate="no"),
    ):
        pass


@pytest.mark.parametrize(("user", "password"), [("sa", "wrong"), ("somebody", None)])
def test_a_wrong_login_is_refused_with_18456(
    clients: Clients, user: str, password: str | None
) -> None:
    password = password or clients.password
    with pytest.raises(pymssql.Error) as caught, clients.pymssql(user=user, password=password):
        pass
    assert "18456" in str(caught.value)
    with (
        pytest.raises(mssql_python.Error, match=f"Login failed for user '{user}'"),
        clients.odbc(UID=user, PWD=password),
    ):
        pass


def test_a_missing_database_is_refused(clients: Clients) -> None:
    with pytest.raises(pymssql.Error) as caught, clients.pymssql(database="nowhere"):
        pass
    # error 4060 says why, but drivers tell the one with the higher severity
    assert caught.value.args[0][0] == 18456


@pytest.mark.parametrize("size", [512, 513, 4096, 8000, 16384, 32767])
@pytest.mark.parametrize("encrypt", ["yes", "no"])
def test_any_packet_size(clients: Clients, table: str, size: int, encrypt: str) -> None:
    text = "Ωé😀" * 6000
    with clients.odbc(PacketSize=str(size), Encrypt=encrypt) as connection:
        cursor = connection.cursor()
        row = cursor.execute(f"SELECT N'{text}', N'{text[:900]}'").fetchone()
        assert tuple(row) == (text, text[:900])
        rows = pa.table({"id": pa.array(range(3000), pa.int32()), "note": ["Ωé😀"] * 3000})
        done = cursor.bulkcopy_arrow(table, rows.to_reader(1000), timeout=0)
        assert done["rows_copied"] == 3000
        cursor.execute(f"SELECT id, note FROM {table} ORDER BY id")
        assert pa.Table.from_batches(cursor.arrow_reader(700)).to_pydict() == rows.to_pydict()


def test_a_statement_that_runs_too_long_is_cancelled(clients: Clients) -> None:
    with clients.odbc() as connection:
        connection.timeout = 1
        with pytest.raises(mssql_python.OperationalError, match="timeout expired"):
            connection.cursor().execute(ENDLESS)
        assert connection.cursor().execute("SELECT 2").fetchval() == 2


def test_the_rest_of_a_result_can_be_left_unread(clients: Clients) -> None:
    with clients.odbc() as connection:
        cursor = connection.cursor()
        cursor.execute(MANY)
        assert len(cursor.fetchmany(3)) == 3
        cursor.close()
        assert connection.cursor().execute("SELECT 3").fetchval() == 3
    with clients.pymssql() as connection:
        cursor = connection.cursor()
        cursor.execute(MANY)
        assert len(cursor.fetchmany(3)) == 3
        connection._conn.cancel()
        cursor.execute("SELECT 4")
        assert cursor.fetchall() == [(4,)]


def test_a_client_that_goes_away_ends_its_statement(clients: Clients) -> None:
    with clients.pymssql(timeout=1) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@SPID")
            ((session,),) = cursor.fetchall()
        with pytest.raises(pymssql.Error):
            connection.cursor().execute(ENDLESS)
    running = (  # the child that served it, and its number, may be the question's own by now
        "SELECT session_id FROM sys.dm_exec_requests "
        f"WHERE session_id = {session} AND session_id <> @@SPID"
    )
    deadline = time.monotonic() + 60
    while clients.rows(running):
        assert time.monotonic() < deadline, "the statement still runs"
        time.sleep(0.05)


def test_several_results_of_one_batch(clients: Clients) -> None:
    with clients.pymssql() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1 AS a; SELECT 'x' AS b, 2 AS c; SELECT 3 AS d WHERE 1 = 0")
        found = [(cursor.description[0][0], cursor.fetchall())]
        while cursor.nextset():
            found.append((cursor.description[0][0], cursor.fetchall()))
    assert found == [("a", [(1,)]), ("b", [("x", 2)]), ("d", [])]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_transaction_ends_as_the_client_says(clients: Clients, table: str, end: str) -> None:
    with clients.odbc(autocommit=False) as connection:
        connection.cursor().execute(f"INSERT INTO {table} VALUES (1, N'odbc')")
        getattr(connection, end)()
    with clients.pymssql(autocommit=False) as connection:
        connection.cursor().execute(f"INSERT INTO {table} VALUES (2, N'pymssql')")
        getattr(connection, end)()
    expected = [(1,), (2,)] if end == "commit" else []
    assert clients.rows(f"SELECT id FROM {table} ORDER BY id") == expected


def test_a_transaction_is_rolled_back_when_its_connection_ends(
    clients: Clients, table: str
) -> None:
    with clients.pymssql(autocommit=False) as connection:
        connection.cursor().execute(f"INSERT INTO {table} VALUES (1, N'lost')")
    assert clients.rows(f"SELECT COUNT(*) FROM {table}") == [(0,)]


def test_a_pooled_connection_starts_anew(clients: Clients) -> None:
    mssql_python.pooling(max_size=1, idle_timeout=60)
    try:
        with clients.odbc() as connection:
            cursor = connection.cursor()
            first = cursor.execute("SELECT @@SPID").fetchval()
            cursor.execute("CREATE TABLE #left (a int)")
        with clients.odbc() as connection:
            cursor = connection.cursor()
            assert cursor.execute("SELECT OBJECT_ID('tempdb..#left')").fetchval() is None
            assert first is not None
    finally:
        mssql_python.pooling(enabled=False)


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("SELECT * FROM dbo.nowhere", 208),
        (f"SELECT nothing FROM {TABLE}", 207),
        ("SELECT 1 FROM", 102),
        (f"INSERT INTO {TABLE} VALUES (1, N'a'), (1, N'b')", 2627),
        (f"INSERT INTO {TABLE} VALUES (NULL, N'a')", 515),
        (f"INSERT INTO {TABLE} VALUES (5, N'more than ten')", 2628),
        ("SELECT 1 / 0", 8134),
        ("SELECT CAST('x' AS int)", 245),
        ("EXEC dbo.nothing", 2812),
    ],
)
def test_errors_have_the_numbers_of_sql_server(
    clients: Clients, table: str, statement: str, number: int
) -> None:
    with clients.pymssql() as connection:
        cursor = connection.cursor()
        with pytest.raises(pymssql.Error) as caught:
            cursor.execute(statement)
            cursor.fetchall()
        assert caught.value.args[0] == number
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"id": [1, 1], "note": ["a", "b"]}, "PRIMARY KEY"),
        ({"id": [1, None], "note": ["a", "b"]}, "NULL"),
        ({"id": [1, 2], "note": ["a", "more than ten"]}, "length|truncat"),
    ],
    ids=["duplicate", "null", "too long"],
)
def test_a_bulk_load_that_fails_leaves_nothing(
    clients: Clients, table: str, values: dict[str, list[object]], message: str
) -> None:
    rows = pa.table({"id": pa.array(values["id"], pa.int32()), "note": values["note"]})
    with clients.odbc() as connection:
        with pytest.raises(Exception, match=message):
            connection.cursor().bulkcopy_arrow(table, rows.to_reader(), timeout=0)
        assert connection.cursor().execute(f"SELECT COUNT(*) FROM {table}").fetchval() == 0


def test_bulk_batches_commit_one_by_one(clients: Clients, table: str) -> None:
    ids = [*range(10), 3]
    rows = pa.table({"id": pa.array(ids, pa.int32()), "note": ["x"] * 11})
    with clients.odbc() as connection, pytest.raises(Exception, match="PRIMARY KEY"):
        connection.cursor().bulkcopy_arrow(table, rows.to_reader(), timeout=0, batch_size=5)
    assert clients.rows(f"SELECT COUNT(*) FROM {table}") == [(10,)]


def test_a_statement_with_parameters_is_refused(clients: Clients, table: str) -> None:
    with clients.odbc() as connection:
        cursor = connection.cursor()
        with pytest.raises(mssql_python.Error, match=r"remote procedure call.* is not supported"):
            cursor.execute(f"INSERT INTO {table} VALUES (?, ?)", (1, "a"))
        assert cursor.execute(f"SELECT COUNT(*) FROM {table}").fetchval() == 0


def test_freebcp_is_told_of_an_error(clients: Clients, table: str, tmp_path: Path) -> None:
    file = tmp_path / "in"
    file.write_text("1|~|a|^|\n1|~|b|^|\n")
    done = clients.freebcp(table, "in", file)
    assert "PRIMARY KEY" in done.stderr
    assert clients.rows(f"SELECT COUNT(*) FROM {table}") == [(0,)]


def test_many_connections_at_once(clients: Clients, table: str) -> None:
    failures: list[BaseException] = []

    def insert(number: int) -> None:
        try:
            clients.run(f"INSERT INTO {table} VALUES ({number}, N'thread')")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=insert, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert clients.rows(f"SELECT COUNT(*) FROM {table}") == [(20,)]
