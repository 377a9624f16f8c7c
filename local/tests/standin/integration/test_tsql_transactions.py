"""What T-SQL transactions, savepoints and locks do: the engine on a real PostgreSQL."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
from local.tests.standin.integration.tsql_session import Session


def test_an_error_undoes_its_statement_only(session: Session) -> None:
    outcome = session.run(
        "BEGIN TRAN; INSERT t VALUES (1, 'a'); INSERT t VALUES (2, 'b'), (1, 'c');"
        " INSERT t VALUES (3, 'd'); SELECT @@TRANCOUNT; COMMIT"
    )
    assert (outcome.numbers, outcome.last) == ([2627], [(1,)])
    assert session.rows("SELECT id FROM t ORDER BY id") == [(1,), (3,)]


def test_xact_abort_undoes_everything(session: Session) -> None:
    outcome = session.run(
        "SET XACT_ABORT ON; BEGIN TRAN; INSERT t VALUES (1, 'a');"
        " INSERT t VALUES (1, 'c'); SELECT 1"
    )
    assert (outcome.numbers, outcome.results) == ([2627], [])
    assert session.rows("SELECT @@TRANCOUNT, (SELECT COUNT(*) FROM t)") == [(0, 0)]


def test_a_conversion_error_ends_the_batch_and_the_transaction(session: Session) -> None:
    outcome = session.run("BEGIN TRAN; INSERT t VALUES (1, 'a'); SELECT CAST('x' AS int); SELECT 2")
    assert (outcome.numbers, outcome.results) == ([245], [])
    assert session.rows("SELECT @@TRANCOUNT, (SELECT COUNT(*) FROM t)") == [(0, 0)]


def test_nothing_follows_what_is_refused(session: Session) -> None:
    outcome = session.run(
        "BEGIN TRAN; INSERT t VALUES (1, 'a'); SAVE TRAN one; INSERT t VALUES (2, 'b');"
        " ROLLBACK TRAN one; COMMIT"
    )
    assert outcome.numbers == [40510]
    assert session.rows("SELECT id, @@TRANCOUNT FROM t") == [(1, 1)]


def test_transactions_nest(session: Session) -> None:
    session.run(
        "BEGIN TRAN; INSERT t VALUES (1, 'a'); BEGIN TRAN; INSERT t VALUES (3, 'c'); COMMIT"
    )
    assert session.rows("SELECT @@TRANCOUNT") == [(1,)]
    session.run("COMMIT")
    assert session.rows("SELECT id FROM t ORDER BY id") == [(1,), (3,)]


def test_definitions_are_rolled_back(session: Session) -> None:
    session.run(
        "BEGIN TRAN; CREATE TABLE u (a int); EXEC sp_rename 't', 'v'; ALTER TABLE v ADD b int;"
        " ALTER TABLE v ALTER COLUMN name varchar(99); INSERT v VALUES (1, 'x', 2); ROLLBACK"
    )
    assert session.rows("SELECT OBJECT_ID('u'), OBJECT_ID('v')") == [(None, None)]
    assert session.rows(
        "SELECT COLUMN_NAME, DATA_TYPE, CHARACTER_MAXIMUM_LENGTH FROM INFORMATION_SCHEMA.COLUMNS"
        " WHERE TABLE_NAME = 't' ORDER BY ORDINAL_POSITION"
    ) == [("id", "int", None), ("name", "nvarchar", 10)]
    assert session.rows("SELECT * FROM t") == []


def test_a_lock_timeout_is_an_error_that_keeps_the_transaction(
    session: Session, other: Session
) -> None:
    session.run("INSERT t VALUES (1, 'a'); BEGIN TRAN; UPDATE t SET name = 'b'")
    other.run("SET LOCK_TIMEOUT 50; BEGIN TRAN")
    assert other.run("UPDATE t SET name = 'c'").numbers == [1222]
    assert other.engine.in_transaction


def test_a_deadlock_ends_one_transaction(session: Session, other: Session) -> None:
    session.run(
        "INSERT t VALUES (1, 'a'), (2, 'b'); BEGIN TRAN; UPDATE t SET name = 'x' WHERE id = 1"
    )
    other.run("BEGIN TRAN; UPDATE t SET name = 'y' WHERE id = 2")
    numbers: list[int] = []
    thread = threading.Thread(
        target=lambda: numbers.extend(session.run("UPDATE t SET name = 'z' WHERE id = 2").numbers)
    )
    thread.start()
    numbers += other.run("UPDATE t SET name = 'z' WHERE id = 1").numbers
    thread.join()
    assert numbers == [1205]
    assert session.engine.in_transaction != other.engine.in_transaction


def test_a_table_that_is_replaced_meanwhile_is_read_as_what_it_is_now(
    session: Session, other: Session
) -> None:
    session.run("CREATE TABLE u (id nvarchar(9)); INSERT u VALUES ('c1'); INSERT t VALUES (1, 'a')")
    other.run("BEGIN TRAN; EXEC sp_rename 't', 'v', 'OBJECT'; EXEC sp_rename 'u', 't', 'OBJECT'")
    waiting = (
        "SELECT FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with ThreadPoolExecutor(1) as pool, psycopg.connect(session.url, autocommit=True) as watcher:
        reading = pool.submit(session.run, "SELECT id FROM t")
        while not watcher.execute(waiting).rowcount:
            assert not reading.done(), "it was to wait"
        other.run("COMMIT")
        outcome = reading.result()
    assert (outcome.numbers, outcome.last) == ([], [("c1",)])
    assert str(outcome.metadata[-1][0].type) == "nvarchar(9)"


def test_snapshot_isolation_refuses_lost_updates(session: Session, other: Session) -> None:
    session.run("INSERT t VALUES (1, 'a'); SET TRANSACTION ISOLATION LEVEL SNAPSHOT; BEGIN TRAN")
    assert session.rows("SELECT name FROM t") == [("a",)]
    other.run("UPDATE t SET name = 'b'")
    assert session.rows("SELECT name FROM t") == [("a",)]
    assert session.run("UPDATE t SET name = 'c'").numbers == [3960]
    assert not session.engine.in_transaction


def test_application_locks(session: Session, other: Session) -> None:
    take = "DECLARE @r int; EXEC @r = sp_getapplock 'x', 'Exclusive', '{}', {}; SELECT @r"
    release = "DECLARE @r int; EXEC @r = sp_releaseapplock 'x', '{}'; SELECT @r"
    session.run("BEGIN TRAN")
    assert session.rows(take.format("Transaction", 0)) == [(0,)]
    assert other.rows(take.format("Session", 0)) == [(-1,)]
    assert other.rows(take.format("Session", 50)) == [(-1,)]
    session.run("ROLLBACK")
    assert other.rows(take.format("Session", 0)) == [(0,)]
    assert other.rows(release.format("Session")) == [(0,)]
    assert other.run(release.format("Session")).numbers == [1223]
    assert session.run(take.format("Transaction", 0)).numbers == [3918]
