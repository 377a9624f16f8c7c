"""How a staging table is made in the image of its table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tableferry.resources.clickhouse.ddl import (
    defined_image,
    planned_image,
    range_hash,
    staging_table,
)
from tableferry.resources.clickhouse.locks import Owner
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

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
        ("SETTINGS allow_nullable_key", "SETTINGS non_replicated_deduplication_window = 5, x"),
        ("SETTINGS", "TTL day SETTINGS"),
    ],
)
def test_of_another_definition_there_is_no_image(written: str, otherwise: str) -> None:
    assert written in DEFINITION
    assert defined_image(DEFINITION.replace(written, otherwise)) == ()


def test_a_replicated_table_has_its_path_in_keeper_for_itself() -> None:
    for engine, alike in (
        ("ReplicatedMergeTree('/{shard}/orders', '{replica}')", "ReplicatedMergeTree"),
        ("SharedMergeTree('/orders', '{replica}')", "SharedMergeTree"),
        (
            "ReplicatedSummingMergeTree('/orders', 'r', (a, b))",
            "ReplicatedSummingMergeTree((a, b))",
        ),
        ("ReplicatedMergeTree", "ReplicatedMergeTree"),
    ):
        defined = defined_image(DEFINITION.replace("= MergeTree", f"= {engine}"))
        assert f")\nENGINE = {alike}\nPARTITION BY _range" in defined[-1]
        planned = planned_image(PLAN, TargetOptions(engine=engine))
        assert planned[-1].startswith(f") ENGINE = {alike} PARTITION BY _range")


def test_of_a_partitioning_that_is_declared_there_is_no_image() -> None:
    assert planned_image(PLAN, TargetOptions(partition_by="toYYYYMM(day)")) == ()
