"""The text of the SQL Server target's statements."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pyarrow as pa
import pytest

from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.sqlserver.ddl import STATEMENTS, get_lock, shown, staging_schema
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.statements import TargetSession
from tableferry.resources.types.type_map import Column

SOURCE = TableRef("postgres", "public", "orders")
TARGET = TableRef("sqlserver", "shop]s", "orders")
STAGING = TableRef("sqlserver", "shop]s", "stage")


def _column(name: str, type_: str, nullable: bool = False) -> ColumnPlan:
    column = Column(name, type_, nullable=nullable)
    return ColumnPlan(column, column, name, pa.string())


KEY = _column("id", "bigint")
PLAN = CopyPlan(SOURCE, TARGET, (KEY, _column("note", "nvarchar(40)", True)), KEY, ("id",))


def _with(key: ColumnPlan, *others: ColumnPlan, primary_key: tuple[str, ...]) -> CopyPlan:
    return CopyPlan(SOURCE, TARGET, (key, *others), key, primary_key)


def test_primary_key_on_the_key_column_needs_no_index() -> None:
    assert STATEMENTS.create_table(PLAN, TARGET) == [
        'CREATE TABLE "shop]s"."orders" '
        '("id" bigint NOT NULL, "note" nvarchar(40) NULL, PRIMARY KEY ("id"))'
    ]


PRIMARY_KEYS = {
    "no primary key": (_with(KEY, primary_key=()), None, True),
    "key first": (_with(KEY, _column("n", "int"), primary_key=("id", "n")), '"id", "n"', False),
    "key second": (_with(KEY, _column("n", "int"), primary_key=("n", "id")), '"n", "id"', True),
    "text is equal where it differs": (
        _with(KEY, _column("code", "nvarchar(9)"), primary_key=("id", "code")),
        None,
        True,
    ),
    "bytes": (
        _with(KEY, _column("b", "varbinary(8)"), primary_key=("id", "b")),
        '"id", "b"',
        False,
    ),
    "too long": (_with(KEY, _column("b", "varbinary(893)"), primary_key=("id", "b")), None, True),
    "no limit": (_with(KEY, _column("b", "varbinary(max)"), primary_key=("id", "b")), None, True),
    "nullable": (_with(_column("id", "int", True), primary_key=("id",)), None, True),
}


@pytest.mark.parametrize("case", PRIMARY_KEYS)
def test_primary_key_where_it_can_be_one(case: str) -> None:
    plan, primary_key, index = PRIMARY_KEYS[case]
    statements = STATEMENTS.create_table(plan, TARGET)
    if primary_key is None:
        assert "PRIMARY KEY" not in statements[0]
    else:
        assert statements[0].endswith(f"PRIMARY KEY ({primary_key}))")
    assert len(statements) == 1 + index
    if index:
        assert statements[1].endswith('ON "shop]s"."orders" ("id")')


def test_an_index_has_a_name_that_no_earlier_table_has() -> None:
    plan = _with(KEY, primary_key=())
    assert STATEMENTS.create_table(plan, TARGET)[1] != STATEMENTS.create_table(plan, TARGET)[1]


def test_staging_is_a_heap_with_plain_names_and_a_view_of_it() -> None:
    plan = _with(KEY, _column("At 'it'", "Time(3)", True), _column('a]"b', "date"), primary_key=())
    assert STATEMENTS.create_staging(plan, STAGING) == [
        'CREATE TABLE "shop]s"."stage_rows" '
        '("c0" bigint NOT NULL, "c1" datetime2(3) NULL, "c2" date NOT NULL)',
        'CREATE VIEW "shop]s"."stage" ("id", "At \'it\'", "a]""b") '
        'AS SELECT c0, CAST(c1 AS Time(3)), c2 FROM "shop]s"."stage_rows"',
    ]
    assert STATEMENTS.drop_staging(STAGING) == (
        'DROP VIEW IF EXISTS "shop]s"."stage"; DROP TABLE IF EXISTS "shop]s"."stage_rows"'
    )


def test_a_key_that_is_a_text_is_staged_in_the_order_of_its_ranges() -> None:
    key = _column("Order", "nvarchar(20)")
    plan = _with(key, _column("order no", "int"), primary_key=())
    plan = replace(plan, source=replace(SOURCE, system_name="sqlserver"))
    rows, _ = STATEMENTS.create_staging(plan, STAGING)
    assert '("c0" nvarchar(20) COLLATE Latin1_General_' in rows and "c1" in rows


def test_the_columns_of_a_view_are_those_of_its_table() -> None:
    """By place: Babelfish has the names of a view's columns in small letters."""
    plan = _with(KEY, _column("At", "time", True), _column("Note", "nvarchar(40)"), primary_key=())
    found = [
        Column("c2", "nvarchar(40)", collation="Latin1_General_CI_AS"),
        Column("c0", "bigint", False),
        Column("c1", "datetime2(7)"),
    ]
    assert [(one.name, one.type, one.nullable) for one in shown(plan, found)] == [
        ("id", "bigint", False),
        ("At", "time(7)", True),
        ("Note", "nvarchar(40)", True),
    ]


@pytest.mark.parametrize("schema", ["Order Data", "Één", "a.b", "it's", 'a"b', "a]b", "😀"])
def test_staging_is_beside_the_table_unless_tools_would_misread_its_schema(schema: str) -> None:
    class Asked:
        def query(self, sql: str) -> list[tuple[str]]:
            assert sql == "SELECT SCHEMA_NAME()"
            return [("own",)]

    misread = schema in ("it's", 'a"b', "a]b", "😀")
    found = staging_schema(cast(TargetSession, Asked()), replace(TARGET, schema=schema))
    assert found == ("own" if misread else schema)


@pytest.mark.parametrize(
    ("type_", "staged"),
    [
        ("decimal(12,2)", "decimal(38,2)"),
        ("numeric(9, 0)", "decimal(38,0)"),
        ("decimal(5)", "decimal(38,0)"),
        ("decimal", "decimal(38,0)"),
        ("money", "money"),
    ],
)
def test_every_decimal_is_staged_in_the_most_bytes(type_: str, staged: str) -> None:
    plan = _with(KEY, _column("price", type_), primary_key=("id",))
    assert f'"c1" {staged} NOT NULL' in STATEMENTS.create_staging(plan, STAGING)[0]


def test_upsert_compares_numbers_plainly() -> None:
    assert STATEMENTS.update_known(PLAN, TARGET, STAGING) == (
        'UPDATE ferry__t SET "note" = ferry__s."note" FROM "shop]s"."orders" AS ferry__t '
        'INNER JOIN "shop]s"."stage" AS ferry__s ON ferry__t."id" = ferry__s."id"'
    )
    assert STATEMENTS.insert_new(PLAN, TARGET, STAGING) == (
        'INSERT INTO "shop]s"."orders" ("id", "note") SELECT "id", "note" '
        'FROM "shop]s"."stage" AS ferry__s WHERE NOT EXISTS '
        '(SELECT 1 FROM "shop]s"."orders" AS ferry__t WHERE ferry__t."id" = ferry__s."id")'
    )


def test_upsert_compares_text_by_code_points_and_length() -> None:
    statement = STATEMENTS.insert_new(replace(PLAN, primary_key=("note",)), TARGET, STAGING)
    assert statement.endswith(
        'WHERE ferry__t."note" = ferry__s."note" COLLATE Latin1_General_BIN2 '
        'AND DATALENGTH(ferry__t."note") = DATALENGTH(ferry__s."note"))'
    )


def test_nothing_to_update_where_all_is_key() -> None:
    assert STATEMENTS.update_known(_with(KEY, primary_key=("id",)), TARGET, STAGING) is None


def test_names_are_quoted_as_literals_too() -> None:
    odd = TableRef("sqlserver", "it's", 'o]"')
    assert STATEMENTS.create_schema(odd) == (
        "IF SCHEMA_ID(N'it''s') IS NULL EXEC(N'CREATE SCHEMA \"it''s\"')"
    )
    quoted = replace(odd, schema='s "1"', name='say "hi"')
    assert STATEMENTS.rename(quoted, "x") == (
        """EXEC sp_rename N'[s "1"].[say "hi"]', N'x', 'OBJECT'"""
    )
    shadow = shadow_of(odd)
    assert STATEMENTS.put_in_place(shadow, odd) == [
        'DROP TABLE "it\'s"."o]"""',
        f"EXEC sp_rename N'\"it''s\".\"{shadow.name}\"', N'o]\"', 'OBJECT'",
    ]
    assert '"' not in shadow.name
    assert shadow != shadow_of(replace(odd, name="o]")) != shadow_of(replace(odd, name='"o]'))
    assert STATEMENTS.rename(odd, "new'") == (
        "EXEC sp_rename N'\"it''s\".\"o]\"\"\"', N'new''', 'OBJECT'"
    )
    assert "TABLE_SCHEMA = N'it''s' AND TABLE_NAME = N'o]\"'" in STATEMENTS.table_exists(odd)
    assert "@Resource = N'it''s', " in get_lock("it's", 0)


def test_rejected_rows_are_kept_under_the_names_of_the_target() -> None:
    kept = replace(TARGET, name="stage_rejected")
    assert STATEMENTS.keep(PLAN, STAGING, kept) == [
        *STATEMENTS.begin,
        'CREATE TABLE "shop]s"."stage_rejected" ("id" bigint NOT NULL, "note" nvarchar(40) NULL)',
        STATEMENTS.insert_all(PLAN, kept, STAGING),
        STATEMENTS.commit,
    ]
