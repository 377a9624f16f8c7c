"""What T-SQL definitions make, and what the catalog tells of it."""

from __future__ import annotations

import psycopg
import pytest
from local.tests.standin.integration.tsql_session import Session

from tableferry_local.sqlserver.catalog.link import MOST_PREPARED
from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.tsql.execution.engine import Engine


def test_names_of_any_kind(session: Session) -> None:
    session.run("CREATE SCHEMA [my schema]")
    table = '[my schema].[a ]] table "with" 日本 and select]'
    long_name = "x" * 128
    session.run(
        f"CREATE TABLE {table} ([order] int, [ctid] int, [ä.b] int, [{long_name}] int);"
        f" INSERT {table} ([ORDER], CTID, [Ä.B], {long_name}) VALUES (1, 2, 3, 4)"
    )
    outcome = session.run(f"SELECT *, t.[order] FROM tableferry.{table} AS t")
    assert outcome.last == [(1, 2, 3, 4, 1)]
    assert [c.name for c in outcome.metadata[0]] == ["order", "ctid", "ä.b", long_name, "order"]
    assert session.rows(
        "SELECT s.name, t.name FROM sys.tables t JOIN sys.schemas s ON s.schema_id = t.schema_id"
        " WHERE s.name LIKE 'my%'"
    ) == [("my schema", 'a ] table "with" 日本 and select')]
    assert session.run(f"DROP TABLE {table}; DROP SCHEMA [my schema]").numbers == []


def test_a_view_shows_and_changes_the_rows_of_its_table(session: Session) -> None:
    """As far as SQL Server lets it: nothing is written to what it computes."""
    session.run("INSERT t VALUES (1, '42'), (2, NULL)")
    outcome = session.run(
        'CREATE VIEW v ("It\'s ""it""", [a]]b 😀], c) AS SELECT id, name, CAST(id AS bigint) FROM t'
    )
    assert outcome.numbers == []
    assert session.rows("SELECT TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES") == [
        ("t", "BASE TABLE"),
        ("v", "VIEW"),
    ]
    assert session.rows(
        "SELECT COLUMN_NAME, DATA_TYPE FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME = 'v'"
    ) == [('It\'s "it"', "int"), ("a]b 😀", "nvarchar"), ("c", "bigint")]
    assert session.run("INSERT v ([IT'S \"IT\"], [a]]b 😀]) VALUES (3, 'x')").numbers == []
    assert session.rows('SELECT "it\'s ""it""", [A]]B 😀], c FROM v WHERE c > 1 ORDER BY c') == [
        (2, None, 2),
        (3, "x", 3),
    ]
    session.run("DELETE w FROM v AS w WHERE EXISTS (SELECT 1 FROM t WHERE t.id = w.c AND c < 3)")
    assert session.rows("SELECT id FROM t") == [(3,)]
    assert session.run("DROP TABLE v").numbers == [3705]
    assert session.run("DROP VIEW t").numbers == [3705]
    assert session.run("CREATE VIEW v AS SELECT 1 AS a").numbers == [2714]
    assert session.run("DROP VIEW IF EXISTS v; DROP VIEW IF EXISTS v").numbers == []
    assert session.run("SELECT 1 FROM v").numbers == [208]


def test_security_policies_are_shown(session: Session) -> None:
    """Not heeded."""
    session.run("INSERT t VALUES (1, '42')")
    outcome = session.run(
        "CREATE SECURITY POLICY dbo.only ADD FILTER PREDICATE dbo.even(id) ON dbo.t, "
        "ADD BLOCK PREDICATE dbo.even(id) ON dbo.t WITH (STATE = ON);"
        " CREATE SECURITY POLICY off ADD FILTER PREDICATE dbo.even(id) ON t WITH (STATE = OFF)"
    )
    assert outcome.numbers == []
    shown = (
        "SELECT p.name, p.is_enabled, f.predicate_type, o.name FROM sys.security_policies AS p"
        " INNER JOIN sys.security_predicates AS f ON f.object_id = p.object_id"
        " INNER JOIN sys.objects AS o ON o.object_id = f.target_object_id"
        " ORDER BY p.name, f.predicate_type"
    )
    assert session.rows(shown) == [
        ("off", 0, 0, "t"),
        ("only", 1, 0, "t"),
        ("only", 1, 1, "t"),
    ]
    assert session.rows("SELECT id FROM t") == [(1,)]
    assert session.run("DROP SECURITY POLICY dbo.only; DROP SECURITY POLICY off").numbers == []
    assert session.rows(shown) == []


def test_alter_table(session: Session) -> None:
    session.run("INSERT t VALUES (1, '42')")
    outcome = session.run(
        "ALTER TABLE t ADD a int NULL CONSTRAINT da DEFAULT 5, b int NOT NULL DEFAULT 6,"
        " c AS id + 1;"
        " ALTER TABLE t ALTER COLUMN name varchar(20) NOT NULL; INSERT t (id, name) VALUES (2, 'y')"
    )
    assert outcome.numbers == []
    assert session.rows("SELECT a, b, c, name FROM t ORDER BY id") == [
        (None, 6, 2, "42"),
        (5, 6, 3, "y"),
    ]
    assert session.run("ALTER TABLE t DROP COLUMN a").numbers == [5074]
    outcome = session.run(
        "ALTER TABLE t DROP CONSTRAINT da; ALTER TABLE t DROP COLUMN a, COLUMN c;"
        " ALTER TABLE t ADD CONSTRAINT ub UNIQUE (name); INSERT t (id, name) VALUES (3, 'Y')"
    )
    assert outcome.numbers == [2627]
    assert session.run("ALTER TABLE t ALTER COLUMN name int").numbers == [5074]
    outcome = session.run("ALTER TABLE t DROP CONSTRAINT ub; ALTER TABLE t ALTER COLUMN name int")
    assert outcome.numbers == [245]


def test_temporary_tables_belong_to_their_session(session: Session, other: Session) -> None:
    session.run("CREATE TABLE #x (a int); INSERT #x VALUES (1)")
    assert session.rows("SELECT a FROM tempdb..#x") == [(1,)]
    assert session.rows("SELECT CASE WHEN OBJECT_ID('tempdb..#x') IS NULL THEN 0 ELSE 1 END") == [
        (1,)
    ]
    assert other.run("SELECT * FROM #x").numbers == [208]


def test_databases_and_three_part_names(session: Session) -> None:
    session.run("CREATE DATABASE second")
    outcome = session.run(
        "USE second; CREATE TABLE here (a int); INSERT here VALUES (1); USE tableferry"
    )
    assert (outcome.numbers, outcome.database_now) == ([], "tableferry")
    assert session.rows("SELECT a FROM second..here") == [(1,)]
    assert session.rows("SELECT name FROM second.sys.tables") == [("here",)]
    assert session.run("SELECT * FROM here").numbers == [208]
    assert session.run("DROP DATABASE second").numbers == []


def test_a_database_that_is_not_there_cannot_be_opened(url: str) -> None:
    with pytest.raises(SqlError, match='Cannot open database "nowhere"') as caught:
        Engine(url, login="sa", database="nowhere")
    assert caught.value.number == 4060


def test_catalog_views_tell_keys_and_indexes(session: Session) -> None:
    session.run("CREATE INDEX ix ON t (name DESC)")
    assert session.rows(
        "SELECT i.name, i.is_primary_key, i.is_unique, c.name, x.key_ordinal"
        " FROM sys.indexes i"
        " JOIN sys.index_columns x ON x.object_id = i.object_id AND x.index_id = i.index_id"
        " JOIN sys.columns c ON c.object_id = x.object_id AND c.column_id = x.column_id"
        " WHERE i.object_id = OBJECT_ID('t') AND i.index_id > 1"
    ) == [("ix", 0, 0, "name", 1)]
    assert session.rows(
        "SELECT COLUMN_NAME, CONSTRAINT_TYPE FROM INFORMATION_SCHEMA.KEY_COLUMN_USAGE k"
        " JOIN INFORMATION_SCHEMA.TABLE_CONSTRAINTS c ON c.CONSTRAINT_NAME = k.CONSTRAINT_NAME"
        " WHERE k.TABLE_NAME = 't'"
    ) == [("id", "PRIMARY KEY")]
    session.run("INSERT t VALUES (1, 'a'), (2, 'b')")
    assert session.rows("SELECT rows FROM sys.partitions WHERE object_id = OBJECT_ID('t')") == [
        (2,),
        (2,),
    ]
    assert session.run("DROP INDEX ix ON t").numbers == []
    assert session.rows("SELECT name FROM sys.indexes WHERE name = 'ix'") == []
    assert session.run("DROP INDEX ix ON t").numbers == [3701]
    session.run("DROP INDEX IF EXISTS ix ON t")


def test_catalog_views_tell_what_was_made_in_the_postgres_behind(session: Session) -> None:
    session.run("CREATE TABLE child (ref int)")
    with psycopg.connect(session.url, autocommit=True) as behind:
        for statement in (
            'SET search_path TO "tableferry.dbo"',
            "ALTER TABLE child ADD CONSTRAINT fk FOREIGN KEY (ref) REFERENCES t (id) "
            "ON DELETE CASCADE ON UPDATE SET DEFAULT",
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "CREATE TRIGGER tr AFTER INSERT ON t EXECUTE FUNCTION f()",
        ):
            behind.execute(statement.encode())
        keys = (
            "SELECT name, OBJECT_NAME(parent_object_id), OBJECT_NAME(referenced_object_id), "
            "delete_referential_action, update_referential_action FROM sys.foreign_keys"
        )
        triggers = (
            "SELECT name, OBJECT_NAME(parent_id), is_disabled, is_instead_of_trigger "
            "FROM sys.triggers"
        )
        try:
            assert session.rows(keys) == [("fk", "child", "t", 1, 3)]
            columns = (
                "SELECT k.constraint_column_id, p.name, r.name "
                "FROM sys.foreign_key_columns k "
                "JOIN sys.columns p ON p.object_id = k.parent_object_id "
                "AND p.column_id = k.parent_column_id "
                "JOIN sys.columns r ON r.object_id = k.referenced_object_id "
                "AND r.column_id = k.referenced_column_id"
            )
            assert session.rows(columns) == [(1, "ref", "id")]
            assert session.rows(triggers) == [("tr", "t", 0, 0)]
        finally:
            behind.execute("DROP FUNCTION f CASCADE")


def test_the_catalog_asked_again_and_again_tells_what_there_is_now(session: Session) -> None:
    """PostgreSQL takes up the same plan for all names, from the sixth time on."""
    asked = "SELECT c.name, 'of ''u''' FROM sys.columns c WHERE c.object_id = OBJECT_ID('{}')"
    expected = [("id", "of 'u'"), ("name", "of 'u'")]
    for number in range(8):
        session.run(f"CREATE TABLE u (a{number} int)")
        assert session.rows(asked.format("u")) == [(f"a{number}", "of 'u'")]
        assert session.rows(asked.format("t")) == expected
        there = session.run(
            f"IF EXISTS (SELECT 1 FROM sys.columns WHERE name = 'a{number}') DROP TABLE u"
        )
        assert not there.errors
        assert session.rows(asked.format("u")) == []
        session.engine.close()
        session.engine = Session(session.url).engine


def test_equal_texts_in_a_query_of_the_catalog_are_one_expression(session: Session) -> None:
    assert session.rows(
        "SELECT x.s + 'a', COUNT(*) FROM (SELECT TABLE_SCHEMA AS s FROM INFORMATION_SCHEMA.TABLES"
        " WHERE TABLE_NAME = 't') x GROUP BY x.s + 'a' HAVING x.s + 'a' <> 'b'"
    ) == [("dboa", 1)]


def test_more_queries_of_the_catalog_than_are_kept(session: Session) -> None:
    for number in range(2 * MOST_PREPARED + 1):
        found = session.rows(f"SELECT {number} FROM INFORMATION_SCHEMA.TABLES")
        assert (number,) in found


def test_a_catalog_query_joined_with_a_table_sees_its_new_type(session: Session) -> None:
    asked = "SELECT t.name FROM t CROSS JOIN sys.databases d WHERE d.name = DB_NAME()"
    session.run("INSERT t VALUES (1, 'a')")
    assert session.rows(asked) == [("a",)]
    session.run("UPDATE t SET name = '7'; ALTER TABLE t ALTER COLUMN name int")
    assert session.rows(asked) == [(7,)]
