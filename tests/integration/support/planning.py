"""Plans of tables that a test makes up."""

from __future__ import annotations

from collections.abc import Collection

from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import TypeRefused
from tableferry.resources.tables import TableRef


def plan_of(source: Endpoint, table: TableRef, exclude: Collection[str] = ()) -> CopyPlan:
    """The way to ClickHouse, of columns that have none as text."""
    columns = source.columns(table)
    target = TableRef("clickhouse", "warehouse", "t")
    overrides: dict[str, ColumnOverride] = {}
    for column in columns[1:]:
        try:
            plan_copy(table, [columns[0], column], target, key=columns[0].name)
        except TypeRefused:
            overrides[column.name] = ColumnOverride(type="String")
    return plan_copy(
        table, columns, target, key=columns[0].name, overrides=overrides, exclude=exclude
    )
