"""Removes the rows of a range that its source has no more, once its newer rows are visible."""

from __future__ import annotations

from dataclasses import replace

from tableferry.assets.log.records import RangeRecord
from tableferry.assets.running.delta import rows_that_differ
from tableferry.assets.running.increment import completed, keys_and_watermarks_of
from tableferry.assets.running.range_attempt import NewerRows, RangeAttempt
from tableferry.checks.delta import StillDiffers
from tableferry.checks.verdict import Verdict
from tableferry.resources.words import counted


def rows_gone(attempt: RangeAttempt, newer: NewerRows) -> RangeAttempt:
    """Restrict an attempt to the rows of the target that the source has no more.

    They are found by comparing the keys and watermarks of all rows.

    Raises:
        StillDiffers: rows came or changed with an older watermark, too.
        TooManyDiffer: the whole range should be moved.
        NotUnique: a row cannot be told by its primary key.
        InputError: to delete the rows would change others.
    """
    restricted = rows_that_differ(attempt, keys_and_watermarks_of(attempt))
    assert restricted.proof is not None
    if moved := restricted.proof.delta.moved:
        raise StillDiffers(f"{counted(moved, 'row')} came or changed with an older watermark")
    return replace(restricted, newer=newer)


def with_rows_gone(
    attempt: RangeAttempt, newer: NewerRows
) -> tuple[RangeRecord, tuple[Verdict, ...]]:
    """Return the record and verdicts of a range from which these rows were removed.

    Raises:
        SourceMoved: the source has changed since it was read.
    """
    assert attempt.proof is not None and attempt.proof.verdict is not None
    record, verdicts = completed(attempt, newer, attempt.proof.verdict)
    return replace(record, deleted=attempt.proof.delta.deleted), verdicts
