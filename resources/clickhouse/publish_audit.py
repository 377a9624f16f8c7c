"""What a range shows once it is published, compared with what was audited in staging.

ClickHouse has no transactions that would undo a publication: the partition as it was before is kept
by hard links, and put back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tableferry.resources.clickhouse.ddl import not_in, partition
from tableferry.resources.clickhouse.held_range import HeldRange
from tableferry.resources.contract.dialects import qualified
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.digest.same_rows import SameRows, Summed, differs
from tableferry.resources.errors import TableferryError

BEFORE = "_before"
"""What is added to the staging table's name for the partition as it was."""


@dataclass
class PublishAudit:
    """The comparison of one range; `before` and `after` are called around its publication."""

    load: HeldRange
    condition: str
    """Of a row of the table that is in the range."""
    same: SameRows = field(init=False)
    _kept: Summed = field(default=Summed(0, 0), init=False)
    """Rows that stay beside the staged ones, in a table that is not written by partitions."""

    def __post_init__(self) -> None:
        load = self.load
        staging, columns = load.staging_table, load.resource.columns(load.table)
        self.same = SameRows.of(load.resource, load.plan, staging, load.table, columns)

    @property
    def _before(self) -> str:
        return f"{self.load.staging}{BEFORE}"

    def before(self) -> None:
        """Keep what the range shows now. Nothing is published yet.

        The attempt's end drops it.
        """
        load = self.load
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
            kept = f"({self.condition}) AND {not_in(load.plan, staged)}"
            self._kept = self.same.shown(load.resource.query, kept)

    def after(self) -> None:
        """Compare, and put the range back as it was if it is not as it was audited.

        Raises:
            ShownDiffers: it is not.
        """
        load, ask = self.load, self.load.resource.query
        expected = self.same.staged(ask).plus(self._kept)
        shown = self.same.shown(ask, self.condition)
        if shown != expected:
            alike = self._kept.rows == 0 and shown.rows == expected.rows
            columns = self.same.differing(ask, self.condition) if alike else []
            outcome = "it has its rows of before again" if load.atomic else "it is left so"
            if load.atomic:
                self._put_back()
            raise differs(expected, shown, columns, self._hazards(), outcome)

    def _put_back(self) -> None:
        load, table = self.load, qualified(self.load.table)
        kept = qualified(load.table, self._before)
        rows = load.resource.query(f"SELECT count() FROM {kept}")[0][0]
        # REPLACE PARTITION out of an empty table is refused by newer servers
        load.resource.execute(
            f"ALTER TABLE {table} REPLACE {partition(load.key_range)} FROM {kept}"
            if rows
            else f"ALTER TABLE {table} DROP {partition(load.key_range)}"
        )

    def _hazards(self) -> Sequence[Hazard]:
        """Those of now: some may be newer than the plan."""
        with suppress(TableferryError):
            return self.load.look()
        return self.load.options.hazards
