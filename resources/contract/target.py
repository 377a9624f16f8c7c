"""What a load target is: prepare the table, load a range out of sight, make it visible at once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from tableferry.resources.artifacts import Artifact
from tableferry.resources.contract.copy_plan import CopyPlan, Format
from tableferry.resources.contract.delimited import Framing
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import Hazard, PublishAudit, having
from tableferry.resources.contract.markers import Publication, Published
from tableferry.resources.contract.write_modes import WriteMode
from tableferry.resources.errors import InputError, ReceiptMismatch, TableferryError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef, staging_name, staging_prefix
from tableferry.resources.types.column import Column

Alive = Callable[[str], bool]
"""Tells whether the run that wrote its id into a staging table still lives."""

SHADOW, DIGEST = "__ferry_shadow", 12

REJECTED = "_rejected"
"""What the name of a staging table that failed its audit ends with."""

ATTEMPT = "<attempt>"
"""In a statement that is only shown: what makes the names of an attempt its own."""

MOST_REJECTED = 10
"""Of one target: enough to see what is wrong, too few to fill a disk."""


class TargetMoved(TableferryError):
    """Somebody else wrote to a range of the target since the attempt on it was planned."""

    transient = True


def nobody_else(owner: str) -> bool:
    """The `Alive` of a caller that knows itself alone: whatever lies about is a dead run's."""
    return False


@dataclass(frozen=True)
class TargetOptions:
    """How a transfer writes. Nothing in here changes a value, only where and how fast it lands."""

    mode: WriteMode = WriteMode.REPLACE
    engine: str | None = None
    """ClickHouse only: the engine of a table that we create, e.g. `ReplacingMergeTree(version)`."""
    order_by: str | None = None
    """ClickHouse only: sorting key of a table that we create, as SQL without the keyword."""
    partition_by: str | None = None
    """ClickHouse only: partitioning of a table that we create. It costs the atomic finalise."""
    batch_rows: int = 65536
    """Rows per batch of a SQL Server bulk copy; a ClickHouse insert streams and has no batches."""
    framing: Framing | None = None
    """SQL Server only: the terminators in the text of this attempt."""
    format: Format | None = None
    """What the rows of this attempt are on the wire, where the target takes more than one form."""
    unstaged: bool = False
    """Whether rows may go straight into the table, unseen until `RangeLoad.finalise`: whoever says
    so audits them there by `RangeLoad.reader`, and stages them if that fails."""
    hazards: tuple[Hazard, ...] = ()
    """What `Target.hazards` found of the table when the hop was planned."""
    publish_audit: PublishAudit = "auto"
    """When to compare what readers are about to see with what was audited: where a hazard asks for
    it, or always."""

    @property
    def audits_shown(self) -> bool:
        """Whether what readers are about to see is compared with what was audited."""
        return self.publish_audit == "visible" or bool(having(self.hazards, "changes"))


@dataclass(frozen=True)
class LoadReceipt:
    """What one load handed over: rows, and bytes as they were sent (Arrow buffers or text)."""

    rows: int
    bytes: int
    artifacts: tuple[Artifact, ...] = ()
    """The files that the rows went through, if any."""


class RangeLoad(Protocol):
    """One attempt on one key range: a staging table that only this attempt writes.

    Where `TargetOptions.unstaged` is said and the target can, the rows go into the table itself
    instead, by a transaction that ends with the attempt unless `finalise` commits it.
    """

    def load_arrow(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema | None = None
    ) -> LoadReceipt:
        """Stream batches with the plan's target columns, in its order, into the staging table."""

    def load_bytes(self, chunks: Iterator[bytes]) -> LoadReceipt:
        """Stream rows as bytes, in a format that the target takes, into the staging table."""

    def staged_rows(self) -> int:
        """Rows in the staging table, counted by the server."""

    def reader(self) -> Endpoint | None:
        """What alone sees the rows, if they are unstaged; its `query` is all that can be asked."""

    def audited_table(self) -> TableRef:
        """The staging table, once it holds what the range is to become, for its audit; unstaged,
        the table that is written to.

        With `append` the target's own rows have taken the place of those that are there already.

        Raises:
            ReceiptMismatch: the staging table does not hold the rows that were sent.
        """

    def finalise(self) -> int:
        """Make the range visible: all of it at once or nothing, however often it is repeated.

        Returns:
            The rows that the range has in the table that is written to, those included that the
            write mode keeps.

        Raises:
            ReceiptMismatch: the staging table does not hold the rows that were sent.
            RangeBusy: another run took the range over in the meantime.
            TargetMoved: somebody else published the range since the attempt was planned, or wrote
                to it after the audit; the next attempt has to read source and markers anew.
        """

    def shown_rows(self) -> int | None:
        """Rows of the range, by the key's value, that `finalise` saw in the table afterwards; None
        if it did not look."""

    def keep_rejected(self) -> TableRef:
        """Leave the staging table to whoever inspects it, under a name that does not change.

        The next attempt on the range drops it, or `clean`, or one too many of another range.
        """


class Target(Protocol):
    """A database that ranges are loaded into."""

    def require(self, plan: CopyPlan, options: TargetOptions) -> None:
        """Refuse what `prepare` could not do, without changing anything.

        Raises:
            InputError: the plan and the write mode do not go together, or what the table is to be
                created in, or with, is not there.
        """

    def prepare(
        self, plan: CopyPlan, options: TargetOptions, found: Sequence[Column] | None = None
    ) -> list[str]:
        """Create the target table if it is missing, else verify that it takes the plan's columns.

        Args:
            plan: the hop.
            options: how it writes.
            found: the columns of the table, where the caller has just read them.

        Returns:
            Notes for the user, one sentence each, e.g. that the finalise cannot be atomic.

        Raises:
            SchemaDrift: the table exists and differs; the message shows the difference.
            InputError: the table and the write mode do not go together.
        """

    def hazards(
        self, plan: CopyPlan, options: TargetOptions, found: Sequence[Column]
    ) -> list[Hazard]:
        """What of the table, which is there, may show its readers other rows than are audited.

        At most one query of the server's catalog.

        Args:
            plan: the hop.
            options: how it writes.
            found: the columns of the table.
        """

    def creation(self, plan: CopyPlan, options: TargetOptions, *, creates: bool) -> list[str]:
        """The statements that `prepare` would send, to be shown. Nothing is sent.

        Args:
            plan: the hop.
            options: as given to `prepare`.
            creates: the table is not there yet.
        """

    def publication(
        self, plan: CopyPlan, key_range: KeyRange, options: TargetOptions, *, creates: bool
    ) -> list[str]:
        """The statements by which `attempt` and `finalise` would make a range visible, likewise.

        What the server would be asked on the way, and locks, are left out.
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
        home: str = "",
        known: Published | None = None,
    ) -> AbstractContextManager[RangeLoad]:
        """Hold the range and a fresh staging table for it; both are gone on exit.

        `finalise` leaves a marker with the rows, see `resources.contract.markers`.

        Args:
            plan: the hop, as given to `prepare`.
            key_range: the rows to load.
            options: as given to `prepare`.
            owner: id of the run; the same run may take its own leftovers over.
            data_version: fingerprint of the rows to load; part of the insert's dedup token.
            alive: whether another owner still lives; a dead one's staging is removed.
            home: of the run's event log, for the marker.
            known: the markers that the attempt goes by; None publishes whatever they say.

        Raises:
            RangeBusy: a live other owner holds the range.
        """
        publication = Publication(plan, key_range, data_version, owner, home, known)
        return self.hold(publication, options, alive)

    def hold(
        self, publication: Publication, options: TargetOptions, alive: Alive
    ) -> AbstractContextManager[RangeLoad]:
        """How a system does what `attempt` describes."""

    def published(self, plan: CopyPlan, options: TargetOptions) -> Published | None:
        """What the markers say, read in a constant number of queries; None where there are none.

        Raises:
            InputError: they must not be read.
        """

    def marking(
        self,
        plan: CopyPlan,
        key_range: KeyRange,
        options: TargetOptions,
        *,
        owner: str,
        data_version: str,
        alive: Alive = nobody_else,
        home: str = "",
        known: Published | None = None,
    ) -> AbstractContextManager[None]:
        """Hold a range whose rows stay, and mark them with another data version.

        Args:
            plan: the hop, as given to `prepare`.
            key_range: the rows.
            options: as given to `prepare`.
            owner: id of the run.
            data_version: what the rows were found to be.
            alive: as of `attempt`.
            home: as of `attempt`.
            known: as of `attempt`.

        Raises:
            RangeBusy: a live other owner holds the range.
            TargetMoved: somebody else published the range since `known` was read.
        """
        publication = Publication(plan, key_range, data_version, owner, home, known)
        return self.mark(publication, options, alive)

    def mark(
        self, publication: Publication, options: TargetOptions, alive: Alive
    ) -> AbstractContextManager[None]:
        """How a system does what `marking` describes."""

    def forget_markers(self, table: TableRef) -> None:
        """Remove the markers of a table: whoever has published it compares its ranges then."""

    def identity(self, table: TableRef) -> str | None:
        """What a table keeps for life, whatever it is called; None if there is no such table.

        It tells whether a shadow has become the target, without a mark that could be forgotten.
        """

    def promote(
        self, plan: CopyPlan, options: TargetOptions, gathered: Mapping[str, str] | None = None
    ) -> None:
        """`swap` only: put the shadow table in the target's place, and drop the old one.

        Repeating it is harmless: without a shadow table there is nothing to do.

        Args:
            plan: the hop.
            options: as given to `prepare`.
            gathered: the data versions that its ranges must have in the shadow, by name.

        Raises:
            TargetMoved: somebody else has put others there.
        """

    def retire(
        self,
        plan: CopyPlan,
        ranges: Sequence[KeyRange],
        into: Sequence[KeyRange],
        options: TargetOptions,
    ) -> None:
        """Forget ranges that others now cover. Call it before those are loaded.

        Without others in their place, their rows go.

        Args:
            plan: the hop.
            ranges: the ranges that are no more.
            into: the ranges in their place.
            options: as given to `prepare`.
        """

    def clean(
        self, target: TableRef, alive: Alive = nobody_else, *, rejected: bool = True
    ) -> list[str]:
        """Drop what dead owners left of this target; returns the names of the dropped tables.

        Args:
            target: the table that they wrote to.
            alive: whether an owner still lives.
            rejected: drop also the staging tables that failed their audit.
        """

    def staged_columns(self, plan: CopyPlan, staging: TableRef) -> list[Column]:
        """The columns of a staging table, by the names that its target's have."""

    def rejected_table(self, plan: CopyPlan, key_range: KeyRange) -> TableRef | None:
        """The range's staging table that failed its audit, if it is still there."""

    def range_rows(self, plan: CopyPlan, key_range: KeyRange, options: TargetOptions) -> int:
        """Rows of the range in the table that is written to now: with `swap`, in the shadow."""


def shadow_of(table: TableRef) -> TableRef:
    """The table that collects all ranges of a `swap`, until it takes the target's place."""
    dialect = table.system.dialect
    room = dialect.longest_name - len(SHADOW) - DIGEST
    name = "".join(char for char in table.name if char not in dialect.not_in_shadows)
    kept = next(name[:end] for end in range(len(name), -1, -1) if _length(name[:end]) <= room)
    if kept != table.name:
        kept += hashlib.blake2b(table.name.encode(), digest_size=DIGEST // 2).hexdigest()
    return replace(table, name=kept + SHADOW)


def rejected_of(target: TableRef, range_name: str) -> TableRef:
    """Where the rows of a range are kept that failed their audit: one table per range."""
    return replace(target, name=f"{staging_name(target, range_name)}{REJECTED}")


def is_rejected(target: TableRef, name: str) -> bool:
    """Whether a table holds rows of the target that failed their audit."""
    return name.startswith(staging_prefix(target)) and name.endswith(REJECTED)


def make_room(target: TableRef, names: Iterable[str]) -> list[str]:
    """Which of a target's staging tables have to go before another range's rows are kept.

    Args:
        target: the table.
        names: of its staging tables, in the order in which they may go.
    """
    kept = [name for name in names if is_rejected(target, name)]
    return kept[: max(0, len(kept) - MOST_REJECTED + 1)]


def _length(name: str) -> int:
    """Characters of a name in a file's name, where ClickHouse writes others than these as `%D0`."""
    return len(re.sub(rb"[^A-Za-z0-9_]", b"%00", name.encode()))


def written_to(plan: CopyPlan, options: TargetOptions) -> TableRef:
    """The table that finalised ranges go to: the target, or with `swap` its shadow."""
    return shadow_of(plan.target) if options.mode.whole_table else plan.target


def row_identity(plan: CopyPlan) -> tuple[str, ...]:
    """Target columns that tell one row from another, for `append` and `upsert`; empty if unknown.

    They are the source's primary key, if all of it travels.
    """
    names = {column.name for column in plan.target_columns}
    return plan.primary_key if plan.primary_key and names.issuperset(plan.primary_key) else ()


def keeps_rows(plan: CopyPlan, options: TargetOptions) -> bool:
    """Whether rows stay in the target that the source has no more."""
    return options.mode.keeps_rows and bool(row_identity(plan))


def appends(plan: CopyPlan, options: TargetOptions) -> bool:
    """Whether rows that the target has already keep their place there."""
    return options.mode.keeps_known and bool(row_identity(plan))


def replaces(plan: CopyPlan, options: TargetOptions) -> bool:
    """Whether a range's rows give way to those that are loaded."""
    return not options.mode.updates_known and not appends(plan, options)


def require_staged(
    table: TableRef, key_range: KeyRange, staged: int, expected: int, which: str
) -> int:
    """The rows in a staging table, if they are as many as were sent or audited.

    Raises:
        ReceiptMismatch: they are not.
    """
    if staged != expected:
        raise ReceiptMismatch(
            f"{table} range {key_range.name}: {expected} rows were {which}, "
            f"but {staged} arrived in the staging table"
        )
    return staged


def check_mode(plan: CopyPlan, options: TargetOptions) -> None:
    """Refuse a write mode that needs to tell rows apart where nothing does.

    Raises:
        InputError: `upsert` without a primary key.
    """
    if options.mode.needs_identity and not row_identity(plan):
        raise InputError(
            f"{plan.source}: {options.mode} needs a primary key whose columns all travel"
        )
