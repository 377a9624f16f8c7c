"""Moves or removes only the rows by which a range differs, and records what they complete."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tableferry.assets.log.records import RangeRecord
from tableferry.assets.planning.hazards import require_harmless, with_hazards
from tableferry.assets.planning.rows.deltas import most_rows
from tableferry.assets.running.audit import require_green, require_proven_source
from tableferry.assets.running.increment import (
    NewerRows,
    completed,
    keys_and_watermarks_of,
    proven_whole,
)
from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.assets.verifying.as_committed import digest_text, with_digest
from tableferry.assets.verifying.extra_rows import with_extra_rows
from tableferry.checks.delta import RangeProof, StillDiffers, delta_in, delta_of
from tableferry.checks.reconcile import row_count_of
from tableferry.checks.sides import Comparison
from tableferry.checks.verdict import Verdict
from tableferry.resources.contract.target_options import keeps_rows
from tableferry.resources.digest.measure import ROWS
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.words import counted


def rows_that_differ(
    attempt: RangeAttempt, comparison: Comparison | None = None, parts: Sequence[KeyRange] = ()
) -> RangeAttempt:
    """Compare both sides of a range, and restrict an attempt to the rows that differ.

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
    rows, delta = reading.fingerprint.rows, None
    most = most_rows(work.plan.transfer, hop, rows)
    with work.exports:
        if parts and reading.source_figures is not None:
            delta = delta_in(comparison, parts, reading.source_figures, most=most)
        if delta is None:
            keeps = keeps_rows(hop.plan, hop.options)
            delta = delta_of(comparison, rows=rows, most=most, keeps=keeps)
    require_proven_source(attempt, digest_text(delta.source), int(delta.source.figures[ROWS]))
    proof = RangeProof(comparison, delta, time.perf_counter() - began)
    options = replace(hop.options, delta=delta, proof=proof.prove)
    # a whole move is written by other statements
    (hop,) = with_hazards([replace(hop, options=options)], work.servers)
    require_harmless([hop])
    return replace(attempt, hop=hop, proof=proof, completed=_with_proven_range)


def _with_proven_range(
    attempt: RangeAttempt, record: RangeRecord, _verdicts: tuple[Verdict, ...]
) -> tuple[RangeRecord, tuple[Verdict, ...]]:
    """Return the record and the verdicts of a range whose delta has become visible.

    The levels that compare rows read all of them, as no other session saw them before the commit.

    Raises:
        CheckFailed: they differ.
        SourceMoved: the source has changed since it was read.
    """
    assert attempt.proof is not None and attempt.proof.verdict is not None
    whole, delta, work = attempt.proof.verdict, attempt.proof.delta, attempt.work
    kept, _ = delta.kept
    *_, level = work.levels
    if level not in ("count", "checksum"):
        verdicts = require_green(attempt, attempt.hop.plan.target)
    else:
        rows = replace(row_count_of(whole), passed=True, disagreeing=())
        proven = [rows, whole][: len(work.levels)]
        verdicts = tuple(with_extra_rows(each, kept) if kept else each for each in proven)
    record = replace(
        record,
        rows=int(whole.source["rows"]),
        rows_moved=delta.moved,
        inserted=delta.inserted,
        updated=delta.updated,
        deleted=delta.deleted,
        proven=proven_whole(attempt, extra=bool(kept)),
    )
    return with_digest(record, attempt.hop, [whole]), verdicts


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
    return replace(restricted, completed=partial(_with_rows_gone, newer))


def _with_rows_gone(
    newer: NewerRows, attempt: RangeAttempt, _record: RangeRecord, _verdicts: tuple[Verdict, ...]
) -> tuple[RangeRecord, tuple[Verdict, ...]]:
    """Return the record and verdicts of a range from which these rows were removed.

    Raises:
        SourceMoved: the source has changed since it was read.
    """
    assert attempt.proof is not None and attempt.proof.verdict is not None
    record, verdicts = completed(attempt, newer, attempt.proof.verdict)
    return replace(record, deleted=attempt.proof.delta.deleted), verdicts
