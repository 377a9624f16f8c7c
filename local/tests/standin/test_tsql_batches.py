"""Where T-SQL statements end, and how control flow nests."""

from __future__ import annotations

import pytest

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.tsql.syntax.batch import (
    Block,
    Node,
    Statement,
    parse_batch,
)


def shape(node: Node) -> object:
    """A tree of texts."""
    if isinstance(node, Statement):
        return node.text
    if isinstance(node, Block):
        return [shape(item) for item in node.body]
    otherwise = shape(node.otherwise) if node.otherwise else None
    return ("if", node.condition.text, shape(node.then), otherwise)


BATCHES: list[tuple[str, list[object]]] = [
    ("SELECT 1 SELECT 2; SELECT 3", ["SELECT 1", "SELECT 2", "SELECT 3"]),
    ("SELECT 1 UNION ALL SELECT 2", ["SELECT 1 UNION ALL SELECT 2"]),
    ("INSERT t SELECT 1 SELECT 2", ["INSERT t SELECT 1", "SELECT 2"]),
    ("INSERT t VALUES (1) SELECT 2", ["INSERT t VALUES (1)", "SELECT 2"]),
    ("UPDATE t SET a = 1 SET NOCOUNT ON", ["UPDATE t SET a = 1", "SET NOCOUNT ON"]),
    (
        "SET IDENTITY_INSERT t ON INSERT t VALUES (1)",
        ["SET IDENTITY_INSERT t ON", "INSERT t VALUES (1)"],
    ),
    (
        "ALTER TABLE t DROP COLUMN a ALTER TABLE t ALTER COLUMN b int DROP TABLE IF EXISTS t",
        [
            "ALTER TABLE t DROP COLUMN a",
            "ALTER TABLE t ALTER COLUMN b int",
            "DROP TABLE IF EXISTS t",
        ],
    ),
    (
        "GRANT SELECT, ALTER ON SCHEMA::dbo TO a WITH GRANT OPTION DENY DELETE TO a REVOKE INSERT "
        "ON t FROM a SELECT 1",
        [
            "GRANT SELECT, ALTER ON SCHEMA::dbo TO a WITH GRANT OPTION",
            "DENY DELETE TO a",
            "REVOKE INSERT ON t FROM a",
            "SELECT 1",
        ],
    ),
    (
        "ALTER DATABASE d SET ALLOW_SNAPSHOT_ISOLATION ON SET NOCOUNT ON",
        ["ALTER DATABASE d SET ALLOW_SNAPSHOT_ISOLATION ON", "SET NOCOUNT ON"],
    ),
    (
        "SELECT CASE WHEN 1 = 1 THEN 2 ELSE 3 END FROM t SELECT 4",
        ["SELECT CASE WHEN 1 = 1 THEN 2 ELSE 3 END FROM t", "SELECT 4"],
    ),
    ("BEGIN TRAN INSERT t VALUES (1) COMMIT", ["BEGIN TRAN", "INSERT t VALUES (1)", "COMMIT"]),
    (
        "IF OBJECT_ID('t', 'U') IS NOT NULL DROP TABLE t CREATE TABLE t (a int)",
        [
            ("if", "OBJECT_ID('t', 'U') IS NOT NULL", "DROP TABLE t", None),
            "CREATE TABLE t (a int)",
        ],
    ),
    (
        "IF EXISTS (SELECT 1) SELECT 2; ELSE BEGIN SELECT 3 SELECT 4 END SELECT 5",
        [("if", "EXISTS (SELECT 1)", "SELECT 2", ["SELECT 3", "SELECT 4"]), "SELECT 5"],
    ),
    ("sp_help 'x'", ["sp_help 'x'"]),
    ("-- only a comment", []),
    (
        "SELECT '; SELECT 2' /* ; SELECT 3 /* nested */ */ + ';'",
        ["SELECT '; SELECT 2' /* ; SELECT 3 /* nested */ */ + ';'"],
    ),
    ("CREATE VIEW v AS SELECT 1 AS a SELECT 2", ["CREATE VIEW v AS SELECT 1 AS a SELECT 2"]),
    ("SELECT [begin], [end] FROM [if] END_OF", ["SELECT [begin], [end] FROM [if] END_OF"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), BATCHES, ids=[row[0][:60] for row in BATCHES])
def test_a_batch_is_cut_into_statements(text: str, expected: list[object]) -> None:
    assert [shape(node) for node in parse_batch(text)] == expected


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SELECT 'open", 105),
        ("BEGIN SELECT 1", 102),
        ("END", 102),
        ("BEGIN TRY SELECT 1 END TRY BEGIN CATCH SELECT 2 END CATCH", 40510),
        ("SELECT 1) SELECT 2", 102),
        ("IF", 102),
    ],
)  # fmt: skip
def test_a_batch_that_does_not_parse_is_an_error(text: str, number: int) -> None:
    with pytest.raises(SqlError) as caught:
        parse_batch(text)
    assert caught.value.number == number
