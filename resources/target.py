"""What a load target is: prepare the table, load a range out of sight, make it visible at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from resources.delimited import Framing
from resources.errors import InputError
from resources.files import Artifact
from resources.keyrange import KeyRange
from resources.plan import CopyPlan, WriteMode
from resources.tables import TableRef

Alive = Callable[[str], bool]
"""Tells whether the run that wrote its id into a staging table still lives."""

SHADOW, DIGEST = "__ferry_shadow", 12


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
    framing: Framing | None = None
    """SQL Server only: the terminators in the text of this attempt."""
    settings: Mapping[str, str | int] = field(default_factory=dict)
    """ClickHouse only: settings of the insert, on top of our own."""


@dataclass(frozen=True)
class LoadReceipt:
    """What one load handed over: rows, and bytes as they were sent (Arrow buffers or text)."""

    rows: int
    bytes: int
    artifacts: tuple[Artifact, ...] = ()
    """The files that the rows went through, if any."""


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

    def require(self, plan: CopyPlan, options: TargetOptions) -> None:
        """Refuse what `prepare` could not do, without changing anything.

        Raises:
            InputError: the plan and the write mode do not go together, or what the table is to be
                created in, or with, is not there.
        """

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

    def identity(self, table: TableRef) -> str | None:
        """What a table keeps for life, whatever it is called; None if there is no such table.

        It tells whether a shadow has become the target, without a mark that could be forgotten.
        """

    def promote(self, plan: CopyPlan, options: TargetOptions) -> None:
        """`swap` only: put the shadow table in the target's place, and drop the old one.

        Repeating it is harmless: without a shadow table there is nothing to do.
        """

    def retire(
        self,
        plan: CopyPlan,
        ranges: Sequence[KeyRange],
        into: Sequence[KeyRange],
        options: TargetOptions,
    ) -> None:
        """Forget ranges that others now cover. Call it before those are loaded.

        Args:
            plan: the hop.
            ranges: the ranges that are no more.
            into: the ranges in their place.
            options: as given to `prepare`.
        """

    def clean(self, target: TableRef, alive: Alive = nobody_else) -> list[str]:
        """Drop what dead owners left of this target; returns the names of the dropped tables."""

    def range_rows(self, plan: CopyPlan, key_range: KeyRange, options: TargetOptions) -> int:
        """Rows of the range in the table that is written to now: with `swap`, in the shadow."""


def shadow_of(table: TableRef) -> TableRef:
    """The table that collects all ranges of a `swap`, until it takes the target's place."""
    # 128 is SQL Server's limit; ClickHouse's is the file system's 255 bytes
    room = 128 - len(SHADOW) - DIGEST
    name = table.name
    if len(name) > room:
        name = f"{name[:room]}{hashlib.blake2b(name.encode(), digest_size=DIGEST // 2).hexdigest()}"
    return replace(table, name=name + SHADOW)


def written_to(plan: CopyPlan, options: TargetOptions) -> TableRef:
    """The table that finalised ranges go to: the target, or with `swap` its shadow."""
    return shadow_of(plan.target) if options.mode == "swap" else plan.target


def row_identity(plan: CopyPlan) -> tuple[str, ...]:
    """Target columns that tell one row from another, for `append` and `upsert`; empty if unknown.

    They are the source's primary key, if all of it travels.
    """
    names = {column.name for column in plan.target_columns}
    return plan.primary_key if plan.primary_key and names.issuperset(plan.primary_key) else ()


def check_mode(plan: CopyPlan, options: TargetOptions) -> None:
    """Refuse a write mode that needs to tell rows apart where nothing does.

    Raises:
        InputError: `upsert` without a primary key.
    """
    if options.mode == "upsert" and not row_identity(plan):
        raise InputError(f"{plan.source}: upsert needs a primary key whose columns all travel")
