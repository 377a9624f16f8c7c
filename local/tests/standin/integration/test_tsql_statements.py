"""What T-SQL statements and batches do: the engine on a real PostgreSQL."""

from __future__ import annotations

import threading

import pytest
from local.tests.standin.integration.tsql_session import Session

from tableferry_local.sqlserver.errors import SqlError


def test_rows_come_back_as_inserted(session: Session) -> None:
    assert session.run("INSERT t VALUES (1, N'é'), (2, NULL); INSERT t (id) VALUES (3)").counts == [
        2,
        1,
    ]
    assert session.rows("SELECT * FROM [T] ORDER BY ID DESC") == [(3, None), (2, None), (1, "é")]


def test_update_and_delete_may_join(session: Session) -> None:
    session.run("INSERT t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    outcome = session.run(
        "UPDATE x SET name = v.n FROM t AS x JOIN (VALUES (1, 'one'), (3, 'three')) AS v(i, n)"
        " ON v.i = x.id; DELETE x FROM dbo.t x WHERE x.name = 'ONE'"
    )
    assert (outcome.numbers, outcome.counts) == ([], [2, 1])
    assert session.rows("SELECT * FROM t ORDER BY id") == [(2, "b"), (3, "three")]


def test_identity_values_are_made_or_given(session: Session) -> None:
    session.run("CREATE TABLE u (id bigint IDENTITY(10, 5), x int)")
    session.run("INSERT u (x) VALUES (1), (2)")
    assert session.run("INSERT u (id, x) VALUES (100, 3)").numbers == [544]
    session.run(
        "SET IDENTITY_INSERT u ON; INSERT u (id, x) VALUES (100, 3); SET IDENTITY_INSERT u OFF"
        " INSERT u (x) VALUES (4)"
    )
    assert session.rows("SELECT id FROM u ORDER BY x") == [(10,), (15,), (100,), (105,)]


def test_computed_columns_and_defaults(session: Session) -> None:
    session.run(
        "CREATE TABLE u (a int, b AS a * 2 PERSISTED,"
        " c datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME(),"
        " d nvarchar(5) NOT NULL CONSTRAINT df_d DEFAULT N'x')"
    )
    session.run("INSERT u (a) VALUES (21); INSERT u (a, d) VALUES (1, DEFAULT)")
    assert session.rows("SELECT b, d FROM u ORDER BY a") == [(2, "x"), (42, "x")]
    assert session.run("UPDATE u SET b = 1").numbers == [271]


def test_rowversion_changes_with_every_change(session: Session) -> None:
    session.run("CREATE TABLE u (a int, v rowversion); INSERT u (a) VALUES (1)")
    first = session.rows("SELECT v FROM u")
    session.run("UPDATE u SET a = 2")
    second = session.rows("SELECT v FROM u")
    assert first < second


def test_char_and_binary_are_padded(session: Session) -> None:
    session.run(
        "CREATE TABLE u (a char(3), b nchar(3), c binary(3)); INSERT u VALUES ('a', N'😀', 0x01)"
    )
    assert session.rows("SELECT * FROM u") == [("a  ", "😀 ", b"\1\0\0")]


ERRORS = [
    ("INSERT t VALUES (1, 'x')", 2627, "Cannot insert duplicate key in object 'dbo.t'"),
    ("INSERT t VALUES (2, 'Name')", 2601, "unique index 'ux'"),
    ("INSERT t VALUES (NULL, 'x')", 515, "column 'id', table 'tableferry.dbo.t'"),
    (
        "INSERT t VALUES (3, '12345678901')",
        2628,
        "table 'tableferry.dbo.t', column 'name'. Truncated value: '1234567890'",
    ),
    ("INSERT t (id) VALUES (1, 2)", 110, "There are fewer columns"),
    ("INSERT t (nothing) VALUES (1)", 207, "Invalid column name 'nothing'."),
    ("INSERT nothing VALUES (1)", 208, "Invalid object name 'nothing'."),
    ("INSERT t SELECT 1, 'x', 3", 121, "contains more items"),
    ("SELECT CAST(N'1.0E-7' AS decimal(38, 10))", 8114, "Error converting data type"),
    ("DROP TABLE nothing", 3701, "Cannot drop the table 'nothing'"),
    ("CREATE TABLE t (a int)", 2714, "There is already an object named 't'"),
    ("CREATE TABLE nowhere.t (a int)", 2760, '"nowhere"'),
    ("CREATE TABLE u (a int, A int)", 2705, "specified more than once"),
    ("USE nothing", 911, "Database 'nothing' does not exist"),
    ("EXEC nothing", 2812, "Could not find stored procedure 'nothing'."),
    ("SELECT * FROM t JOIN t AS x ON id = id", 209, "Ambiguous column name 'id'."),
    ("SELECT id, COUNT(*) FROM t GROUP BY name", 8120, ""),
    ("COMMIT", 3902, "no corresponding BEGIN TRANSACTION"),
    ("SELEC 1", 2812, "'SELEC'"),
    ("SELECT 1 FROM", 102, ""),
    ("DECLARE @a int, @a int", 134, "@a"),
    ("SELECT id FROM t FOR XML AUTO", 40510, "FOR XML"),
    ("MERGE t USING t AS s ON t.id = s.id WHEN MATCHED THEN DELETE;", 40510, "MERGE"),
    ("INSERT t EXEC ('SELECT 1')", 40510, "INSERT ... EXEC"),
    ("SELECT id INTO u FROM t", 40510, "SELECT ... INTO"),
    ("DELETE t OUTPUT deleted.id", 40510, "OUTPUT"),
    ("CREATE TABLE u (a int CHECK (a > 0))", 40510, "CHECK"),
    ("CREATE TABLE u (a int REFERENCES t (id))", 40510, "REFERENCES"),
    ("CREATE PROCEDURE p AS SELECT 1", 40510, "CREATE PROCEDURE"),
    ("BEGIN TRY SELECT 1 END TRY BEGIN CATCH SELECT 2 END CATCH", 40510, "TRY"),
    ("WHILE 1 = 1 SELECT 1", 40510, "WHILE"),
    ("WAITFOR DELAY '00:00:01'", 40510, "WAITFOR"),
    ("DECLARE @t TABLE (a int)", 40510, "table variable"),
    ("SAVE TRAN one", 40510, "SAVE"),
    ("ROLLBACK TRAN one", 40510, "savepoint"),
    ("EXEC sp_rename 't.ix', 'n', 'INDEX'", 40510, "INDEX"),
    ("EXEC sp_rename 't.nothing', 'n', 'COLUMN'", 15248, "COLUMN"),
    ("EXEC sp_rename 't.name', 'id', 'COLUMN'", 15335, "already in use"),
    ("SELECT value FROM STRING_SPLIT('a,b', ',')", 40510, "table-valued function"),
    ("SELECT x.v FROM t CROSS APPLY (SELECT id) AS x(v)", 40510, "Lateral"),
    ("SELECT id & 1 FROM t", 40510, "Bitwise"),
    ("SELECT SYSUTCDATETIME() + 1", 40510, "dates"),
    ("SELECT CAST(1.5 AS varbinary(9))", 40510, "as binary"),
]


@pytest.mark.parametrize(("batch", "number", "text"), ERRORS, ids=[row[0] for row in ERRORS])
def test_errors(session: Session, batch: str, number: int, text: str) -> None:
    session.run("CREATE UNIQUE INDEX ux ON t (name); INSERT t VALUES (1, 'name')")
    errors = session.run(batch).errors
    assert [error.number for error in errors] == [number]
    assert text in errors[0].message


def test_trailing_blanks_beyond_the_length_are_cut(session: Session) -> None:
    assert session.run("INSERT t VALUES (1, '1234567890   ')").numbers == []
    assert session.rows("SELECT DATALENGTH(name) FROM t") == [(20,)]


def test_control_flow_and_variables(session: Session) -> None:
    outcome = session.run(
        """
        DECLARE @i int = 0, @text nvarchar(20) = N'1'
        IF @i = 0
        BEGIN
          SET @i = @i + 3
          SET @text = @text + CAST(@i AS nvarchar(5))
        END
        IF @text = N'13' SELECT 'yes' ELSE SELECT 'no'
        """
    )
    assert outcome.results == [[("yes",)]]


def test_select_assigns_variables(session: Session) -> None:
    session.run("INSERT t VALUES (1, 'a'), (2, 'b')")
    assert session.rows(
        "DECLARE @n int, @s nvarchar(10); SELECT @n = id, @s = name FROM t ORDER BY id;"
        " SELECT @n, @s"
    ) == [(2, "b")]
    assert session.rows(
        "DECLARE @s nvarchar(max); SELECT @s = COALESCE(@s + ',', '') + name FROM t ORDER BY id"
        " SELECT @s"
    ) == [("a,b",)]


def test_dynamic_batches_have_their_own_variables(session: Session) -> None:
    outcome = session.run(
        "DECLARE @a int = 1, @out int; EXEC sp_executesql N'SET @o = @p * 2; DECLARE @a int = 5',"
        " N'@p int, @o int OUTPUT', @p = 21, @o = @out OUTPUT; SELECT @out, @a;"
        " EXEC('SELECT ' + '7'); EXEC('SELECT @a')"
    )
    assert (outcome.results, outcome.numbers) == ([[(42, 1)], [(7,)]], [137])


def test_a_syntax_error_runs_nothing_of_the_batch(session: Session) -> None:
    assert session.run("INSERT t VALUES (1, 'a'); SELECT FROM WHERE").numbers == [102]
    assert session.rows("SELECT COUNT(*) FROM t") == [(0,)]


def test_fmtonly_describes_and_returns_no_rows(session: Session) -> None:
    outcome = session.run("SET FMTONLY ON SELECT * FROM t SET FMTONLY OFF")
    assert [str(c.type) for c in outcome.metadata[0]] == ["int", "nvarchar(10)"]
    assert outcome.last == []


def test_cancel_stops_a_statement_and_keeps_the_transaction(session: Session) -> None:
    session.run("BEGIN TRAN; INSERT t VALUES (1, 'a')")
    digits = "(VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)) AS {0}(n)"
    combinations = " CROSS JOIN ".join(digits.format(name) for name in "abcdefghij")
    threading.Timer(0.5, session.engine.cancel).start()
    outcome = session.run(f"SELECT COUNT_BIG(*) FROM {combinations}")
    assert [error.severity for error in outcome.errors] == [0]
    session.run("COMMIT")
    assert session.rows("SELECT id FROM t") == [(1,)]


def _copy(*rows: tuple[bytes | None, ...]) -> bytes:
    """PostgreSQL's binary COPY of these values."""
    lines = [
        len(row).to_bytes(2, "big")
        + b"".join(
            b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value
            for value in row
        )
        for row in rows
    ]
    return b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"".join(lines) + b"\xff\xff"


def test_a_bulk_load_is_part_of_the_transaction(session: Session) -> None:
    session.run("BEGIN TRAN")
    load = session.engine.bulk_begin(
        "INSERT BULK [t] ([id] int, [name] nvarchar(10)) WITH (TABLOCK)"
    )
    load.write(_copy((b"\0\0\0\1", "é".encode()), (b"\0\0\0\2", None)))
    assert load.finish() == 2
    assert session.rows("SELECT * FROM t ORDER BY id") == [(1, "é"), (2, None)]
    session.run("ROLLBACK")
    assert session.rows("SELECT COUNT(*) FROM t") == [(0,)]


def test_a_bulk_load_without_transaction_commits(session: Session, other: Session) -> None:
    load = session.engine.bulk_begin("INSERT BULK t (id int)")
    load.write(_copy((b"\0\0\0\1",)))
    load.finish()
    assert other.rows("SELECT id FROM t") == [(1,)]


@pytest.mark.parametrize(
    ("row", "number"),
    [((b"\0\0\0\1", b"12345678901"), 2628), ((None, b"x"), 515), ((b"\0\0\0\7", b"x"), 2627)],
)
def test_a_bad_row_undoes_the_bulk_load(
    session: Session, row: tuple[bytes | None, ...], number: int
) -> None:
    session.run("INSERT t VALUES (7, 'seven'); BEGIN TRAN")
    load = session.engine.bulk_begin("INSERT BULK t (id int, name nvarchar(10))")
    load.write(_copy((b"\0\0\0\5", b"ok"), row))
    with pytest.raises(SqlError) as caught:
        load.finish()
    assert caught.value.number == number
    assert session.rows("SELECT id, @@TRANCOUNT FROM t") == [(7, 1)]


def test_an_aborted_bulk_load_leaves_nothing(session: Session) -> None:
    load = session.engine.bulk_begin("INSERT BULK t (id int, name nvarchar(10))")
    load.write(_copy((b"\0\0\0\5", b"ok"))[:-2])
    load.abort()
    assert session.rows("SELECT COUNT(*) FROM t") == [(0,)]


def test_a_bulk_load_fills_in_what_it_does_not_give(session: Session) -> None:
    session.run("CREATE TABLE u (id int IDENTITY, a int DEFAULT 5, b AS a + 1)")
    load = session.engine.bulk_begin("INSERT BULK u (id int, a int)")
    load.write(_copy((b"\0\0\0\x63", None), (None, b"\0\0\0\x0a")))
    load.finish()
    assert session.rows("SELECT * FROM u ORDER BY id") == [(1, 5, 6), (2, 10, 11)]
