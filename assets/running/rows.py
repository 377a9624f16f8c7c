"""The rows of a range that move: how they were found, and what proves the range once they have."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tableferry.assets.log.records import Proven, RangeRecord
from tableferry.assets.log.states import State
from tableferry.assets.planning.hazards import require_harmless, with_hazards
from tableferry.assets.planning.rows.deltas import (
    from_watermark,
    keys_and_watermarks,
    most_rows,
    now,
)
from tableferry.assets.running.audit import CheckFailed, require_green, require_proven_source
from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.assets.verifying.as_committed import digest_of, digest_text, with_digest
from tableferry.assets.verifying.whole_tables import with_extra_rows
from tableferry.checks.delta import FoundDelta, StillDiffers, delta_of
from tableferry.checks.levels import CHECK_NAMES
from tableferry.checks.reconcile import reconcile, row_count_of
from tableferry.checks.sides import Comparison
from tableferry.checks.verdict import Differences, Verdict
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.delta import Delta
from tableferry.resources.contract.target import RangeLoad
from tableferry.resources.contract.target_options import Written
from tableferry.resources.digest.measure import DIGEST, ROWS
from tableferry.resources.errors import ReceiptMismatch, SourceMoved, TableferryError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.words import counted

Recorded = tuple[RangeRecord, tuple[Verdict, ...]]
"""What is recorded of a range: its record, and the verdicts of its checks."""


@dataclass(frozen=True)
class RowSet:
    """All rows of a range, as an attempt moves them; subclasses are some of them."""

    attempt: RangeAttempt
    """Its hop reads and writes these rows alone."""
    delta: Delta = field(default_factory=Delta)
    """The rows by which the range differs, if these were found by comparing it."""
    seconds: float = 0.0
    """How long they were looked for."""
    repaired: Differences | None = None
    """What a repair found to differ."""
    miscounted: ClassVar[type[TableferryError]] = SourceMoved
    """What other rows than expected mean without a snapshot: one whose key moved past the reader
    was missed or read twice."""

    @property
    def parts(self) -> Sequence[CopyPlan]:
        """The plans that read the rows, one after the other."""
        return [self.attempt.hop.plan]

    @property
    def expected(self) -> int | None:
        """How many rows of the source they are, if that is known."""
        return self.attempt.reading.rows

    def audited(self, load: RangeLoad) -> tuple[Verdict, ...]:
        """Check the staged rows against the source before they are visible.

        Raises:
            CheckFailed: a blocking check failed, and the staging table is kept for inspection.
            SourceMoved: the source has changed since it was read.
        """
        table = load.audited_table()
        try:
            return require_green(self.attempt, table)
        except CheckFailed as error:
            error.rejected = load.keep_rejected()
            raise

    def completed(self, moved: Recorded, extra: int) -> Recorded:
        """Return what is recorded of the range once the rows are visible.

        Args:
            moved: what would be recorded of the rows alone.
            extra: how many rows of earlier moves stay beside them.

        Raises:
            SourceMoved: the source has changed since it was read.
        """
        record, verdicts = moved
        if extra:
            verdicts = tuple(with_extra_rows(verdict, extra) for verdict in verdicts)
        return replace(record, proven=proven_whole(self.attempt, extra=bool(extra))), verdicts


@dataclass(frozen=True)
class DifferingRows(RowSet):
    """The rows by which both sides of a range differ, known by their keys."""

    delta: FoundDelta
    miscounted: ClassVar[type[TableferryError]] = ReceiptMismatch

    @property
    def parts(self) -> Sequence[CopyPlan]:
        """See `RowSet.parts`; none if there are no rows to read."""
        return self.delta.parts(self.attempt.hop.plan)

    @property
    def expected(self) -> int:
        """See `RowSet.expected`."""
        return self.delta.moved

    def audited(self, load: RangeLoad) -> tuple[Verdict, ...]:
        """The checks are about the range, which is compared with its changed rows written."""
        attempt, table = self.attempt, load.audited_table()
        self.delta.require_staged(attempt.work.observed(attempt.hop, table))
        return ()

    def completed(self, moved: Recorded, extra: int) -> Recorded:
        """The levels that compare rows read all of them, as no other session saw them before the
        commit. See `RowSet.completed`.

        Raises:
            CheckFailed: they differ.
        """
        attempt, delta, levels = self.attempt, self.delta, self.attempt.work.levels
        assert delta.proven is not None
        whole, (kept, _) = delta.proven, delta.kept
        if levels[-1] not in ("count", "checksum"):
            verdicts = require_green(attempt, attempt.hop.plan.target)
        else:
            rows = replace(row_count_of(whole), passed=True, disagreeing=())
            proven = [rows, whole][: len(levels)]
            verdicts = tuple(with_extra_rows(each, kept) if kept else each for each in proven)
        record = replace(
            moved[0],
            rows=int(whole.source["rows"]),
            rows_moved=delta.moved,
            inserted=delta.inserted,
            updated=delta.updated,
            deleted=delta.deleted,
            proven=proven_whole(attempt, extra=bool(kept)),
        )
        return with_digest(record, attempt.hop, [whole]), verdicts


@dataclass(frozen=True)
class NewerRows(RowSet):
    """The rows of a range from a watermark on; its other rows are proven to be unchanged."""

    moved: Recorded | None = None
    """What would be recorded of them alone, once they are visible."""

    def completed(self, moved: Recorded, extra: int) -> Recorded:
        """The keys and watermarks of all rows of the range are compared, which shows rows that were
        deleted, or written with a watermark older than the newest known one. See
        `RowSet.completed`.

        Raises:
            RangeDiffers: the target has other rows than the source's and those kept before.
        """
        attempt, before, since = self.attempt, self.attempt.proven, self.attempt.reading.since
        visible = replace(self, moved=moved)
        assert before is not None
        attempt.writer.progress(replace(moved[0], state=State.FINALISED))
        whole = reconcile(_keys_and_watermarks(attempt), "checksum")
        if (kept := _kept(whole)) != before.kept:
            attempt.require_source_unchanged()
            raise RangeDiffers(
                f"after the rows with {since} the target has {whole.target[ROWS]} rows and "
                f"the source {whole.source[ROWS]}, or rows differ in key or {before.column}: rows "
                "were deleted, or written with an older watermark",
                visible,
            )
        return visible.with_range(whole, extra=int(kept.partition(":")[0]))

    def with_range(self, whole: Verdict, *, extra: int = 0) -> Recorded:
        """Return what is recorded of a range of which keys and watermarks agree.

        Args:
            whole: their comparison.
            extra: how many rows the target keeps that the source has no more.

        Raises:
            SourceMoved: the source has changed since it was read.
        """
        attempt, before = self.attempt, self.attempt.proven
        attempt.require_snapshot()
        assert self.moved is not None and before is not None
        (record, verdicts), since = self.moved, {"rows_with": attempt.reading.since}
        count = replace(row_count_of(whole), passed=True, disagreeing=(), metadata=since)
        found = f"{counted(record.rows or 0, 'row')} with {attempt.reading.since}"
        results = []
        for verdict in verdicts:
            if verdict.check == CHECK_NAMES["count"]:
                results.append(with_extra_rows(count, extra) if extra else count)
                continue
            note = f"{found}; of all, keys and watermarks agree" if verdict.passed else verdict.note
            results.append(replace(verdict, note=note, metadata={**verdict.metadata, **since}))
        watermark = attempt.reading.fingerprint.greatest
        proven = replace(before, watermark=watermark, held=digest_of(whole, "target"))
        rows = int(whole.source[ROWS])
        hop = attempt.work.plan.hops[attempt.hop.number - 1]
        changed = replace(attempt, hop=hop).changed()
        record = replace(record, rows=rows, rows_moved=record.rows, proven=proven, **changed)
        return record, tuple(results)


class RangeDiffers(TableferryError):
    """The range still differs from its source after its newer rows were moved.

    Attributes:
        newer: those rows, which are visible.
    """

    def __init__(self, message: str, newer: NewerRows) -> None:
        super().__init__(message)
        self.newer = newer


@dataclass(frozen=True, kw_only=True)
class RowsGone(DifferingRows):
    """The rows of a range that the source has no more, once its newer rows are visible."""

    newer: NewerRows

    def completed(self, moved: Recorded, extra: int) -> Recorded:
        """See `RowSet.completed`."""
        assert self.delta.proven is not None
        record, verdicts = self.newer.with_range(self.delta.proven)
        return replace(record, deleted=self.delta.deleted), verdicts


def rows_that_differ(
    attempt: RangeAttempt, comparison: Comparison | None = None, parts: Sequence[KeyRange] = ()
) -> DifferingRows:
    """Compare both sides of a range for the rows by which they differ.

    Args:
        attempt: the attempt on the range.
        comparison: both sides of the range; by default of all columns.
        parts: the parts of the range to compare; by default all of it.

    Raises:
        TooManyDiffer: the whole range should be moved.
        NotUnique: a row cannot be told by its primary key.
        InputError: to write single rows would change others.
    """
    work, hop, reading = attempt.work, attempt.hop, attempt.reading
    attempt.tell("reconcile")
    began = time.perf_counter()
    comparison = comparison or attempt.comparison(hop.plan.target)
    rows = reading.fingerprint.rows
    with work.exports:
        delta = delta_of(
            comparison,
            rows=rows,
            most=most_rows(work.plan.transfer, hop, rows),
            keeps=hop.options.keeps_rows(hop.plan),
            parts=parts,
            known=reading.source_figures,
        )
    require_proven_source(attempt, digest_text(delta.source), int(delta.source.figures[ROWS]))
    seconds = time.perf_counter() - began
    options = replace(hop.options, single_rows=Written.of(delta, hop.options.mark))
    # a whole move is written by other statements
    (hop,) = with_hazards([replace(hop, options=options)], work.servers)
    require_harmless([hop])
    return DifferingRows(replace(attempt, hop=hop), delta, seconds)


def newer_rows(attempt: RangeAttempt, since: str) -> NewerRows:
    """Restrict an attempt to the rows of its range from a watermark on."""
    transfer, hop = attempt.work.plan.transfer, attempt.hop
    plan, condition = from_watermark(hop.plan, transfer, since), f"{transfer.watermark} >= {since}"
    # what is not staged is older, not gone
    hop = replace(hop, plan=plan, options=replace(hop.options, removes=False))
    reading = replace(attempt.reading, since=condition, source_figures=None)
    return NewerRows(replace(attempt, hop=hop, reading=reading))


def rows_gone(attempt: RangeAttempt, newer: NewerRows) -> RowsGone:
    """Find the rows that the source has no more by comparing the keys and watermarks of all rows.

    Raises:
        StillDiffers: rows came or changed with an older watermark, too.
        TooManyDiffer, NotUnique, InputError: see `rows_that_differ`.
    """
    found = rows_that_differ(attempt, _keys_and_watermarks(attempt))
    if moved := found.delta.moved:
        raise StillDiffers(f"{counted(moved, 'row')} came or changed with an older watermark")
    return RowsGone(attempt=found.attempt, delta=found.delta, seconds=found.seconds, newer=newer)


def proven_whole(attempt: RangeAttempt, *, extra: bool) -> Proven | None:
    """Return the proven state of a range that was moved or compared as a whole.

    Args:
        attempt: the attempt on the range.
        extra: the target has rows beyond the source's.
    """
    transfer = attempt.work.plan.transfer
    if transfer.incremental is None or transfer.watermark is None:
        return None
    kept = _kept(reconcile(_keys_and_watermarks(attempt), "checksum")) if extra else "0:0"
    return Proven(transfer.watermark, attempt.reading.fingerprint.greatest, now(), kept)


def _keys_and_watermarks(attempt: RangeAttempt) -> Comparison:
    """Both sides of all rows of the range, restricted to the key columns and the watermark."""
    work = attempt.work
    # the hop of an attempt on newer rows selects these alone
    hop = work.plan.hops[attempt.hop.number - 1]
    plan = keys_and_watermarks(work.observed(hop, hop.plan.target), work.plan.transfer)
    return replace(attempt.comparison(hop.plan.target), plan=plan, known={})


def _kept(whole: Verdict) -> str:
    """Return the figures of the rows that only the target has; sums of digests are exact."""
    rows, digests = (int(whole.target[name]) - int(whole.source[name]) for name in (ROWS, DIGEST))
    return f"{rows}:{digests}"
