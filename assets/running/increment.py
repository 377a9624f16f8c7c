"""Moves only the newer rows of a range, and proves of the others that none of them is newer."""

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
    """With its newer rows a range is not yet as its source has it."""


def newer_rows(attempt: RangeAttempt, since: str) -> RangeAttempt:
    """The attempt on the rows from a watermark on."""
    transfer, hop = attempt.work.plan.transfer, attempt.hop
    plan = from_watermark(hop.plan, transfer, since)
    reading = replace(
        attempt.reading, since=f"{transfer.watermark} >= {since}", source_figures=None
    )
    return replace(attempt, hop=replace(hop, plan=plan), reading=reading)


def with_whole_range(
    attempt: RangeAttempt, record: RangeRecord, verdicts: Sequence[Verdict]
) -> tuple[RangeRecord, tuple[Verdict, ...]]:
    """What to record of a range whose newer rows have become visible.

    The keys and watermarks of all its rows are compared. So a row is noticed that was deleted, or
    that came or changed with an older watermark than the newest one that was known.

    Raises:
        RangeDiffers: they are not what they should be: the source's, and what was kept before.
        SourceMoved: because the source is no longer what was read.
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
    found = []
    for one in verdicts:
        if one.check == CHECK_NAMES["count"]:
            found.append(with_extra_rows(count, extra) if extra else count)
        else:
            note = f"{counted(moved or 0, 'row')} with {since}; of all, keys and watermarks agree"
            metadata = {**one.metadata, "rows_with": since}
            found.append(replace(one, note=note if one.passed else one.note, metadata=metadata))
    rows = int(whole.source[ROWS])
    record = replace(record, rows=rows, rows_moved=moved, proven=proven(attempt, before))
    return record, tuple(found)


def proven_whole(attempt: RangeAttempt, *, extra: bool) -> Proven | None:
    """What the next run may go on from, after the whole range was moved or compared.

    Args:
        attempt: the range's.
        extra: the target has rows beyond the source's.
    """
    column = attempt.work.plan.transfer.watermark
    if attempt.work.plan.transfer.incremental is None or column is None:
        return None
    kept = _kept(_compared(attempt)) if extra else "0:0"
    return proven(attempt, Proven(column, None, now(), kept))


def proven(attempt: RangeAttempt, before: Proven) -> Proven:
    """The same as before, with the watermark of what was read now."""
    return replace(before, watermark=attempt.reading.fingerprint.greatest)


def _compared(attempt: RangeAttempt) -> Verdict:
    """The keys and watermarks of all rows of the range, on both sides."""
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
    """What the target has beyond the source; sums of digests are exact."""
    rows, digests = (int(whole.target[one]) - int(whole.source[one]) for one in (ROWS, DIGEST))
    return f"{rows}:{digests}"
