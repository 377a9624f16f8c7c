"""Whether a range agrees on both sides: its checks, and what their verdicts mean for it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from assets.journey import Hop
from assets.kept import allowing_kept
from assets.records import RangeRecord, Reason, State
from assets.source import Reading
from assets.verification import explained
from assets.work import Outcome, Work
from checks.counts import row_count_of
from checks.expectations import run_suite
from checks.reconcile import reconcile
from checks.verdict import Level, Verdict
from resources.debug import reached
from resources.errors import TableferryError
from resources.keyrange import KeyRange


class CheckFailed(TableferryError):
    """Source and target of a range do not agree; the check's metadata shows how."""


def require_unmoved(work: Work, hop: Hop, key_range: KeyRange, reading: Reading) -> None:
    """Raise `SourceMoved` if the difference may be the source's own; later hops read our tables."""
    if hop.number == 1:
        work.source.require_unmoved(key_range, reading)


def prove(
    work: Work,
    hop: Hop,
    key_range: KeyRange,
    reading: Reading,
    record: RangeRecord,
    reason: Reason,
) -> Outcome:
    """Reconcile a finalised range, and record it as committed if the checks are green.

    Raises:
        CheckFailed: a blocking one is not.
        SourceMoved: because the source is no longer what was read.
    """
    name, writer = key_range.name, work.writers[hop.number]
    work.tell(hop, name, "reconcile")
    started = time.perf_counter()
    verdicts = verdicts_of(work, hop, key_range, reading)
    seconds = {**record.seconds, "reconcile": time.perf_counter() - started}
    if not all(verdict.passed for verdict in verdicts):
        require_unmoved(work, hop, key_range, reading)
        verdicts = allowing_kept_rows(work, hop, key_range, reading, verdicts)
        snapshot = reading.snapshot if hop.number == 1 else None
        verdicts = tuple(
            explained(hop.written_plan, work.servers, key_range, verdict, snapshot=snapshot)
            for verdict in verdicts
        )
    blocking = blocking_failures(work, verdicts)
    if blocking:
        for verdict in verdicts:
            writer.checked(name, verdict)
        raise CheckFailed("; ".join(verdict.summary() for verdict in blocking))
    if hop.options.mode == "swap":
        shadow = work.shadows[hop.number]
        record = replace(record, state=State.SHADOWED, seconds=seconds, shadow=shadow)
        writer.progress(record)
        reached("after_shadowed")
        work.tell(hop, name, "shadowed")
        return Outcome(hop, record, reason, verdicts)
    record = replace(record, state=State.COMMITTED, seconds=seconds)
    writer.commit(record)
    reached("after_event")
    for verdict in reversed(verdicts):
        writer.checked(name, verdict)
    work.tell(hop, name, "committed")
    return Outcome(hop, record, reason, verdicts)


def blocking_failures(work: Work, verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The failed ones that keep a range from being committed."""
    return [
        verdict
        for verdict in verdicts
        if not verdict.passed and work.journey.transfer.check_spec(verdict.check).blocking
    ]


def allowing_kept_rows(
    work: Work, hop: Hop, key_range: KeyRange, reading: Reading, verdicts: tuple[Verdict, ...]
) -> tuple[Verdict, ...]:
    """The verdicts, passed where the target only has rows besides that its mode keeps."""
    snapshot = reading.snapshot if hop.number == 1 else None
    return allowing_kept(hop, work.servers, key_range, verdicts, snapshot=snapshot)


def verdicts_of(work: Work, hop: Hop, key_range: KeyRange, reading: Reading) -> tuple[Verdict, ...]:
    """The row count's verdict, the declared level's, and that of the expectations if there are.

    They are recorded in reverse: the ledger takes the row count for the sign that all are there.
    """
    *_, level = work.levels
    verdict = reconcile_range(work, hop, key_range, level, reading)
    verdicts = [verdict]
    if level == "checksum":
        verdicts.insert(0, row_count_of(verdict))
    elif level != "count":
        verdicts.insert(0, reconcile_range(work, hop, key_range, "count", reading))
    if suite := work.journey.transfer.suite:
        target = work.servers.endpoint(hop.plan.target.system)
        verdicts.append(run_suite(suite, hop.written_plan, target, key_range))
    return tuple(verdicts)


def reconcile_range(
    work: Work, hop: Hop, key_range: KeyRange, level: Level, reading: Reading
) -> Verdict:
    """Compare the range at one level, as its source was read."""
    return reconcile(
        hop.written_plan,
        work.servers.endpoint(hop.plan.source.system),
        work.servers.endpoint(hop.plan.target.system),
        key_range,
        level,
        snapshot=reading.snapshot if hop.number == 1 else None,
    )
