"""The text of the ClickHouse target's statements."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.clickhouse.ddl import create_table, not_in, partition
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.target_names import shadow_of
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


def test_created_table_is_partitioned_by_the_hidden_column() -> None:
    assert create_table(PLAN, TargetOptions()) == (
        "CREATE TABLE `shop`.`orders` (`id` Int64, `day` Nullable(Date32), "
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


def test_range_numbers_depend_on_the_name_only() -> None:
    # stored in users' tables: another number for the same name would orphan their partitions
    assert partition(KeyRange("integer", 1, 250001)) == "PARTITION ID '16250705925569238897'"
    assert partition(KeyRange("integer", null=True)) == "PARTITION ID '8320033950756688494'"


def test_rows_are_told_apart_by_the_primary_key_if_all_of_it_travels() -> None:
    assert PLAN.row_identity == ("id",)
    assert replace(PLAN, primary_key=("id", "left behind")).row_identity == ()
    assert not_in(replace(PLAN, primary_key=("id", "day")), "t") == (
        "(`id`, `day`) NOT IN (SELECT `id`, `day` FROM t WHERE 1)"
    )


@given(st.text(min_size=1, max_size=300))
def test_shadow_names_fit_and_differ(name: str) -> None:
    shadow = shadow_of(replace(TARGET, name=name))
    assert len(shadow.name) <= 128
    assert shadow.name.endswith("__ferry_shadow")
    assert shadow_of(replace(TARGET, name=name + "x")) != shadow
