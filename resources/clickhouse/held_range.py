"""A key range that an attempt holds, and its staging table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tableferry.resources.clickhouse.locks import Owner
from tableferry.resources.clickhouse.markers import RangeMarker
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Look
from tableferry.resources.contract.target import TargetOptions
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef


@dataclass
class HeldRange:
    """A key range whose lock an attempt holds."""

    resource: ClickHouseServer
    plan: CopyPlan
    key_range: KeyRange
    options: TargetOptions
    table: TableRef
    """The table that is written to: the target, or with `swap` its shadow."""
    lock: str
    staging: str
    owner: Owner
    data_version: str
    marker: RangeMarker
    atomic: bool
    """Whether the table has one partition per key range."""
    look: Look

    @property
    def staging_table(self) -> TableRef:
        """The staging table of the range."""
        return replace(self.table, name=self.staging)
