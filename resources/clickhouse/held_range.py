"""A key range that an attempt holds, and its staging table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tableferry.resources.clickhouse.ddl import Owner
from tableferry.resources.clickhouse.markers import RangeMarker
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Look
from tableferry.resources.contract.target import TargetOptions
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef


@dataclass
class HeldRange:
    """A key range that nobody else loads now, and where its rows are staged."""

    resource: ClickHouseServer
    plan: CopyPlan
    key_range: KeyRange
    options: TargetOptions
    table: TableRef
    """What is written to: the target, or with `swap` its shadow."""
    lock: str
    staging: str
    owner: Owner
    data_version: str
    marker: RangeMarker
    atomic: bool
    """Whether the table has one partition per key range."""
    look: Look
    """What of `table` may change rows that are published, asked anew."""

    @property
    def staging_table(self) -> TableRef:
        """Where the rows of the range are staged."""
        return replace(self.table, name=self.staging)
