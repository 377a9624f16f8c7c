"""Moves only the newer rows of a range, and proves that the other rows are unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tableferry.assets.log.records import Proven, RangeRecord
from tableferry.assets.planning.increments import from_watermark, keys_and_watermarks, now
from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.assets.verifying.extra_rows import with_extra_rows
from tableferry.checks.counts import row_count_of
from tableferry.checks.reconcile import reconcile
from tableferry.checks.verdict import CHECK_NAMES, Verdict
from tableferry.resources.digest.measure import DIGEST, ROWS
from tableferry.resources.errors import TableferryError
from tableferry.resources.words import counted


class RangeDiffers(TableferryError):
    """The range still differs from its source after its newer rows were moved."""


def newer_rows(attempt: RangeAttempt, since: str) -> RangeAttempt:
    """Restrict an attempt to the rows from a watermark on."""
    transfer, hop = attempt.work.plan.transfer, attempt.hop
    plan = from_watermark(hop.plan, transfer, since)
    reading = replace(
        attempt.reading, since=f"{transfer.watermark} >= {since}", source_figures=None
    )
    return replace(attempt, hop=replace(hop, plan=plan), reading=reading)


def with_whole_range(
    attempt: RangeAttempt, record: RangeRecord, verdicts: Sequence[Verdict]
) -> tuple[RangeRecord, tuple[Verdict, ...]]:
    """Return the record and verdicts of a range whose newer rows have become visible.

    The keys and watermarks of all its rows are compared, which shows rows that were deleted, or
    written with a watermark older than the newest known one.

    Raises:
        RangeDiffers: the target has other rows than the source's and those kept before.
        SourceMoved: the source has changed since it was read.
    """
    before, since, moved = attempt.proven, attempt.reading.since, record.rows
    assert before is not None and since is not None
    whole = _compared(attempt)
    if (kept := _kept(whole)) != before.kept:
        attempt.require_unmoved()
        raise RangeDiffers(
            f"after the rows with {since} the target has {whole.target[ROWS]} rows and the source "
            f"{whole.source[ROWS]}, or rows differ in key or {before.column}: rows were deleted, "
            "or written with an older watermark"
        )
    attempt.require_standing()
    extra = int(kept.partition(":")[0])
    count = replace(row_count_of(whole), passed=True, disagreeing=(), metadata={"rows_with": since})
    results = []
    for verdict in verdicts:
        if verdict.check == CHECK_NAMES["count"]:
            results.append(with_extra_rows(count, extra) if extra else count)
            continue
        metadata = {**verdict.metadata, "rows_with": since}
        note = f"{counted(moved or 0, 'row')} with {since}; of all, keys and watermarks agree"
        note = note if verdict.passed else verdict.note
        results.append(replace(verdict, note=note, metadata=metadata))
    proven = replace(before, watermark=attempt.reading.fingerprint.greatest)
    record = replace(record, rows=int(whole.source[ROWS]), rows_moved=moved, proven=proven)
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
    hop = attempt.work.plan.hops[attempt.hop.number - 1]
    return reconcile(
        keys_and_watermarks(
            attempt.work.observed(hop, hop.plan.target), attempt.work.plan.transfer
        ),
        attempt.source,
        attempt.target,
        attempt.key_range,
        "checksum",
        snapshot=attempt.reading.snapshot,
    )


def _kept(whole: Verdict) -> str:
    """Return the figures of the rows that only the target has; sums of digests are exact."""
    rows, digests = (int(whole.target[name]) - int(whole.source[name]) for name in (ROWS, DIGEST))
    return f"{rows}:{digests}"
