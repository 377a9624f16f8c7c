"""Takes the key ranges of a run through its hops, in parallel, each as its reason asks for."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.states import Reason, State
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.decision import COMPARED_FIRST
from tableferry.assets.planning.rows.deltas import compares_first, only_whole
from tableferry.assets.running.audit import (
    CheckFailed,
    MiddleDamaged,
    allowing_extra_rows_in,
    audit_in_place,
    blocking_failures,
    settle,
    verdicts_of,
)
from tableferry.assets.running.delta import rows_gone, rows_that_differ
from tableferry.assets.running.increment import RangeDiffers, newer_rows, proven_whole
from tableferry.assets.running.moving import move
from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.assets.running.work import RangeOutcome, Work
from tableferry.assets.verifying.as_committed import proven_figures, target_digest_of
from tableferry.checks.delta import TooManyDiffer
from tableferry.checks.expectations import ALL_CHECKS
from tableferry.checks.levels import CHECK_NAMES
from tableferry.checks.reconcile import reconcile
from tableferry.checks.verdict import Verdict
from tableferry.resources.connecting import outages
from tableferry.resources.connecting.pace import stop_waiting
from tableferry.resources.connecting.retry import is_transient, retrying
from tableferry.resources.contract.target import TargetMoved
from tableferry.resources.crash_points import reached
from tableferry.resources.digest.fields import not_compared
from tableferry.resources.digest.measure import ROWS
from tableferry.resources.errors import InputError, RowsReferredTo, TableferryError, describe

M_ARENA_MAX, ARENAS = -8, 2
"""Arguments of glibc's mallopt(3)."""


def run_ranges(work: Work, hops: tuple[Hop, ...]) -> list[RangeOutcome]:
    """Take every range of the plan through the hops, in parallel, and return all outcomes.

    A range that fails in a hop goes no further; the others continue.
    """

    _share_arenas()
    outages.forget()

    def outcomes_of(name: str) -> list[RangeOutcome]:
        outcomes: list[RangeOutcome] = []
        for hop in hops:
            if work.stop.is_set():
                break
            outcomes.append(_through(work, hop, name, work.plan.decision(hop, name).reason))
            if not outcomes[-1].good:
                break
            reached("between_hops")
        return outcomes

    with ThreadPoolExecutor(work.workers, thread_name_prefix="range") as pool:
        futures = [pool.submit(outcomes_of, name) for name in work.plan.ranges]
        try:
            return [outcome for future in futures for outcome in future.result()]
        except BaseException:
            work.stop.set()
            stop_waiting()
            for future in futures:
                future.cancel()
            raise


def _share_arenas() -> None:
    """Let threads share few of malloc's arenas, as each keeps the memory of its largest batch."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENAS)


def _through(work: Work, hop: Hop, name: str, reason: Reason) -> RangeOutcome:
    """Take one range through one hop, and retry after transient errors."""
    attempts = 0
    tables = (hop.plan.source, hop.plan.target)
    addresses = {work.servers.endpoint(table).settings().address for table in tables}
    try:
        for again in retrying():
            with again:
                attempts += 1
                for address in addresses:
                    outages.require_reachable(address)
                try:
                    outcome = _attempt(work, hop, name, reason, attempts)
                except TargetMoved:
                    work.refresh(hop, work.plan.ranges[name])
                    raise
                for address in addresses:
                    outages.note_reached(address)
                return outcome
        raise AssertionError("a retry loop ends with a result or an error")
    except Exception as error:
        rejected = error.rejected if isinstance(error, CheckFailed) else None
        problem = describe(error)
        failed = RangeRecord(
            range=name,
            state=State.FAILED,
            data_version=str(work.plan.version(hop, work.source.latest(name).fingerprint)),
            run_id=work.run_id,
            error=work.message(hop, name, problem),
            why=problem,
            attempts=attempts,
            rejected=rejected.name if rejected else None,
        )
        work.writers[hop.number].progress(failed)
        work.tell(hop, name, "failed")
        return RangeOutcome(hop, failed, reason)


def _attempt(work: Work, hop: Hop, name: str, reason: Reason, number: int) -> RangeOutcome:
    """Do what was decided about a range, as long as its source is as planned."""
    if refused := work.refused.get((hop.number, name)):
        raise InputError(refused)
    key_range = work.plan.ranges[name]
    reading = work.source.reading(hop, key_range)
    if not hop.first and not (
        reason is Reason.UNCHANGED and reading.fingerprint == work.plan.fingerprints[name]
    ):
        # asked before the rows are read
        before = work.recorded_before(hop, name)
        figures = proven_figures(before.target_digest) if before and not hop.plan.fitting else None
        reading = replace(reading, before=before, source_figures=figures)
    decision = work.plan.decision(hop, name)
    attempt = RangeAttempt(work, hop, key_range, reading, decision, number, decision.proven)
    try:
        return _as_decided(attempt, reason)
    except Exception as error:
        if not is_transient(error):
            # the source may have lost a column or rows, which a snapshot does not keep
            attempt.require_snapshot()
        raise


def _as_decided(attempt: RangeAttempt, reason: Reason) -> RangeOutcome:
    work, hop, reading = attempt.work, attempt.hop, attempt.reading
    decided = attempt.decision
    in_place = replace(attempt, hop=hop.in_place)
    if reading.fingerprint == work.plan.fingerprints[attempt.name]:
        if reason in (Reason.UNCHANGED, Reason.UNCHECKED):
            if (outcome := _skip(in_place, reason)) is not None:
                return outcome
            reason = Reason.LAST_CHECK_FAILED
        if reason is Reason.PROMOTED:
            return _record_promoted(in_place)
        if reason is Reason.SHADOWED:
            return _check_gathered(attempt)
        # only a move knows the rejected rows
        compared = reason.compared and hop.plan.fitting is None
        if compared and not hop.options.mode.whole_table:
            if (outcome := _skip_if_equal(attempt, reason)) is not None:
                return outcome
            reason = Reason.SOURCE_CHANGED if reason in COMPARED_FIRST else reason
    elif reason.needs_no_move or reason is Reason.SHADOWED:
        if reason.needs_no_move and hop.options.mode.whole_table:
            raise TableferryError(
                "its rows changed after the run was planned, and a swap moves all ranges together; "
                "run it again"
            )
        reason = Reason.SOURCE_CHANGED
    since = None if work.was_refreshed(hop, attempt.name) else decided.since
    if since is None or reason is not Reason.SOURCE_CHANGED:
        return _move_changed(attempt, reason)
    try:
        return move(newer_rows(attempt, since), reason)
    except CheckFailed as error:
        why = str(error)
    except RangeDiffers as error:
        why = str(error)
        if hop.options.removes:
            try:
                return move(rows_gone(attempt, error.newer), reason)
            except TableferryError as refused:
                if is_transient(refused):
                    raise
                why = f"{why}; {describe(refused)}"
    # the audit of the whole range decides; the move includes what was missed
    return _move_changed(replace(attempt, whole_because=why), reason)


def _move_changed(attempt: RangeAttempt, reason: Reason) -> RangeOutcome:
    """Move the rows of a range that differ, if that can be done; otherwise the whole range.

    A range without rows on either side is only recorded.
    """
    work, rows = attempt.work, attempt.reading.fingerprint.rows
    if not rows and (outcome := _commit_empty(attempt, reason)) is not None:
        return outcome
    if work.plan.intent.repair:
        return _repair(attempt, reason)
    if not compares_first(work.plan.transfer, attempt.hop, work.servers, reason, rows):
        return move(attempt, reason)
    planned = attempt.reading.fingerprint == work.plan.fingerprints[attempt.name]
    changed = attempt.decision.changed if planned else ()
    why: list[str | None] = []
    # where the source did not change, others may have changed the target, as the proof shows
    for parts in dict.fromkeys((changed, ())):
        try:
            return move(rows_that_differ(attempt, parts=parts), reason)
        except TableferryError as error:
            if is_transient(error) or isinstance(error, MiddleDamaged | RowsReferredTo):
                raise
            why = [attempt.whole_because, describe(error)]
            if isinstance(error, TooManyDiffer):
                break
    return move(replace(attempt, whole_because="; ".join(filter(None, why))), reason)


def _repair(attempt: RangeAttempt, reason: Reason) -> RangeOutcome:
    """Put right the rows that differ; the range is never moved as a whole.

    Raises:
        InputError: its rows cannot be told, or written, by themselves.
    """
    work, hop, rows = attempt.work, attempt.hop, attempt.reading.fingerprint.rows
    if reason is not Reason.REPAIR:
        raise InputError("it has not been moved yet, so that there is nothing to repair")
    if not compares_first(work.plan.transfer, hop, work.servers, reason, rows):
        why = only_whole(work.plan.transfer, hop)
        raise InputError(
            f"its rows cannot be put right by themselves: {why}; `ferry run --force` moves the "
            "range"
        )
    restricted = rows_that_differ(attempt)
    assert restricted.proof is not None
    found = restricted.proof.comparison.differences
    return move(replace(restricted, repaired=found), reason)


def _commit_empty(attempt: RangeAttempt, reason: Reason) -> RangeOutcome | None:
    """Record a range as committed, if neither side has rows of it; return None if one has.

    Of small tables, these are the open ranges at both ends: to stage nothing takes as many
    statements as to stage rows.
    """
    hop = attempt.hop
    if hop.options.mode.whole_table or attempt.marked_by_moving or not_compared(hop.plan):
        return None
    if hop.plan.fitting:
        return None  # only a move removes what is kept of rows that were rejected before
    attempt.tell("reconcile")
    verdicts = verdicts_of(attempt, hop.plan.target)
    if not all(verdict.passed for verdict in verdicts) or verdicts[0].target[ROWS]:
        return None
    if attempt.reading.is_live:
        attempt.require_source_unchanged()
    attempt.require_snapshot()
    with attempt.marking():
        proven = proven_whole(attempt, extra=False)
        record = attempt.record_of_move(State.FINALISED, rows=0, proven=proven)
        return settle(attempt, record, reason, verdicts)


def _skip_if_equal(attempt: RangeAttempt, reason: Reason) -> RangeOutcome | None:
    """Record a range anew if both sides agree; return None if they do not.

    Its data version does not suffice: the digest's definition has changed, a full check is due, or
    another home has published the range.
    """
    if not_compared(attempt.hop.plan) or attempt.marked_by_moving:
        return None
    target = attempt.hop.plan.target
    verdicts = verdicts_of(attempt, target)
    declared = len(verdicts)
    if not any(verdict.check == CHECK_NAMES["checksum"] for verdict in verdicts):
        verdicts = (*verdicts, reconcile(attempt.comparison(target), "checksum"))
    if not all(verdict.passed for verdict in verdicts):
        attempt.require_source_unchanged()
        verdicts = allowing_extra_rows_in(attempt, verdicts, target)
    if not all(verdict.passed for verdict in verdicts):
        return None
    extra = verdicts[0].target[ROWS] != verdicts[0].source[ROWS]
    attempt = replace(attempt, proven=proven_whole(attempt, extra=extra))
    with attempt.marking():
        digest = target_digest_of(attempt.hop, verdicts)
        return _skipped(attempt, reason, verdicts[:declared], digest)


def _skip(attempt: RangeAttempt, reason: Reason) -> RangeOutcome | None:
    """Record an unchanged range again, after comparing its row count, or all that is declared.

    Without a materialization, Dagster would show a backfill with skipped ranges as failed.

    Returns:
        None if a range that has not been checked yet differs, so that it has to move at once: the
        verdict would not stand if a check of the range found then that its source is newer.
    """
    target = attempt.hop.plan.target
    if reason is Reason.UNCHECKED:
        verdicts = verdicts_of(attempt, target)
    else:
        verdicts = (reconcile(attempt.comparison(target), "count"),)
    if not all(verdict.passed for verdict in verdicts):
        attempt.require_source_unchanged()
        verdicts = allowing_extra_rows_in(attempt, verdicts, target)
    whole_table = attempt.work.plan.transfer.write.whole_table
    if reason is Reason.UNCHECKED and not whole_table and blocking_failures(attempt.work, verdicts):
        return None
    return _skipped(attempt, reason, verdicts)


def _skipped(
    attempt: RangeAttempt,
    reason: Reason,
    verdicts: tuple[Verdict, ...],
    digest: str | None = None,
) -> RangeOutcome:
    """Record a range that was not moved, with the verdicts of its checks, and the target's digest
    if they have none."""
    attempt.require_snapshot()
    failed = blocking_failures(attempt.work, verdicts)
    digest = target_digest_of(attempt.hop, verdicts) or digest
    record = replace(attempt.record_of_skip(), target_digest=digest)
    damaged = []
    if not failed:
        checked = {verdict.check for verdict in verdicts}
        unchecked = [check for check in ALL_CHECKS if check not in checked]
        damaged = attempt.writer.commit_again(record, unchecked)
    attempt.writer.all_checked(attempt.name, reversed(verdicts))
    attempt.tell("skipped")
    problems = [verdict.summary() for verdict in failed]
    problems += [f"{name} FAILED in a check that ran meanwhile; run it again" for name in damaged]
    if problems:
        problem = "; ".join(problems)
        error = attempt.message(problem)
        record = replace(record, state=State.FAILED, error=error, why=problem)
    return RangeOutcome(attempt.hop, record, reason, verdicts)


def _record_promoted(attempt: RangeAttempt) -> RangeOutcome:
    """Check and record a range that a swap has put in place without recording it."""
    record = attempt.record_of_move(State.FINALISED, rows=attempt.reading.fingerprint.rows)
    return audit_in_place(attempt, record, Reason.PROMOTED)


def _check_gathered(attempt: RangeAttempt) -> RangeOutcome:
    """Check a range that an earlier run has gathered in the shadow table.

    The verdicts of that run are lost: they are recorded only with the commit.
    """
    verdicts = verdicts_of(attempt, attempt.hop.written_plan.target)
    if not all(verdict.passed for verdict in verdicts):
        attempt.require_source_unchanged()
    failed = blocking_failures(attempt.work, verdicts)
    attempt.tell("failed" if failed else "shadowed")
    record = attempt.record(
        State.FAILED if failed else State.SHADOWED,
        rows=attempt.reading.fingerprint.rows,
        shadow=attempt.shadow,
        target_digest=target_digest_of(attempt.hop, verdicts),
        error="; ".join(verdict.summary() for verdict in failed) or None,
    )
    return RangeOutcome(attempt.hop, record, Reason.SHADOWED, verdicts)
