"""Compares a published range with what was audited in staging.

ClickHouse has no transactions to undo a publication, so hard links keep the earlier partition, and
it is restored if need be.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tableferry.resources.clickhouse.ddl import not_in, partition
from tableferry.resources.clickhouse.locks import HeldRange
from tableferry.resources.clickhouse.replaced import let_go_ranges
from tableferry.resources.contract.hazards import present
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.digest.same_rows import SameRows, Summed, differs

BEFORE = "_before"
"""Suffix of the staging table's name for the table that keeps the earlier partition."""


@dataclass
class PartitionAudit:
    """The comparison of one range."""

    load: HeldRange
    condition: str
    """The condition that a row of the table is in the range."""
    same: SameRows = field(init=False)

    def __post_init__(self) -> None:
        load = self.load
        staging, columns = load.staging_table, load.resource.columns(load.table)
        self.same = SameRows.of(load.resource, load.plan, staging, load.table, columns)

    @property
    def _before(self) -> str:
        return f"{self.load.staging}{BEFORE}"

    @contextmanager
    def around(self) -> Iterator[None]:
        """Keep what the range shows, until the attempt's end; compare once it is published, and
        restore the earlier range if what it shows differs from what was audited.

        Raises:
            ShownDiffers: it does.
        """
        load, ask = self.load, self.load.resource.query
        beside = Summed(0, 0)
        if load.atomic:
            load.resource.execute(
                f"CREATE TABLE {qualified(load.table, self._before)} AS {qualified(load.table)} "
                f"COMMENT {load.owner.comment()}"
            )
            load.resource.execute(
                f"ALTER TABLE {qualified(load.table, self._before)} "
                f"ATTACH {partition(load.key_range)} FROM {qualified(load.table)}"
            )
        elif load.options.mode.updates_known:
            staged = qualified(load.staging_table)
            # without a partition per range, other rows stay beside the staged ones
            kept = f"({self.condition}) AND {not_in(load.plan, staged)}"
            beside = self.same.shown(ask, kept)
        yield
        expected = self.same.staged(ask).plus(beside)
        shown = self.same.shown(ask, self.condition)
        if shown != expected:
            comparable = beside.rows == 0 and shown.rows == expected.rows
            columns = self.same.differing(ask, self.condition) if comparable else []
            outcome = "it has its rows of before again" if load.atomic else "it is left so"
            if load.atomic:
                self._restore()
            raise differs(
                expected, shown, columns, present(load.look, load.options.hazards), outcome
            )

    def _restore(self) -> None:
        load, table = self.load, qualified(self.load.table)
        kept = qualified(load.table, self._before)
        rows = load.resource.query(f"SELECT count() FROM {kept}")[0][0]
        # newer servers refuse REPLACE PARTITION from an empty table
        load.resource.execute(
            f"ALTER TABLE {table} REPLACE {partition(load.key_range)} FROM {kept}"
            if rows
            else f"ALTER TABLE {table} DROP {partition(load.key_range)}"
        )
        let_go_ranges(load.resource, load.table, [load.key_range])
