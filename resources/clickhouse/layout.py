"""A table's engine, identity and partitioning, and its shadow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tableferry.resources.clickhouse.dialect import literal
from tableferry.resources.clickhouse.locks import Owner, read_owner
from tableferry.resources.clickhouse.server import RANGE_COLUMN, ClickHouseServer, among
from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target import shadow_of
from tableferry.resources.contract.target_columns import verify_columns
from tableferry.resources.tables import TableRef


@dataclass(frozen=True)
class Layout:
    """Properties of a table from `system.tables`."""

    engine: str
    uuid: str
    atomic: bool
    """Whether it has one partition per key range, like the tables that we create."""


def layout_of(resource: ClickHouseServer, table: TableRef) -> Layout | None:
    """The layout of a table; None if it does not exist."""
    return layouts_of(resource, [table]).get(table)


def layouts_of(resource: ClickHouseServer, tables: Sequence[TableRef]) -> dict[TableRef, Layout]:
    """Return the layouts of tables of one database, without tables that do not exist."""
    rows = resource.query(
        "SELECT name, engine, toString(uuid), partition_key, "
        f"position(create_table_query, '`{RANGE_COLUMN}` UInt64 MATERIALIZED ') "
        f"FROM system.tables WHERE {among(tables)}"
    )
    layouts = {
        name: Layout(engine, identity, bool(hidden) and partition_key == RANGE_COLUMN)
        for name, engine, identity, partition_key, hidden in rows
    }
    return {table: layouts[table.name] for table in tables if table.name in layouts}


def ensure_shadow(resource: ClickHouseServer, plan: CopyPlan, layout: Layout) -> None:
    """Create a shadow with all rows of the target, so that it also has the ranges that are skipped.

    It is filled under another name, so that a shadow of the right name is always complete.
    Attaching partitions links their files and copies nothing.
    """
    target, shadow = plan.target, shadow_of(plan.target)
    if layout_of(resource, shadow):
        if is_current(resource, shadow, layout):
            return verify_columns(plan, resource.columns(shadow), incompatibility)
        resource.execute(drop_table(shadow, shadow.name))
    filling = f"{shadow.name}_filling"
    resource.execute(drop_table(shadow, filling))
    resource.execute(
        f"CREATE TABLE {qualified(shadow, filling)} AS {qualified(target)} "
        f"COMMENT {Owner(replaces=layout.uuid).comment()}"
    )
    for (identity,) in resource.query(
        f"SELECT DISTINCT partition_id FROM system.parts WHERE active "
        f"AND database = {literal(target.schema)} AND table = {literal(target.name)}"
    ):
        resource.execute(
            f"ALTER TABLE {qualified(shadow, filling)} "
            f"ATTACH PARTITION ID {literal(identity)} FROM {qualified(target)}"
        )
    resource.execute(f"RENAME TABLE {qualified(shadow, filling)} TO {qualified(shadow)}")


def is_current(resource: ClickHouseServer, shadow: TableRef, target: Layout) -> bool:
    """Whether a shadow was made to replace the present target."""
    owner = read_owner(resource, shadow, shadow.name)
    return owner is not None and owner.replaces == target.uuid
