"""What a load target is: prepare the table, load a range out of sight, make it visible at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from resources.keyrange import KeyRange
from resources.plan import CopyPlan, WriteMode
from resources.tables import TableRef

Alive = Callable[[str], bool]
"""Tells whether the run that wrote its id into a staging table still lives."""


def nobody_else(owner: str) -> bool:
    """The `Alive` of a caller that knows itself alone: whatever lies about is a dead run's."""
    return False


@dataclass(frozen=True)
class TargetOptions:
    """How a transfer writes. Nothing in here changes a value, only where and how fast it lands."""

    mode: WriteMode = "replace"
    engine: str | None = None
    """ClickHouse only: the engine of a table that we create, e.g. `ReplacingMergeTree(version)`."""
    order_by: str | None = None
    """ClickHouse only: sorting key of a table that we create, as SQL without the keyword."""
    partition_by: str | None = None
    """ClickHouse only: partitioning of a table that we create. It costs the atomic finalise."""
    batch_rows: int = 65536
    """Rows per batch of a SQL Server bulk copy; a ClickHouse insert streams and has no batches."""
    table_lock: bool = True
    """SQL Server only: TABLOCK for the bulk copy into the staging table, the attempt's own."""
    settings: Mapping[str, str | int] = field(default_factory=dict)
    """ClickHouse only: settings of the insert, on top of our own."""


@dataclass(frozen=True)
class LoadReceipt:
    """What one load handed over: rows, and bytes as they were sent (Arrow buffers or text).

    `rows` is None where nobody on the way counts them; the server's count of the staging table is
    what is compared then.
    """

    rows: int | None
    bytes: int


class RangeLoad(Protocol):
    """One attempt on one key range: a staging table that only this attempt writes."""

    def load_arrow(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema | None = None
    ) -> LoadReceipt:
        """Stream batches with the plan's target columns, in its order, into the staging table."""

    def load_text(self, chunks: Iterator[bytes]) -> LoadReceipt:
        """Stream text rows in the target's own format into the staging table."""

    def staged_rows(self) -> int:
        """Rows in the staging table, counted by the server."""

    def finalise(self) -> None:
        """Make the range visible: all of it at once or nothing, however often it is repeated.

        Raises:
            ReceiptMismatch: the staging table does not hold the rows that were sent.
            RangeBusy: another run took the range over in the meantime.
        """


class Target(Protocol):
    """A database that ranges are loaded into."""

    def prepare(self, plan: CopyPlan, options: TargetOptions) -> list[str]:
        """Create the target table if it is missing, else verify that it takes the plan's columns.

        Returns:
            Notes for the user, one sentence each, e.g. that the finalise cannot be atomic.

        Raises:
            SchemaDrift: the table exists and differs; the message shows the difference.
            InputError: the table and the write mode do not go together.
        """

    def attempt(
        self,
        plan: CopyPlan,
        key_range: KeyRange,
        options: TargetOptions,
        *,
        owner: str,
        data_version: str,
        alive: Alive = nobody_else,
    ) -> AbstractContextManager[RangeLoad]:
        """Hold the range and a fresh staging table for it; both are gone on exit.

        Args:
            plan: the hop, as given to `prepare`.
            key_range: the rows to load.
            options: as given to `prepare`.
            owner: id of the run; the same run may take its own leftovers over.
            data_version: fingerprint of the rows to load; part of the insert's dedup token.
            alive: whether another owner still lives; a dead one's staging is removed.

        Raises:
            RangeBusy: a live other owner holds the range.
        """

    def promote(self, plan: CopyPlan) -> None:
        """`swap` only: put the shadow table in the target's place, and drop the old one.

        Repeating it is harmless: without a shadow table there is nothing to do.
        """

    def retire(self, plan: CopyPlan, ranges: Sequence[KeyRange], options: TargetOptions) -> None:
        """Forget ranges that others now cover. Call it before those are loaded."""

    def clean(self, target: TableRef, alive: Alive = nobody_else) -> list[str]:
        """Drop what dead owners left of this target; returns the names of the dropped tables."""

    def range_rows(self, plan: CopyPlan, key_range: KeyRange) -> int:
        """Rows of the range that the target shows now."""
