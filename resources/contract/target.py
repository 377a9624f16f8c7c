"""Load targets: prepare a table, load a range out of sight, make it visible at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tableferry.resources.artifacts import Artifact
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Hazard, having
from tableferry.resources.contract.markers import Publication, Published
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

RUN, ATTEMPT = "<run>", "<attempt>"
"""Stand for what only a run has, in statements that are shown."""

Alive = Callable[[str], bool]
"""Whether the run whose id is in a staging table is still alive."""


class TargetMoved(TableferryError):
    """Another writer has changed the range in the target since the attempt was planned."""

    transient = True


def no_live_owner(owner: str) -> bool:
    """The `Alive` of a caller that is known to be alone: all leftovers are of dead runs."""
    return False


@dataclass(frozen=True)
class LoadReceipt:
    """The rows of one load, and their bytes as sent (Arrow buffers or text)."""

    rows: int
    bytes: int
    artifacts: tuple[Artifact, ...] = ()
    """The files that the rows passed through, if any."""


class RangeLoad(Protocol):
    """One attempt on one key range: a staging table that only this attempt writes."""

    def load_arrow(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema | None = None
    ) -> LoadReceipt:
        """Stream batches with the plan's target columns, in its order, into the staging table."""

    def load_bytes(self, chunks: Iterator[bytes]) -> LoadReceipt:
        """Stream rows in the target's byte format into the staging table."""

    def staged_rows(self) -> int:
        """Rows in the staging table, counted by the server."""

    def audited_table(self) -> TableRef:
        """The table to audit: staging, once it holds what the range is to become.

        With `append`, rows that the target already has have replaced their staged versions.

        Raises:
            ReceiptMismatch: the staging table does not hold the rows that were sent.
        """

    def finalise(self) -> int:
        """Make the range visible: all of it at once or nothing, however often it is repeated.

        Returns:
            The range's rows in the table that is written to, including those that the write mode
            keeps.

        Raises:
            ReceiptMismatch: the staging table does not hold the rows that were sent.
            RangeBusy: another run took the range over in the meantime.
            TableferryError: `Publication.delta` has refused the range.
            TargetMoved: the range was published by another run since the attempt was planned, or
                changed after the audit; the next attempt must read source and markers again.
        """

    def keep_rejected(self) -> TableRef:
        """Keep the staging table for inspection, under a fixed name.

        It is dropped by the next attempt on the range, by `clean`, or when more than
        `MOST_REJECTED` are kept.
        """


def altered_meanwhile(table: TableRef) -> str:
    """Say why a shadow does not replace a target that it was copied from."""
    return (
        f"{table} was altered while its ranges were gathered, and the table in its place would not "
        "have that"
    )


class Target(Protocol):
    """A database that ranges are loaded into."""

    created: str | None = None
    """The identity of the table that `prepare` has created, and nobody else."""

    def require(self, plan: CopyPlan, options: TargetOptions) -> None:
        """Refuse what `prepare` could not do, without changing anything.

        Raises:
            InputError: plan and write mode do not go together, or the schema or an option that
                creating the table needs does not exist.
        """

    def prepare(
        self, plan: CopyPlan, options: TargetOptions, columns: Sequence[Column] | None = None
    ) -> list[str]:
        """Create the target table if it is missing, else verify that it takes the plan's columns.

        Args:
            plan: the hop.
            options: how it writes.
            columns: the table's, if the caller has just read them.

        Returns:
            Notes for the user, one sentence each, e.g. that the finalise cannot be atomic.

        Raises:
            SchemaDrift: the table exists and differs; the message shows the difference.
            InputError: the table and the write mode do not go together.
        """

    def verify(
        self, plan: CopyPlan, options: TargetOptions, columns: Sequence[Column]
    ) -> list[str]:
        """Refuse an existing table as `prepare` would, without changing anything.

        Args:
            plan: the hop.
            options: how it writes.
            columns: the table's, as they are when `prepare` is called.

        Returns:
            The notes of `prepare` about its columns.

        Raises:
            SchemaDrift, InputError: see `prepare`.
        """

    def creation(self, plan: CopyPlan, options: TargetOptions) -> list[str]:
        """The statements that create the table of a plan, to be shown."""

    def publication(self, publication: Publication, options: TargetOptions) -> list[str]:
        """The statements that stage the rows of a range and publish them, to be shown.

        What is another in each attempt is `<attempt>`; lines that begin with `--` are words. Locks,
        markers and counts are left out.
        """

    def hazards(
        self, plan: CopyPlan, options: TargetOptions, columns: Sequence[Column]
    ) -> list[Hazard]:
        """What may show readers of the existing table, of these columns, other rows than audited.

        Takes at most one query of the server's catalog.
        """

    def unapplied(self, plan: CopyPlan, options: TargetOptions) -> list[str]:
        """Which options of a new table the one that is loaded does not have, a sentence each."""
        return []

    def script(
        self,
        publication: Publication,
        options: TargetOptions,
        rows: Iterable[pa.RecordBatch],
    ) -> Iterator[str]:
        """The statements that write the delta of a range, with its rows as constants.

        Args:
            publication: the range, with the delta.
            options: as given to `attempt`.
            rows: the rows to insert or update, in the plan's target columns.

        Raises:
            InputError: values of a column cannot be written as constants, or the target's rows are
                not written by statements.
        """
        raise InputError(f"{publication.plan.target}: --sql is not supported for it")

    def attempt(
        self, publication: Publication, options: TargetOptions, alive: Alive = no_live_owner
    ) -> AbstractContextManager[RangeLoad]:
        """Hold the range and a fresh staging table for it; both are gone on exit.

        `finalise` leaves a marker with the rows, see `resources.contract.markers`.

        Args:
            publication: the rows to load, and who loads them; the same run may take its own
                leftovers over.
            options: as given to `prepare`.
            alive: whether another owner still lives; a dead one's staging is removed.

        Raises:
            RangeBusy: a live other owner holds the range.
        """

    def published(self, plan: CopyPlan, options: TargetOptions) -> Published | None:
        """The markers, read in a constant number of queries; None if the target keeps none.

        Raises:
            InputError: the login may not read them.
        """

    def marking(
        self, publication: Publication, options: TargetOptions, alive: Alive = no_live_owner
    ) -> AbstractContextManager[None]:
        """Hold a range whose rows stay, and mark them with another data version.

        Args:
            publication: the range, and what its rows were found to be.
            options: as given to `prepare`.
            alive: see `attempt`.

        Raises:
            RangeBusy: a live other owner holds the range.
            TargetMoved: somebody else has published the range since `publication.known` was read.
        """

    def forget_markers(self, table: TableRef) -> bool:
        """Remove the markers of a table, so that its ranges are compared by the next run.

        Return whether there were any.
        """
        return False

    def identity(self, table: TableRef) -> str | None:
        """A table's id, which survives a rename; None if there is no such table.

        It tells whether a shadow has become the target.
        """

    def gathered_in(self, plan: CopyPlan, options: TargetOptions) -> str | None:
        """`swap` only: the identity of the shadow table, if there is one that is a copy of the
        target as it is, or has the declared shape if the target is recreated; `prepare` makes
        another one anew."""
        return None

    def lost(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        """What a table that is made anew would lack of this one, but for columns and rows."""
        return []

    def as_made(self, plan: CopyPlan, options: TargetOptions) -> bool:
        """Whether a table that a run has made has nothing that others have given to it since.

        Its columns are not looked at, nor what goes by the table's name.
        """
        return not having(self.lost(plan, options), "refused")

    def drop_empty(self, table: TableRef, identity: str) -> bool:
        """Drop a table if it has this identity, and no row, also none that is not committed yet.

        Returns:
            Whether it was dropped; if not, it is as it was.

        Raises:
            TableferryError: others write to it for so long that this is not known.
        """
        return False

    def unalterable(self, table: TableRef, statements: Sequence[str]) -> str:
        """Why the login may not send statements that alter a table; empty if it may, or if that is
        unknown."""
        return ""

    def altering(
        self, table: TableRef, before: Column, after: Column
    ) -> tuple[tuple[str, ...], str]:
        """How a column of the table is widened, or may be NULL from now on.

        Returns:
            Statements of which the server takes the first that it knows, none if there are none;
            and why it will refuse them, or an empty text.
        """
        dialect = table.system.dialect
        name = dialect.quote(before.name)
        return dialect.alter_column(qualified(table), name, before, after), ""

    def promote(
        self,
        plan: CopyPlan,
        options: TargetOptions,
        gathered: Mapping[str, str] | None = None,
        known: Published | None = None,
    ) -> None:
        """`swap` only: put the shadow table in the target's place, and drop the old one.

        Repeating it is harmless: without a shadow table there is nothing to do.

        Args:
            plan: the hop.
            options: as given to `prepare`.
            gathered: the data versions that the shadow must have, by range name.
            known: the target's markers when the swap was planned, before its source was read.

        Raises:
            TargetMoved: another run has put others there, or has published rows in the target
                since, which are newer than those of the shadow.
        """

    def retire(
        self,
        plan: CopyPlan,
        ranges: Sequence[KeyRange],
        into: Sequence[KeyRange],
        options: TargetOptions,
    ) -> None:
        """Forget ranges before those that replace them, `into`, are loaded.

        Their rows stay visible until then. If nothing replaces them, their rows are deleted.
        """

    def keep_quarantined(self, plan: CopyPlan, ranges: Sequence[str]) -> None:
        """Remove what is kept of rejected rows of other ranges than these.

        Those of a retired range stay until all ranges are committed.
        """

    def clean(
        self, target: TableRef, alive: Alive = no_live_owner, *, rejected: bool = True
    ) -> list[str]:
        """Drop tables that dead owners left of this target; return the names.

        With `rejected`, also the staging tables that failed their audit.
        """

    def staged_columns(self, plan: CopyPlan, staging: TableRef) -> list[Column]:
        """The columns of a staging table, under the target's column names."""

    def rejected_table(self, plan: CopyPlan, key_range: KeyRange) -> TableRef | None:
        """The range's staging table that failed its audit, if it still exists."""
