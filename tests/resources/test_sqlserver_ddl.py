"""The text of the SQL Server target's statements."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa
import pytest

from tableferry.resources.errors import InputError
from tableferry.resources.plan import ColumnPlan, CopyPlan
from tableferry.resources.sqlserver.ddl import STATEMENTS, get_lock
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.sqlserver.target import SqlServerTarget
from tableferry.resources.tables import Column, TableRef
from tableferry.resources.target import TargetOptions, shadow_of
from tableferry.resources.write_modes import WriteMode

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


def test_staging_is_a_heap() -> None:
    assert STATEMENTS.create_staging(PLAN, STAGING) == (
        'CREATE TABLE "shop]s"."stage" ("id" bigint NOT NULL, "note" nvarchar(40) NULL)'
    )


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
    assert f'"price" {staged} NOT NULL' in STATEMENTS.create_staging(plan, STAGING)


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


@pytest.mark.parametrize("schema", ["dbo", "Één", 'a"]b'])
def test_what_babelfish_would_not_find_is_copied_to_be_kept(schema: str) -> None:
    staging = replace(STAGING, schema=schema)
    kept = replace(staging, name="stage_rejected")
    statements = STATEMENTS.keep(PLAN, staging, kept)
    if schema == "dbo":
        assert statements == [STATEMENTS.rename(staging, kept.name)]
    else:
        assert statements[2:4] == [
            STATEMENTS.create_staging(PLAN, kept),
            STATEMENTS.insert_all(PLAN, kept, staging),
        ]
        assert (*statements[:2], statements[4]) == (*STATEMENTS.begin, STATEMENTS.commit)


@pytest.mark.parametrize("babelfish", [True, False])
@pytest.mark.parametrize(
    ("odd", "says"),
    [({"name": "Één"}, "small letters of É"), ({"schema": 'a"]b'}, 'no schema with both " and ]')],
)
def test_a_swap_that_babelfish_would_not_find_is_refused(
    odd: dict[str, str], says: str, babelfish: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(_: SqlServerResource, sql: str) -> list[tuple[int | None]]:
        asked.append(sql)
        return [(1 if babelfish else None,)]

    monkeypatch.setattr(SqlServerResource, "query", answer)
    target = SqlServerTarget(SqlServerResource(url="mssql://sa:secret@host/shop"))
    swap, plan = TargetOptions(mode=WriteMode.SWAP), replace(PLAN, target=replace(TARGET, **odd))
    target.require(PLAN, swap)
    target.require(plan, TargetOptions())
    assert not asked
    with pytest.raises(InputError, match=says) if babelfish else nullcontext():
        target.require(plan, swap)
    assert len(asked) == 1
