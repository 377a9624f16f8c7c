"""Whether a range agrees on both sides: its checks, and what their verdicts mean for it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from assets.log.records import RangeRecord, Reason, State
from assets.planning.resolve import Hop
from assets.running.source_state import Reading
from assets.running.work import Outcome, Work
from assets.verifying.extra_rows import allowing_kept
from assets.verifying.on_demand import explained
from checks.counts import row_count_of
from checks.expectations import run_suite
from checks.reconcile import reconcile, taken_of
from checks.verdict import Level, Verdict
from resources.crash_points import reached
from resources.errors import TableferryError
from resources.keys.range import KeyRange
from resources.tables import TableRef
from resources.target import RangeLoad


class CheckFailed(TableferryError):
    """Source and target of a range do not agree; the check's metadata shows how."""

    rejected: TableRef | None = None
    """Where the rows are kept that nobody got to see."""


def require_unmoved(work: Work, hop: Hop, key_range: KeyRange, reading: Reading) -> None:
    """Raise `SourceMoved` if the difference may be the source's own; later hops read our tables."""
    if hop.number == 1:
        work.source.require_unmoved(key_range, reading)


def audit(
    work: Work, hop: Hop, key_range: KeyRange, reading: Reading, load: RangeLoad
) -> tuple[Verdict, ...]:
    """Check the staged rows of a range against the source, before anybody sees them.

    Raises:
        CheckFailed: a blocking check is not green; the staging table is kept for inspection.
        SourceMoved: because the source is no longer what was read.
    """
    reached("before_audit")
    work.tell(hop, key_range.name, "reconcile")
    table = load.audited_table()
    try:
        verdicts = _require_green(work, hop, key_range, reading, table)
    except CheckFailed as error:
        error.rejected = load.keep_rejected()
        raise
    reached("after_audit")
    return verdicts


def prove(
    work: Work,
    hop: Hop,
    key_range: KeyRange,
    reading: Reading,
    record: RangeRecord,
    reason: Reason,
) -> Outcome:
    """Check a range that is in the target already, and record it as committed if it is right.

    Raises:
        CheckFailed: a blocking check is not green.
        SourceMoved: because the source is no longer what was read.
    """
    work.tell(hop, key_range.name, "reconcile")
    started = time.perf_counter()
    verdicts = _require_green(work, hop, key_range, reading, hop.written_plan.target)
    seconds = {**record.seconds, "reconcile": time.perf_counter() - started}
    return settle(work, hop, replace(record, seconds=seconds), reason, verdicts)


def settle(
    work: Work, hop: Hop, record: RangeRecord, reason: Reason, verdicts: tuple[Verdict, ...]
) -> Outcome:
    """Record a range whose rows are right where they are written to: committed, or shadowed."""
    name, writer = record.range, work.writers[hop.number]
    if hop.options.mode == "swap":
        record = replace(record, state=State.SHADOWED, shadow=work.shadows[hop.number])
        writer.progress(record)
        reached("after_shadowed")
        work.tell(hop, name, "shadowed")
        return Outcome(hop, record, reason, verdicts)
    record = replace(record, state=State.COMMITTED)
    writer.commit(record)
    reached("after_event")
    for verdict in reversed(verdicts):
        writer.checked(name, verdict)
    work.tell(hop, name, "committed")
    return Outcome(hop, record, reason, verdicts)


def _require_green(
    work: Work, hop: Hop, key_range: KeyRange, reading: Reading, table: TableRef
) -> tuple[Verdict, ...]:
    verdicts = verdicts_of(work, hop, key_range, reading, table)
    if not all(verdict.passed for verdict in verdicts):
        require_unmoved(work, hop, key_range, reading)
        verdicts = allowing_kept_rows(work, hop, key_range, reading, verdicts, table)
        snapshot = reading.snapshot if hop.number == 1 else None
        plan = replace(hop.plan, target=table)
        verdicts = tuple(
            explained(plan, work.servers, key_range, verdict, snapshot=snapshot)
            for verdict in verdicts
        )
    blocking = blocking_failures(work, verdicts)
    if blocking:
        for verdict in verdicts:
            work.writers[hop.number].checked(key_range.name, verdict)
        raise CheckFailed("; ".join(verdict.summary() for verdict in blocking))
    return verdicts


def blocking_failures(work: Work, verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The failed ones that keep a range from being committed."""
    return [
        verdict
        for verdict in verdicts
        if not verdict.passed and work.journey.transfer.check_spec(verdict.check).blocking
    ]


def allowing_kept_rows(
    work: Work,
    hop: Hop,
    key_range: KeyRange,
    reading: Reading,
    verdicts: tuple[Verdict, ...],
    table: TableRef,
) -> tuple[Verdict, ...]:
    """The verdicts, passed where the table only has rows besides that its mode keeps."""
    snapshot = reading.snapshot if hop.number == 1 else None
    return allowing_kept(hop, work.servers, key_range, verdicts, table=table, snapshot=snapshot)


def verdicts_of(
    work: Work, hop: Hop, key_range: KeyRange, reading: Reading, table: TableRef
) -> tuple[Verdict, ...]:
    """The row count's verdict, the declared level's, and that of the expectations if there are.

    They are recorded in reverse: the ledger takes the row count for the sign that all are there.

    Args:
        work: the run.
        hop: whose range.
        key_range: the rows to check.
        reading: how the source was read.
        table: where the rows are: staged, in the shadow of a swap, or in the target.
    """
    *_, level = work.levels
    verdict = reconcile_range(work, hop, key_range, level, reading, table)
    verdicts = [verdict]
    if level == "checksum":
        verdicts.insert(0, row_count_of(verdict))
    elif level != "count":
        verdicts.insert(0, reconcile_range(work, hop, key_range, "count", reading, table))
    if suite := work.journey.transfer.suite:
        target = work.servers.endpoint(hop.plan.target.system)
        verdicts.append(run_suite(suite, replace(hop.plan, target=table), target, key_range))
    return tuple(verdicts)


def reconcile_range(
    work: Work, hop: Hop, key_range: KeyRange, level: Level, reading: Reading, table: TableRef
) -> Verdict:
    """Compare the range at one level, as its source was read, with the rows in a table."""
    plan = replace(hop.plan, target=table)
    source = work.servers.endpoint(plan.source.system)
    target = work.servers.endpoint(plan.target.system)
    first = hop.number == 1
    taken = reading.fingerprint.taken if first else work.proven.get((plan.source, key_range.name))
    verdict = reconcile(
        plan,
        source,
        target,
        key_range,
        level,
        snapshot=reading.snapshot if first else None,
        taken=taken,
    )
    # other modes may publish less or more than what is staged
    staged_whole = hop.options.mode == "replace" and hop.number < len(work.journey.hops)
    if level == "checksum" and verdict.passed and staged_whole:
        found = taken_of(plan, source, target, verdict)
        work.proven[hop.plan.target, key_range.name] = found
    return verdict
