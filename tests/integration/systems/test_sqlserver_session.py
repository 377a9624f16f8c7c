"""What a session with SQL Server is set to, whatever it began with."""

from __future__ import annotations

import datetime as dt

import pytest
from mssql_python import ddbc_bindings

from tableferry.resources.sqlserver import connection as module
from tableferry.resources.sqlserver.connection import SqlServerConnection, load_driver
from tableferry.resources.sqlserver.resource import SqlServerResource
from tests.integration.support import looking

pytestmark = pytest.mark.integration

ADVERSE = {
    "LANGUAGE": "French",
    "DATEFIRST": "3",
    "ANSI_NULLS": "OFF",
    "CONCAT_NULL_YIELDS_NULL": "OFF",
    "QUOTED_IDENTIFIER": "OFF",
    "XACT_ABORT": "OFF",
    "NOCOUNT": "ON",
    "ROWCOUNT": "2",
    "TEXTSIZE": "10",
    "LOCK_TIMEOUT": "5",
}
"""What a login, a server's user options or an earlier user of the session may have left."""

XACT_ABORT, NOCOUNT = 16384, 512


LOCK = (
    "DECLARE @got int; EXEC @got = sp_getapplock @Resource = N'left behind', "
    "@LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 2000"
)


def state(session: SqlServerConnection) -> dict[str, object]:
    """What depends on the settings, and what the server says of them."""
    ((day, options, first, wait),) = session.query(
        "SELECT CAST('2024-02-01' AS datetime), @@OPTIONS, @@DATEFIRST, @@LOCK_TIMEOUT"
    )
    values = "(VALUES (1), (2), (3)) AS v(n)"
    return {
        "day": day,
        "options": options & (XACT_ABORT | NOCOUNT),
        "first": first,
        "wait": wait,
        "rows": len(session.query(f"SELECT n FROM {values}")),
        "text": session.query("SELECT CAST(REPLICATE('x', 99) AS nvarchar(max))"),
        'quoted "name"': session.query(f'SELECT COUNT(*) FROM {values} WHERE "n" > 1'),
    }


EXPECTED = {
    "day": dt.datetime(2024, 2, 1),
    "options": XACT_ABORT,
    "first": 7,
    "wait": 600_000,
    "rows": 3,
    "text": [("x" * 99,)],
    'quoted "name"': [(2,)],
}


def test_each_session_is_set_anew(mssql_url: str) -> None:
    server = SqlServerResource(url=mssql_url)
    with server.connection() as session:
        assert state(session) == EXPECTED
        for name, value in ADVERSE.items():
            session.execute(f"SET {name} {value}")
        session.pin()
        assert state(session) == EXPECTED
        session.execute("CREATE TABLE #changed (n int); INSERT INTO #changed VALUES (1), (2), (3)")
        assert session.execute("UPDATE #changed SET n = n + 1") == 3


def test_a_session_that_is_used_again_is_as_it_was(mssql_url: str) -> None:
    server = SqlServerResource(url=mssql_url)
    with server.pooled_connection() as session:
        first = session.query("SELECT @@SPID")
    with server.read_arrow("SELECT @@SPID AS n") as reader:
        (reading,) = reader.read_all().to_pylist()
    assert reading["n"] != first[0][0], "readers, which may be under SNAPSHOT, have their own"
    with server.pooled_connection() as session:
        assert session.query("SELECT @@SPID") == first
        assert state(session) == EXPECTED


def test_a_session_ends_though_others_use_the_drivers_pool(mssql_url: str) -> None:
    """In that pool it would keep its locks and isolation until somebody uses it again."""
    server = SqlServerResource(url=mssql_url)
    load_driver().pooling(max_size=2, idle_timeout=60)
    try:
        other = looking.sqlserver(mssql_url)
        looking.rows(other, "SET LOCK_TIMEOUT 5; SET LANGUAGE French")
        other.close()
        with server.connection() as session:
            assert state(session) == EXPECTED
            session.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            session.execute(LOCK)
        with server.connection() as session:
            assert session.query(f"{LOCK}; SELECT @got") == [(0,)]
    finally:
        load_driver().pooling(enabled=False)


def test_what_a_server_refuses_keeps_nothing_else_from_being_set(
    mssql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Babelfish may, of options that it has not."""
    monkeypatch.setattr(module, "SESSION", {"NO_SUCH_OPTION": "ON", **module.SESSION})
    with SqlServerResource(url=mssql_url).connection() as session:
        assert state(session) == EXPECTED
        assert not session.failed


def test_the_replaced_name_of_the_driver_keeps_it_from_collecting_messages(
    mssql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a release of the driver collects none by itself, or does so in another place."""
    collected: list[object] = []
    collect = ddbc_bindings.DDBCSQLGetAllDiagRecords

    def watched(handle: object) -> object:
        collected.append(handle)
        return collect(handle)

    monkeypatch.setattr(ddbc_bindings, "DDBCSQLGetAllDiagRecords", watched)
    with SqlServerResource(url=mssql_url).connection() as session:
        session.execute("SET LOCK_TIMEOUT -1")
        assert session.query("SELECT 1") == [(1,)]
        assert not collected
        with session.raw.cursor() as cursor:
            cursor.execute("SET LOCK_TIMEOUT -1", use_prepare=False)
            assert not cursor.nextset()
        assert collected, "the driver needs no replacement any more"


def test_the_count_of_a_batch_is_that_of_its_last_statement(mssql_url: str) -> None:
    """A trigger tells what it has changed before the statement that fired it does."""
    session = SqlServerResource(url=mssql_url).connected()
    try:
        session.execute("CREATE TABLE #t (id int)")
        none, two = "DELETE FROM #t WHERE id = 9", "INSERT INTO #t VALUES (1), (2)"
        assert session.execute(f"{none}; {two}") == 2
        assert session.execute(f"{two}; {none}") == 0
        assert session.execute(f"{two}; SET NOCOUNT ON; {none}; SET NOCOUNT OFF") == 2
    finally:
        session.close()
