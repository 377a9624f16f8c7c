"""The text of the ClickHouse target's statements."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.clickhouse.ddl import (
    Owner,
    create_table,
    not_in,
    partition,
    range_hash,
)
from tableferry.resources.clickhouse.nullable import declared_type, split_type
from tableferry.resources.clickhouse.staging import defined_image, planned_image, staging_table
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.target import TargetOptions, row_identity, shadow_of
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

SOURCE = TableRef("postgres", "public", "orders")
TARGET = TableRef("clickhouse", "shop", "orders")


def _column(name: str, type_: str, nullable: bool = False) -> ColumnPlan:
    column = Column(name, type_, nullable=nullable)
    return ColumnPlan(column, column, name, pa.string())


KEY = _column("day", "Date32", nullable=True)
PLAN = CopyPlan(
    SOURCE,
    TARGET,
    (_column("id", "Int64"), KEY, _column("note", "LowCardinality(String)", nullable=True)),
    KEY,
    ("id",),
)


def test_created_table_is_partitioned_by_the_hidden_column() -> None:
    assert create_table(PLAN, TargetOptions()) == (
        "CREATE TABLE IF NOT EXISTS `shop`.`orders` (`id` Int64, `day` Nullable(Date32), "
        "`note` LowCardinality(Nullable(String)), _range UInt64 MATERIALIZED 0) "
        "ENGINE = MergeTree PARTITION BY _range ORDER BY (`day`, `id`) "
        "SETTINGS allow_nullable_key = 1"
    )


def test_engine_order_and_partitioning_can_be_chosen() -> None:
    options = TargetOptions(
        engine="ReplacingMergeTree(version)", order_by="tuple()", partition_by="toYYYYMM(day)"
    )
    statement = create_table(PLAN, options)
    assert "_range" not in statement
    assert statement.endswith(
        "ENGINE = ReplacingMergeTree(version) PARTITION BY toYYYYMM(day) "
        "ORDER BY tuple() SETTINGS allow_nullable_key = 1"
    )


def test_no_partitioning_at_all() -> None:
    statement = create_table(PLAN, TargetOptions(partition_by=""))
    assert "PARTITION" not in statement
    assert "_range" not in statement


@pytest.mark.parametrize("name", ["_range", "_part"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    plan = replace(PLAN, columns=(*PLAN.columns, _column(name, "Int8")))
    with pytest.raises(InputError, match=f"rename the column '{name}'"):
        create_table(plan, TargetOptions())


def test_staging_fills_the_hidden_column_by_its_default() -> None:
    key_range = KeyRange("integer", 1, 9)
    create, alter = staging_table(TARGET, "stage", Owner("run-1", "t"), key_range)
    assert create.startswith("CREATE TABLE `shop`.`stage` AS `shop`.`orders` COMMENT 'tableferry:")
    assert f"MODIFY COLUMN _range UInt64 MATERIALIZED {range_hash(key_range)}," in alter


DEFINITION = r"""CREATE TABLE shop.`or\nders`
(
    `id` Int64 COMMENT 'a\nb',
    `_range` UInt64 MATERIALIZED 0,
    INDEX small id TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY _range
ORDER BY id
SETTINGS allow_nullable_key = 1, index_granularity = 8192
COMMENT 'of the shop'
"""


def test_with_an_image_the_staging_table_is_one_statement() -> None:
    key_range, owner = KeyRange("integer", 1, 9), Owner("run-1", "t")
    number = range_hash(key_range)
    defined = staging_table(TARGET, "stage", owner, key_range, defined_image(DEFINITION))
    assert defined == [
        rf"""CREATE TABLE `shop`.`stage` (
    `id` Int64 COMMENT 'a\nb',
    `_range` UInt64 MATERIALIZED {number},
    INDEX small id TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY _range
ORDER BY id
SETTINGS allow_nullable_key = 1, index_granularity = 8192, """
        f"non_replicated_deduplication_window = 1000 COMMENT {owner.comment()}"
    ]
    image = planned_image(PLAN, TargetOptions())
    assert staging_table(TARGET, "stage", owner, key_range, image) == [
        "CREATE TABLE `shop`.`stage` (`id` Int64, `day` Nullable(Date32), "
        f"`note` LowCardinality(Nullable(String)), _range UInt64 MATERIALIZED {number}) "
        "ENGINE = MergeTree PARTITION BY _range ORDER BY (`day`, `id`) SETTINGS "
        "allow_nullable_key = 1, non_replicated_deduplication_window = 1000 "
        f"COMMENT {owner.comment()}"
    ]


@pytest.mark.parametrize(
    ("written", "otherwise"),
    [
        ("MATERIALIZED 0", "MATERIALIZED id % 7"),
        ("MATERIALIZED 0", "MATERIALIZED 0 CODEC(ZSTD(1))"),
        ("ENGINE = MergeTree", "ENGINE = ReplicatedMergeTree('/{shard}/orders', '{replica}')"),
        ("ENGINE = MergeTree", "ENGINE = SharedMergeTree('/orders', '{replica}')"),
        ("SETTINGS allow_nullable_key", "SETTINGS non_replicated_deduplication_window = 5, x"),
        ("SETTINGS", "TTL day SETTINGS"),
    ],
)
def test_of_another_definition_there_is_no_image(written: str, otherwise: str) -> None:
    assert written in DEFINITION
    assert defined_image(DEFINITION.replace(written, otherwise)) == ()


@pytest.mark.parametrize(
    "options",
    [
        TargetOptions(partition_by="toYYYYMM(day)"),
        TargetOptions(engine="ReplicatedMergeTree('/{shard}/orders', '{replica}')"),
    ],
)
def test_of_another_plan_there_is_no_image(options: TargetOptions) -> None:
    assert planned_image(PLAN, options) == ()


def test_range_numbers_depend_on_the_name_only() -> None:
    # stored in users' tables: another number for the same name would orphan their partitions
    assert partition(KeyRange("integer", 1, 250001)) == "PARTITION ID '16250705925569238897'"
    assert partition(KeyRange("integer", null=True)) == "PARTITION ID '8320033950756688494'"


def test_rows_are_told_apart_by_the_primary_key_if_all_of_it_travels() -> None:
    assert row_identity(PLAN) == ("id",)
    assert row_identity(replace(PLAN, primary_key=("id", "left behind"))) == ()
    assert not_in(replace(PLAN, primary_key=("id", "day")), "t") == (
        "(`id`, `day`) NOT IN (SELECT `id`, `day` FROM t WHERE 1)"
    )


@given(st.text(), st.text(), st.text())
def test_owner_survives_the_comment(run: str, token: str, replaces: str) -> None:
    owner = Owner(run, token, replaces)
    literal = owner.comment()
    # undo what ClickHouse's parser undoes
    text = literal[1:-1].replace("\\'", "'").replace("\\\\", "\\")
    assert Owner.read(text) == owner


@pytest.mark.parametrize("comment", ["", "orders of the shop", "tableferry:", "tableferry:{}"])
def test_foreign_comment_has_no_owner(comment: str) -> None:
    assert Owner.read(comment) == Owner()


@pytest.mark.parametrize(
    ("declared", "type_", "nullable"),
    [
        ("Int64", "Int64", False),
        ("Nullable(DateTime64(6, 'UTC'))", "DateTime64(6, 'UTC')", True),
        ("LowCardinality(String)", "LowCardinality(String)", False),
        ("LowCardinality(Nullable(String))", "LowCardinality(String)", True),
        ("Array(Nullable(Int32))", "Array(Nullable(Int32))", False),
    ],
)
def test_nullable_is_folded_out_and_in(declared: str, type_: str, nullable: bool) -> None:
    assert split_type(declared) == (type_, nullable)
    assert declared_type(Column("x", type_, nullable=nullable)) == declared


def test_arrays_cannot_be_nullable() -> None:
    assert declared_type(Column("x", "Array(Int32)", nullable=True)) == "Array(Int32)"


@given(st.text(min_size=1, max_size=300))
def test_shadow_names_fit_and_differ(name: str) -> None:
    shadow = shadow_of(replace(TARGET, name=name))
    assert len(shadow.name) <= 128
    assert shadow.name.endswith("__ferry_shadow")
    assert shadow_of(replace(TARGET, name=name + "x")) != shadow
