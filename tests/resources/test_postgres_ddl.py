"""The text of the PostgreSQL target's statements."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.contract.target_options import TargetOptions, WriteMode
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.ddl import STATEMENTS
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

SOURCE = TableRef("postgres", "public", "orders")
TARGET = TableRef("postgres", "o's", "orders")
STAGING = TableRef("postgres", "o's", "stage")


def column(name: str, type_: str, nullable: bool = False, collation: str = "") -> ColumnPlan:
    declared = Column(name, type_, nullable=nullable, collation=collation)
    return ColumnPlan(declared, declared, name, pa.string())


def plan(key: ColumnPlan, *others: ColumnPlan, primary_key: tuple[str, ...]) -> CopyPlan:
    return CopyPlan(SOURCE, TARGET, (key, *others), key, primary_key)


ID, NOTE = column("id", "bigint"), column("note", "text", nullable=True)
PLAN = plan(ID, NOTE, primary_key=("id",))

INDEXES = {
    "key is the primary key": (PLAN, '"id"', None),
    "no primary key": (plan(ID, primary_key=()), None, '("id")'),
    "key second": (plan(ID, column("n", "int"), primary_key=("n", "id")), '"n", "id"', '("id")'),
    "nullable": (plan(column("id", "int", True), primary_key=("id",)), None, '("id")'),
    "text": (
        plan(column("id", "varchar(9)"), primary_key=("id",)),
        '"id"',
        '(("id" COLLATE "C"))',
    ),
    "short text outside of the primary key": (
        plan(column("id", "varchar(675)"), primary_key=()),
        None,
        '(("id" COLLATE "C"))',
    ),
    "text that may be too long": (plan(column("id", "text"), primary_key=()), None, None),
}


@pytest.mark.parametrize("case", INDEXES)
def test_primary_key_and_index(case: str) -> None:
    planned, primary_key, index = INDEXES[case]
    create, *others = STATEMENTS.create_table(planned, TARGET)
    assert ("PRIMARY KEY" in create) == (primary_key is not None)
    assert primary_key is None or f"PRIMARY KEY ({primary_key})" in create
    assert others == ([f'CREATE INDEX ON "o\'s"."orders" {index}'] if index else [])


def test_staging_is_unlogged_and_orders_a_text_key_by_bytes() -> None:
    (create,) = STATEMENTS.create_staging(PLAN, STAGING)
    assert create.startswith('CREATE UNLOGGED TABLE "o\'s"."stage" ("id" bigint NOT NULL, ')
    (create,) = STATEMENTS.create_staging(plan(column("id", "text"), primary_key=()), STAGING)
    assert '("id" text COLLATE "C" NOT NULL)' in create
    assert "COLLATE" not in STATEMENTS.create_table(PLAN, TARGET)[0]


def test_a_text_key_is_compared_by_bytes_and_a_type_by_its_own_operator() -> None:
    text = plan(column("id", "text"), primary_key=("id",))
    assert STATEMENTS.same_row(text) == 'ferry__t."id" = ferry__s."id" COLLATE "C"'
    citext = plan(column("id", "ext.citext"), primary_key=("id",))
    assert STATEMENTS.same_row(citext) == 'ferry__t."id" OPERATOR(ext.=) ferry__s."id"'


@pytest.mark.parametrize(
    ("mode", "verbs"),
    [
        ("replace", ["DELETE", "INSERT"]),
        ("swap", ["DELETE", "INSERT"]),
        ("append", ["INSERT"]),
        ("upsert", ["UPDATE", "INSERT"]),
    ],
)
def test_rows_are_published_by_mode(mode: str, verbs: list[str]) -> None:
    options = TargetOptions(mode=WriteMode(mode))
    low = Publication(PLAN, KeyRange("integer", None, 10), "1", "run")
    published = STATEMENTS.publish(low, options, TARGET, STAGING)
    statements = [*published.removes, *published.updates, *published.inserts]
    assert [statement.split()[0] for statement in statements] == verbs
    assert all("OVERRIDING SYSTEM VALUE" in text for text in statements if "INSERT" in text)
    assert ("NOT EXISTS" in statements[-1]) == (mode in ("append", "upsert"))
    keys = replace(PLAN, columns=(ID,))
    keyed = STATEMENTS.publish(replace(low, plan=keys), options, TARGET, STAGING)
    assert not keyed.updates, "there is nothing to update"


def test_names_are_quoted_where_statements_look_tables_up() -> None:
    assert "c.relname IN ('orders', 'o''s')" in STATEMENTS.object_ids("o's", ["orders", "o's"])
    assert STATEMENTS.rename(TARGET, 'x"') == 'ALTER TABLE "o\'s"."orders" RENAME TO "x"""'
    drop, rename = STATEMENTS.put_in_place(shadow_of(TARGET), TARGET)
    assert drop == 'DROP TABLE "o\'s"."orders"' and rename.endswith('RENAME TO "orders"')
    limit, lift = STATEMENTS.limit_waiting(30)
    assert "'lock_timeout', '30s', true" in limit and "'lock_timeout', '600000', true" in lift
