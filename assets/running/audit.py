"""Whether a range agrees on both sides: its checks, and what their verdicts mean for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.states import Reason, State
from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.assets.running.work import RangeOutcome, Work
from tableferry.assets.verifying.as_committed import (
    changed_since,
    digest_of,
    may_be_as_committed,
    with_digest,
)
from tableferry.assets.verifying.whole_tables import allowing_extra_rows
from tableferry.checks.expectations import run_suite
from tableferry.checks.levels import CHECK_NAMES, LEVELS, Level
from tableferry.checks.reconcile import reconcile, row_count_of
from tableferry.checks.sides import Comparison
from tableferry.checks.table_side import TableSide
from tableferry.checks.verdict import Verdict
from tableferry.resources.crash_points import reached
from tableferry.resources.digest.measure import ROWS
from tableferry.resources.errors import TableferryError
from tableferry.resources.tables import TableRef


class CheckFailed(TableferryError):
    """Source and target of a range disagree; the check's metadata shows how."""

    rejected: TableRef | None = None
    """The table that keeps the rejected rows."""


class MiddleDamaged(TableferryError):
    """The table between two hops has other rows than the hop before has proved."""


def require_proven_source(
    attempt: RangeAttempt, compared: str | None, rows: int | None = None
) -> None:
    """Require what a later hop has read of a range to be what the hop before has proved.

    To be called once it has been compared with the target: damage that is done after that is not in
    the target. If the hop before did prove digests, its target is read only if these are not
    `compared`, and if it did prove no more than the number of rows, only if that is not `rows`; its
    failed verdict is recorded, so that the next run puts it right.

    Args:
        attempt: the attempt on the range.
        compared: the digest of the rows that were read, as in `RangeRecord.target_digest`, if the
            target has the same.
        rows: the number of rows that were read, if these are all rows of the range.

    Raises:
        MiddleDamaged: somebody has changed them since.
    """
    work, before = attempt.work, attempt.reading.before
    if before is None or (before.target_digest and before.target_digest == compared):
        return
    hop, level = work.hop_before(attempt.hop), work.plan.transfer.reconcile
    if not before.target_digest and rows is not None and may_be_as_committed(hop, before, rows):
        return
    known = {attempt.name: before}
    verdict = changed_since(hop, work.servers, [attempt.key_range], known).get(attempt.name)
    if verdict is None:
        return
    if before.target_digest and level != "count":
        verdict = replace(verdict, check=CHECK_NAMES[level])
    if work.run_id:
        work.writers[hop.number].checked(attempt.name, verdict)
    raise MiddleDamaged(
        f"{hop.plan.target} has other rows than hop {hop.number} has proved there: "
        f"{verdict.summary()}; nothing of it was published, and the next run of hop {hop.number} "
        "puts it right"
    )


def settle(
    attempt: RangeAttempt,
    record: RangeRecord,
    reason: Reason,
    verdicts: tuple[Verdict, ...],
    *,
    gathered: bool = False,
) -> RangeOutcome:
    """Record a range whose rows passed: committed, or gathered in a shadow table.

    Args:
        attempt: the attempt on the range.
        record: what is recorded of it.
        reason: why the range was looked at.
        verdicts: the checks that its rows passed.
        gathered: an earlier run has recorded that it gathered the rows.
    """
    hop, writer = attempt.hop, attempt.writer
    record = attempt.with_unfilled(record)
    if record.since is None:  # else the verdicts have the digests of some rows
        record = with_digest(record, hop, verdicts)
    if hop.options.mode.whole_table:
        record = replace(record, state=State.SHADOWED, shadow=attempt.shadow)
        if not gathered:
            writer.progress(record)
        reached("after_shadowed")
        attempt.tell("shadowed")
        return RangeOutcome(hop, record, reason, verdicts)
    record = replace(record, state=State.COMMITTED, **attempt.columns_at_end)
    writer.record_commit(record, reversed(verdicts))
    attempt.work.showed_columns.add(hop.number)
    reached("after_event")
    attempt.tell("committed")
    return RangeOutcome(hop, record, reason, verdicts)


def require_green(attempt: RangeAttempt, table: TableRef) -> tuple[Verdict, ...]:
    """Return the verdicts on the range's rows in a table, if none of them prevents a commit.

    Raises:
        CheckFailed: a blocking check failed; its differing rows are recorded.
        SourceMoved: the source has changed since it was read.
    """
    verdicts = tuple(map(attempt.comparison(table).explained, verdicts_of(attempt, table)))
    if blocking := blocking_failures(attempt.work, verdicts):
        attempt.writer.all_checked(attempt.name, verdicts)
        raise CheckFailed("; ".join(verdict.summary() for verdict in blocking))
    return verdicts


def blocking_failures(work: Work, verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the failed verdicts that prevent a commit."""
    return [
        verdict
        for verdict in verdicts
        if not verdict.passed and work.plan.transfer.check_spec(verdict.check).blocking
    ]


def verdicts_of(
    attempt: RangeAttempt, table: TableRef, also: Sequence[Level] = ()
) -> tuple[Verdict, ...]:
    """Return the verdicts of the row count, the declared level and the expectations.

    They are recorded in reverse: the ledger takes the row count as the sign that all are there.

    Args:
        attempt: the attempt on the range.
        table: the table with the rows: staging table, shadow table or target.
        also: other levels, whose verdicts follow.

    Raises:
        MiddleDamaged: a later hop reads other rows than the hop before has proved.
        SourceMoved: both sides differ, as the source has changed since it was read.
    """
    *_, level = attempt.work.levels
    both = attempt.comparison(table)
    verdict = reconcile(both, level)
    verdicts = [verdict]
    if LEVELS[level].compares == "sums":
        verdicts.insert(0, row_count_of(verdict))
    elif level != "count":
        verdicts.insert(0, reconcile(both, "count"))
    if suite := attempt.work.plan.transfer.suite:
        plan = replace(attempt.hop.plan, target=table)
        target = TableSide(plan, "target", attempt.target)
        verdicts.append(run_suite(suite, target, attempt.key_range))
    verdicts += [reconcile(both, each) for each in also]
    compared = digest_of(verdict, "source") if verdict.passed else None
    whole = attempt.reading.since is None and attempt.hop.plan.condition is None
    rows = verdicts[0].source[ROWS] if whole else None
    require_proven_source(attempt, compared, rows)
    return allowing_kept(attempt, both, verdicts)


def allowing_kept(
    attempt: RangeAttempt, both: Comparison, verdicts: Sequence[Verdict]
) -> tuple[Verdict, ...]:
    """Pass verdicts that failed only because of rows that the write mode keeps.

    Raises:
        SourceMoved: they failed as the source has changed since it was read.
    """
    if not all(verdict.passed for verdict in verdicts):
        attempt.require_source_unchanged()
    return allowing_extra_rows(attempt.hop, both, verdicts)
