"""Moves only the newer rows of a range, and proves that the other rows are unchanged."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tableferry.assets.log.records import Proven, RangeRecord
from tableferry.assets.log.states import State
from tableferry.assets.planning.rows.increments import from_watermark, keys_and_watermarks, now
from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.assets.verifying.as_committed import digest_of
from tableferry.assets.verifying.extra_rows import with_extra_rows
from tableferry.checks.levels import CHECK_NAMES
from tableferry.checks.reconcile import reconcile, row_count_of
from tableferry.checks.sides import Comparison
from tableferry.checks.verdict import Verdict
from tableferry.resources.digest.measure import DIGEST, ROWS
from tableferry.resources.errors import TableferryError
from tableferry.resources.words import counted


@dataclass(frozen=True)
class NewerRows:
    """The rows of a range from a watermark on, which were moved and are visible."""

    before: Proven
    """The state that the range was proven in before."""
    since: str
    """The condition that selects the rows."""
    record: RangeRecord
    """The record of their move."""
    verdicts: tuple[Verdict, ...]
    """Those of the rows alone."""


class RangeDiffers(TableferryError):
    """The range still differs from its source after its newer rows were moved.

    Attributes:
        newer: those rows, which are visible.
    """

    def __init__(self, message: str, newer: NewerRows) -> None:
        super().__init__(message)
        self.newer = newer


def newer_rows(attempt: RangeAttempt, since: str) -> RangeAttempt:
    """Restrict an attempt to the rows from a watermark on; `_with_whole_range` completes it."""
    transfer, hop = attempt.work.plan.transfer, attempt.hop
    plan = from_watermark(hop.plan, transfer, since)
    # what is not staged is older, not gone
    options = replace(hop.options, removes=False)
    reading = replace(
        attempt.reading, since=f"{transfer.watermark} >= {since}", source_figures=None
    )
    hop = replace(hop, plan=plan, options=options)
    return replace(attempt, hop=hop, reading=reading, completed=_with_whole_range)


def _with_whole_range(
    attempt: RangeAttempt, record: RangeRecord, verdicts: tuple[Verdict, ...]
) -> tuple[RangeRecord, tuple[Verdict, ...]]:
    """Return the record and verdicts of a range whose newer rows have become visible.

    The keys and watermarks of all its rows are compared, which shows rows that were deleted, or
    written with a watermark older than the newest known one.

    Raises:
        RangeDiffers: the target has other rows than the source's and those kept before.
        SourceMoved: the source has changed since it was read.
    """
    before, since = attempt.proven, attempt.reading.since
    assert before is not None and since is not None
    attempt.writer.progress(replace(record, state=State.FINALISED))
    newer, whole = NewerRows(before, since, record, verdicts), _compared(attempt)
    if (kept := _kept(whole)) != before.kept:
        attempt.require_source_unchanged()
        raise RangeDiffers(
            f"after the rows with {since} the target has {whole.target[ROWS]} rows and the source "
            f"{whole.source[ROWS]}, or rows differ in key or {before.column}: rows were deleted, "
            "or written with an older watermark",
            newer,
        )
    return completed(attempt, newer, whole, extra=int(kept.partition(":")[0]))


def completed(
    attempt: RangeAttempt, newer: NewerRows, whole: Verdict, *, extra: int = 0
) -> tuple[RangeRecord, tuple[Verdict, ...]]:
    """Return the record and verdicts of a range of which keys and watermarks agree.

    Args:
        attempt: the attempt on the range.
        newer: its rows that have been moved.
        whole: the comparison of the keys and watermarks of all rows.
        extra: how many rows the target keeps that the source has no more.

    Raises:
        SourceMoved: the source has changed since it was read.
    """
    attempt.require_snapshot()
    moved, since, before = newer.record.rows, newer.since, newer.before
    count = replace(row_count_of(whole), passed=True, disagreeing=(), metadata={"rows_with": since})
    results = []
    for verdict in newer.verdicts:
        if verdict.check == CHECK_NAMES["count"]:
            results.append(with_extra_rows(count, extra) if extra else count)
            continue
        metadata = {**verdict.metadata, "rows_with": since}
        note = f"{counted(moved or 0, 'row')} with {since}; of all, keys and watermarks agree"
        note = note if verdict.passed else verdict.note
        results.append(replace(verdict, note=note, metadata=metadata))
    held = digest_of(whole, "target")
    proven = replace(before, watermark=attempt.reading.fingerprint.greatest, held=held)
    record = replace(newer.record, rows=int(whole.source[ROWS]), rows_moved=moved, proven=proven)
    return record, tuple(results)


def proven_whole(attempt: RangeAttempt, *, extra: bool) -> Proven | None:
    """Return the proven state of a range that was moved or compared as a whole.

    Args:
        attempt: the attempt on the range.
        extra: the target has rows beyond the source's.
    """
    transfer = attempt.work.plan.transfer
    if transfer.incremental is None or transfer.watermark is None:
        return None
    kept = _kept(_compared(attempt)) if extra else "0:0"
    return Proven(transfer.watermark, attempt.reading.fingerprint.greatest, now(), kept)


def _compared(attempt: RangeAttempt) -> Verdict:
    """Compare the keys and watermarks of all rows of the range."""
    return reconcile(keys_and_watermarks_of(attempt), "checksum")


def keys_and_watermarks_of(attempt: RangeAttempt) -> Comparison:
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
