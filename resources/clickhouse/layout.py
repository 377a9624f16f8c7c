"""What a table of ClickHouse is: its engine, its identity, its partitions; and its shadow."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.resources.clickhouse.ddl import Owner
from tableferry.resources.clickhouse.dialect import DIALECT
from tableferry.resources.clickhouse.load import read_owner
from tableferry.resources.clickhouse.server import RANGE_COLUMN, ClickHouseServer
from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.dialects import drop_table, qualified
from tableferry.resources.contract.target import shadow_of
from tableferry.resources.contract.target_columns import verify_columns
from tableferry.resources.tables import TableRef


@dataclass(frozen=True)
class Layout:
    """What `system.tables` says of a table."""

    engine: str
    uuid: str
    atomic: bool
    """Whether it has one partition per key range, as the tables that we create."""


def layout_of(resource: ClickHouseServer, table: TableRef) -> Layout | None:
    """The layout of a table; None if it is not there."""
    rows = resource.query(
        "SELECT engine, toString(uuid), partition_key, "
        f"position(create_table_query, '`{RANGE_COLUMN}` UInt64 MATERIALIZED ') "
        f"FROM system.tables WHERE database = {_text(table.schema)} "
        f"AND name = {_text(table.name)}"
    )
    if not rows:
        return None
    engine, identity, partition_key, hidden = rows[0]
    return Layout(engine, identity, bool(hidden) and partition_key == RANGE_COLUMN)


def ensure_shadow(resource: ClickHouseServer, plan: CopyPlan, layout: Layout) -> None:
    """Make a shadow that holds all of the target, so that ranges that are skipped are in it too.

    It is filled under another name first: a shadow of the right name is always complete.
    Attaching partitions links their files, and copies nothing.
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
        f"AND database = {_text(target.schema)} AND table = {_text(target.name)}"
    ):
        resource.execute(
            f"ALTER TABLE {qualified(shadow, filling)} "
            f"ATTACH PARTITION ID {_text(identity)} FROM {qualified(target)}"
        )
    resource.execute(f"RENAME TABLE {qualified(shadow, filling)} TO {qualified(shadow)}")


def is_current(resource: ClickHouseServer, shadow: TableRef, target: Layout) -> bool:
    """Whether a shadow is to take the place of the target that is there."""
    owner = read_owner(resource, shadow, shadow.name)
    return owner is not None and owner.replaces == target.uuid


def _text(value: str) -> str:
    return DIALECT.literal(value)
