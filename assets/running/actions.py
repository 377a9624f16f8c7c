"""What is done with a key range of a hop: the actions, each with what it records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from tableferry.assets.log.states import Reason, State
from tableferry.assets.planning.rows.actions import action_of_move
from tableferry.assets.planning.rows.decision import MAY_BE_EQUAL, Action
from tableferry.assets.planning.rows.deltas import only_whole
from tableferry.assets.planning.snapshots import SnapshotTooOld
from tableferry.assets.running import audit
from tableferry.assets.running.moving import move
from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.assets.running.rows import (
    RangeDiffers,
    RowSet,
    newer_rows,
    proven_whole,
    rows_gone,
    rows_that_differ,
)
from tableferry.assets.running.work import RangeOutcome
from tableferry.assets.verifying.as_committed import with_digest
from tableferry.checks.delta import TooManyDiffer
from tableferry.checks.expectations import ALL_CHECKS
from tableferry.checks.levels import BY_CHECK, CHECK_NAMES, GONE, Level
from tableferry.checks.reconcile import reconcile
from tableferry.checks.verdict import Verdict
from tableferry.resources import crash_points, errors
from tableferry.resources.connecting.guard import SourceBusy
from tableferry.resources.connecting.retry import is_transient
from tableferry.resources.digest.measure import ROWS


def act(attempt: RangeAttempt) -> RangeOutcome:
    """Do what was decided about a range.

    Where its source has changed since, there is nothing to record without a move.

    Raises:
        TableferryError: a range has changed that other ranges of a swap are gathered with.
    """
    decision = attempt.decision
    if attempt.is_as_planned or decision.action.moves:
        return ACTIONS[decision.action](attempt, decision.reason)
    if decision.reason.needs_no_move and attempt.work.plan.transfer.write.whole_table:
        raise errors.TableferryError(
            "its rows changed after the run was planned, and a swap moves all ranges together; "
            "run it again"
        )
    if decision.action is Action.COMPARE:
        return _otherwise(attempt, decision.reason, "the source has changed while it was compared")
    return _move_rows(attempt, Reason.SOURCE_CHANGED)


def _skip(attempt: RangeAttempt, reason: Reason) -> RangeOutcome:
    """Record an unchanged range again, after comparing its row count.

    Without a materialization, Dagster would show a backfill with skipped ranges as failed.
    """
    both = attempt.comparison(attempt.hop.plan.target)
    counted = audit.allowing_kept(attempt, both, [reconcile(both, "count")])
    return _record_again(attempt, reason, counted)


def _recheck(attempt: RangeAttempt, reason: Reason) -> RangeOutcome:
    """Record an unchanged range again, after comparing all that is declared.

    If it differs, it has to move at once: the verdict would not stand if a check of the range found
    then that its source is newer.
    """
    work = attempt.work
    verdicts = audit.verdicts_of(attempt, attempt.hop.plan.target)
    if work.plan.transfer.write.whole_table or not audit.blocking_failures(work, verdicts):
        return _record_again(attempt, reason, verdicts)
    return _move_rows(attempt, Reason.LAST_CHECK_FAILED)


def _compare(attempt: RangeAttempt, reason: Reason) -> RangeOutcome:
    """Record a range anew if both sides agree, and move it, or leave it, if they do not.

    Its data version does not suffice: the digest's definition has changed, a full check is due,
    another home has published the range, or no run of this one has moved it.
    """
    adopts, moved_as = attempt.work.plan.intent.adopt, reason
    if not adopts and reason in MAY_BE_EQUAL:
        moved_as = Reason.SOURCE_CHANGED
    only_by_moving = _only_by_moving(attempt)
    if only_by_moving and not adopts:
        return _move_rows(attempt, moved_as)
    levels = attempt.work.levels
    # a level that is not declared may have found the range to differ: it has to find it equal
    also = [
        level
        for level, check in CHECK_NAMES.items()
        if check in attempt.decision.failed and level not in levels
    ]
    digested: list[Level] = [] if "checksum" in (*levels, *also) else ["checksum"]
    verdicts = audit.verdicts_of(attempt, attempt.hop.plan.target, [*also, *digested])
    recorded = len(verdicts) - len(digested)
    blocking = audit.blocking_failures(attempt.work, verdicts)
    failed = [each for each in verdicts if not each.passed]
    if differing := [each for each in failed if each.check in BY_CHECK or each in blocking]:
        return _otherwise(attempt, moved_as, differing[-1].summary(), verdicts)
    if only_by_moving:
        return _otherwise(attempt, moved_as, only_by_moving, verdicts)
    if not attempt.work.run_id:
        return RangeOutcome(attempt.hop, attempt.record(State.ADOPTED), reason, verdicts)
    attempt.require_source_unchanged()
    extra = verdicts[0].target[ROWS] != verdicts[0].source[ROWS]
    attempt = replace(attempt, proven=proven_whole(attempt, extra=extra))
    with attempt.marking(always=bool(adopts)):
        if not adopts:
            return _record_again(attempt, reason, verdicts[:recorded], compared=verdicts)
        crash_points.reached("after_adopted_marker")
        record = attempt.record_of_move(
            State.ADOPTED,
            rows=attempt.reading.fingerprint.rows,
            proven=attempt.proven,
            **attempt.changed(),
        )
        record = with_digest(record, attempt.hop, verdicts)
        attempt.writer.record_commit(record, reversed(verdicts))
        crash_points.reached("after_event")
        return RangeOutcome(attempt.hop, record, reason, verdicts)


def _only_by_moving(attempt: RangeAttempt) -> str:
    """Why a range cannot be recorded without a move, however equal it is; empty if it can."""
    hop = attempt.hop
    if hop.only_moved:
        return hop.only_moved
    if any(check in GONE for check in attempt.decision.failed):
        return "nothing can find it to be equal"
    if not attempt.marked_by_moving:
        return ""
    if hop.plan.target.system.by_path:
        return "its marker is part of its file, which only a move writes"
    return "another run was about to publish it, and may still do so"


def _otherwise(
    attempt: RangeAttempt, reason: Reason, why: str, verdicts: tuple[Verdict, ...] = ()
) -> RangeOutcome:
    """Move a range that is not recorded as it is, or leave it to the next run, and say why."""
    if attempt.work.plan.intent.adopt:
        record = attempt.record(State.FAILED, why=why)
        return RangeOutcome(attempt.hop, record, reason, verdicts)
    return _move_rows(attempt, reason)


def _record(attempt: RangeAttempt, reason: Reason) -> RangeOutcome:
    """Check and record a range that an earlier run has gathered for a swap: in the shadow table,
    or in the target, if that was put in place without being recorded.

    The verdicts of that run are lost: they are recorded only with the commit.

    Raises:
        CheckFailed: a blocking check failed.
    """
    attempt.tell("reconcile")
    started = time.perf_counter()
    verdicts = audit.require_green(attempt, attempt.hop.written_plan.target)
    attempt.require_snapshot()
    gathered = attempt.recorded
    record = attempt.record_of_move(
        State.FINALISED,
        rows=attempt.reading.fingerprint.rows,
        seconds={"reconcile": time.perf_counter() - started},
        counts=gathered.counts if gathered else {},
        cast=gathered.cast if gathered else {},
    )
    return audit.settle(attempt, record, reason, verdicts, gathered=reason is Reason.SHADOWED)


def _move_rows(attempt: RangeAttempt, reason: Reason) -> RangeOutcome:
    """Move a range that an action has found to differ, or could not do otherwise."""
    work, rows = attempt.work, attempt.reading.fingerprint.rows
    return ACTIONS[action_of_move(work.plan, attempt.hop, work.servers, reason, rows)](
        attempt, reason
    )


def _move_all(attempt: RangeAttempt, reason: Reason) -> RangeOutcome:
    """Move the whole range; one without rows on either side is only recorded."""
    return _record_empty(attempt, reason) or move(RowSet(attempt), reason)


def _move_differing(attempt: RangeAttempt, reason: Reason) -> RangeOutcome:
    """Move the rows that differ, or the whole range if they are too many or cannot be told."""
    if (outcome := _record_empty(attempt, reason)) is not None:
        return outcome
    changed = attempt.decision.changed if attempt.is_as_planned else ()
    why: list[str | None] = []
    # where the source did not change, others may have changed the target, as the proof shows
    for parts in dict.fromkeys((changed, ())):
        try:
            return move(rows_that_differ(attempt, parts=parts), reason)
        except errors.TableferryError as error:
            if _helps_no_whole(error):
                raise
            why = [attempt.whole_because, errors.describe(error)]
            if isinstance(error, TooManyDiffer):
                break
    return move(RowSet(replace(attempt, whole_because="; ".join(filter(None, why)))), reason)


def _helps_no_whole(error: errors.TableferryError) -> bool:
    """Whether an error says nothing against moving some rows: all of them would meet it, too."""
    met = audit.MiddleDamaged | errors.RowsReferredTo | SourceBusy | SnapshotTooOld | errors.SetLost
    return is_transient(error) or isinstance(error, met)


def _move_newer(attempt: RangeAttempt, reason: Reason) -> RangeOutcome:
    """Move the rows from a watermark on, and remove those that are gone.

    If the range differs nevertheless, the audit of all of its rows decides; the move of the others
    includes what was missed.
    """
    since = attempt.decision.since
    if since is None or attempt.work.was_refreshed(attempt.hop, attempt.name):
        return _move_rows(attempt, reason)
    try:
        return move(newer_rows(attempt, since), reason)
    except audit.CheckFailed as error:
        why = str(error)
    except RangeDiffers as error:
        why = str(error)
        if attempt.hop.options.removes:
            try:
                return move(rows_gone(attempt, error.newer), reason)
            except errors.TableferryError as refused:
                if _helps_no_whole(refused):
                    raise
                why = f"{why}; {errors.describe(refused)}"
    return _move_rows(replace(attempt, whole_because=why), reason)


def _repair(attempt: RangeAttempt, reason: Reason) -> RangeOutcome:
    """Put right the rows that differ; the range is never moved as a whole.

    Raises:
        InputError: its rows cannot be told, or written, by themselves.
    """
    if (outcome := _record_empty(attempt, reason)) is not None:
        return outcome
    if reason is not Reason.REPAIR:
        raise errors.InputError("it has not been moved yet, so that there is nothing to repair")
    if why := only_whole(attempt.work.plan.transfer, attempt.hop):
        raise errors.InputError(
            f"its rows cannot be put right by themselves: {why}; `ferry run --force` moves the "
            "range"
        )
    rows = rows_that_differ(attempt)
    return move(replace(rows, repaired=rows.delta.comparison.differences), reason)


ACTIONS: Mapping[Action, Callable[[RangeAttempt, Reason], RangeOutcome]] = {
    Action.SKIP: _skip,
    Action.RECHECK: _recheck,
    Action.COMPARE: _compare,
    Action.RECORD: _record,
    Action.MOVE_ALL: _move_all,
    Action.MOVE_DIFFERING: _move_differing,
    Action.MOVE_NEWER: _move_newer,
    Action.REPAIR: _repair,
}
"""How each action is taken, for a reason that the log is told."""


def _record_empty(attempt: RangeAttempt, reason: Reason) -> RangeOutcome | None:
    """Record a range as committed, if neither side has rows of it; return None if one has.

    Of small tables, these are the open ranges at both ends: to stage nothing takes as many
    statements as to stage rows.
    """
    hop = attempt.hop
    # of rows that were rejected before, only a move removes what is kept
    if attempt.reading.fingerprint.rows or attempt.marked_by_moving or hop.only_moved:
        return None
    attempt.tell("reconcile")
    verdicts = audit.verdicts_of(attempt, hop.plan.target)
    if not all(verdict.passed for verdict in verdicts) or verdicts[0].target[ROWS]:
        return None
    if attempt.reading.is_live:
        attempt.require_source_unchanged()
    attempt.require_snapshot()
    with attempt.marking():
        proven = proven_whole(attempt, extra=False)
        record = attempt.record_of_move(State.FINALISED, rows=0, proven=proven)
        return audit.settle(attempt, record, reason, verdicts)


def _record_again(
    attempt: RangeAttempt,
    reason: Reason,
    verdicts: tuple[Verdict, ...],
    *,
    compared: tuple[Verdict, ...] = (),
) -> RangeOutcome:
    """Record a range that was not moved, with the verdicts of its checks, and the target's digest
    by all that was compared."""
    attempt.require_snapshot()
    failed = audit.blocking_failures(attempt.work, verdicts)
    record = with_digest(attempt.record_of_skip(), attempt.hop, compared or verdicts)
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
