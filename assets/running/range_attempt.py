"""Moves key ranges through the hops of a transfer: export, load, finalise, reconcile, record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa

from assets.log.records import RangeRecord, Reason, State
from assets.planning.drift import column_schema
from assets.planning.resolve import ALL_CHECKS, Hop
from assets.running.prefetch import Prefetch
from assets.running.source_state import Reading, SourceMoved
from assets.running.work import SETTLED, Outcome, Work
from assets.verifying.audit import (
    CheckFailed,
    allowing_kept_rows,
    audit,
    blocking_failures,
    prove,
    reconcile_range,
    require_unmoved,
    settle,
    verdicts_of,
)
from assets.verifying.extra_rows import with_kept
from checks.verdict import CHECK_NAMES, Verdict
from resources.artifacts import Artifact
from resources.crash_points import reached
from resources.delimited import Framing, framed_rows
from resources.digest.fields import not_compared
from resources.errors import InputError, ReceiptMismatch, TableferryError, describe
from resources.keys.range import KeyRange
from resources.retry import retrying
from resources.sqlserver.source import read_tab_separated
from resources.target import RangeLoad, Target, TargetOptions, written_to
from resources.types.conform import conform, schema


def run_ranges(
    work: Work, hops: tuple[Hop, ...], reasons: Mapping[int, Mapping[str, Reason]]
) -> list[Outcome]:
    """Take every range of the journey through the hops, in parallel; returns all outcomes.

    A range that fails in a hop goes no further; the others go on.
    """

    def journey_of(name: str) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for hop in hops:
            if work.stop.is_set():
                break
            outcomes.append(_range_through(work, hop, name, reasons[hop.number][name]))
            if not outcomes[-1].good:
                break
            reached("between_hops")
        return outcomes

    with ThreadPoolExecutor(work.workers, thread_name_prefix="range") as pool:
        futures = [pool.submit(journey_of, name) for name in work.journey.ranges]
        try:
            return [outcome for future in futures for outcome in future.result()]
        except BaseException:
            work.stop.set()
            for future in futures:
                future.cancel()
            raise


def _range_through(work: Work, hop: Hop, name: str, reason: Reason) -> Outcome:
    attempts = 0
    try:
        for attempt in retrying():
            with attempt:
                attempts += 1
                return _attempt(work, hop, work.journey.ranges[name], reason, attempts)
        raise AssertionError("a retry loop ends with a result or an error")
    except Exception as error:
        message = _message(work, hop, name, describe(error))
        rejected = error.rejected if isinstance(error, CheckFailed) else None
        failed = RangeRecord(
            range=name,
            state=State.FAILED,
            data_version=str(work.journey.version(hop, work.source.latest(name).fingerprint)),
            run_id=work.run_id,
            error=message,
            attempts=attempts,
            rejected=rejected.name if rejected else None,
        )
        work.writers[hop.number].progress(failed)
        work.tell(hop, name, "failed")
        return Outcome(hop, failed, reason)


def _message(work: Work, hop: Hop, name: str, problem: str) -> str:
    return f"{work.journey.transfer.transfer}: {hop.plan.target} range {name}: {problem}"


def _attempt(work: Work, hop: Hop, key_range: KeyRange, reason: Reason, number: int) -> Outcome:
    """Do what the plan says of a range, unless its source is no longer what was planned from."""
    name = key_range.name
    if refused := work.refused.get((hop.number, name)):
        raise InputError(refused)
    reading = work.source.reading(key_range) if hop.number == 1 else work.source.latest(name)
    if reading.fingerprint == work.journey.fingerprints[name]:
        if reason in (Reason.UNCHANGED, Reason.UNCHECKED):
            return _skip(work, hop.in_place, key_range, reading, reason)
        if reason is Reason.PROMOTED:
            return _promoted(work, hop.in_place, key_range, reading, number)
        if reason is Reason.SHADOWED:
            return _gathered(work, hop, key_range, reading)
        if reason is Reason.DIGEST_CHANGED and hop.options.mode != "swap":
            if (outcome := _verified(work, hop, key_range, reading)) is not None:
                return outcome
            reason = Reason.SOURCE_CHANGED
    elif reason in (*SETTLED, Reason.SHADOWED):
        if reason in SETTLED and hop.options.mode == "swap":
            raise TableferryError(
                "its rows changed after the run was planned, and a swap moves all ranges together; "
                "run it again"
            )
        reason = Reason.SOURCE_CHANGED
    return _move(work, hop, key_range, reading, reason, number)


def _verified(work: Work, hop: Hop, key_range: KeyRange, reading: Reading) -> Outcome | None:
    """Record a range anew whose data version says nothing, if both sides agree; else None.

    That is so where the row digest was defined otherwise when the range was committed.
    """
    if not_compared(hop.plan):
        return None
    target = hop.plan.target
    verdicts = verdicts_of(work, hop, key_range, reading, target)
    proof = next((one for one in verdicts if one.check == CHECK_NAMES["checksum"]), None)
    proof = proof or reconcile_range(work, hop, key_range, "checksum", reading, target)
    if not all(verdict.passed for verdict in (*verdicts, proof)):
        return None
    return _recorded(work, hop, key_range, reading, Reason.DIGEST_CHANGED, verdicts)


def _skip(work: Work, hop: Hop, key_range: KeyRange, reading: Reading, reason: Reason) -> Outcome:
    """Record an unchanged range again, with its row count verified anew.

    Without a materialization Dagster would call a backfill with skipped ranges failed.
    """
    target = hop.plan.target
    if reason is Reason.UNCHECKED:
        verdicts = verdicts_of(work, hop, key_range, reading, target)
    else:
        verdicts = (reconcile_range(work, hop, key_range, "count", reading, target),)
    if not all(verdict.passed for verdict in verdicts):
        require_unmoved(work, hop, key_range, reading)
        verdicts = allowing_kept_rows(work, hop, key_range, reading, verdicts, target)
    return _recorded(work, hop, key_range, reading, reason, verdicts)


def _recorded(
    work: Work,
    hop: Hop,
    key_range: KeyRange,
    reading: Reading,
    reason: Reason,
    verdicts: tuple[Verdict, ...],
) -> Outcome:
    """Record a range that was not moved, with what its checks found."""
    failed = blocking_failures(work, verdicts)
    record = RangeRecord(
        range=key_range.name,
        state=State.SKIPPED_UNCHANGED,
        data_version=str(work.journey.version(hop, reading.fingerprint)),
        run_id=work.run_id,
        rows=reading.fingerprint.rows,
    )
    writer = work.writers[hop.number]
    found = []
    if not failed:
        done = {verdict.check for verdict in verdicts}
        found = writer.commit_again(record, [one for one in ALL_CHECKS if one not in done])
    for verdict in reversed(verdicts):
        writer.checked(key_range.name, verdict)
    work.tell(hop, key_range.name, "skipped")
    problems = [verdict.summary() for verdict in failed]
    problems += [f"{name} FAILED in a check that ran meanwhile; run it again" for name in found]
    if problems:
        error = _message(work, hop, key_range.name, "; ".join(problems))
        record = replace(record, state=State.FAILED, error=error)
    return Outcome(hop, record, reason, verdicts)


def _promoted(work: Work, hop: Hop, key_range: KeyRange, reading: Reading, attempt: int) -> Outcome:
    """A range that a swap has put in place, but not recorded: proven and recorded now."""
    record = RangeRecord(
        range=key_range.name,
        state=State.FINALISED,
        data_version=str(work.journey.version(hop, reading.fingerprint)),
        run_id=work.run_id,
        rows=reading.fingerprint.rows,
        fingerprint=reading.fingerprint.value if hop.number == 1 else None,
        source_server=work.identities[hop.plan.source.system],
        target_server=work.identities[hop.plan.target.system],
        attempts=attempt,
        schema=column_schema(hop.plan),
    )
    return prove(work, hop, key_range, reading, record, Reason.PROMOTED)


def _gathered(work: Work, hop: Hop, key_range: KeyRange, reading: Reading) -> Outcome:
    """A range that an earlier run left in the shadow table, proven anew.

    The verdicts of that run went with it: they are recorded with the commit only.
    """
    shadow = hop.written_plan.target
    verdicts = verdicts_of(work, hop, key_range, reading, shadow)
    if not all(verdict.passed for verdict in verdicts):
        require_unmoved(work, hop, key_range, reading)
    failed = blocking_failures(work, verdicts)
    work.tell(hop, key_range.name, "failed" if failed else "shadowed")
    record = RangeRecord(
        range=key_range.name,
        state=State.FAILED if failed else State.SHADOWED,
        data_version=str(work.journey.version(hop, reading.fingerprint)),
        run_id=work.run_id,
        rows=reading.fingerprint.rows,
        shadow=work.shadows[hop.number],
        error="; ".join(verdict.summary() for verdict in failed) or None,
    )
    return Outcome(hop, record, Reason.SHADOWED, verdicts)


def _move(
    work: Work, hop: Hop, key_range: KeyRange, reading: Reading, reason: Reason, attempt: int
) -> Outcome:
    """One attempt: stream the range into a staging table, audit it, make it visible, record it."""
    name, writer = key_range.name, work.writers[hop.number]
    version = str(work.journey.version(hop, reading.fingerprint))
    counts: dict[str, int] = {}
    artifacts: list[Artifact] = []
    target = work.servers.target(hop.plan.target.system)
    framing = Framing.fresh() if hop.plan.framed(hop.wire) else None
    options = replace(hop.options, batch_rows=work.batch_rows, framing=framing)
    with _Slot(work.exports) as export_slot:
        reached("before_export")
        work.tell(hop, name, "export")
        staging = target.attempt(
            hop.plan,
            key_range,
            options,
            owner=work.owner,
            data_version=version,
            alive=work.alive,
        )
        exports = _export(work, hop, key_range, reading, counts, options.framing, artifacts)
        with staging as load, Prefetch(exports, export_slot.release) as stream, work.loads:
            began = started = time.perf_counter()
            row_end = framing.row.encode() if framing else b"\n"
            watched = _watched(work, hop, name, stream, row_end)
            if hop.wire == "text":
                receipt = load.load_text(watched)
            else:
                receipt = load.load_arrow(watched, schema(hop.plan))
            seconds = {
                "export": stream.source_seconds,
                "load": max(time.perf_counter() - started - stream.waited_seconds, 0.0),
            }
            reached("after_load")
            staged = _staged(work, hop, key_range, reading, load)
            record = RangeRecord(
                range=name,
                state=State.LOADED,
                data_version=version,
                run_id=work.run_id,
                rows=staged,
                bytes=receipt.bytes,
                wire=hop.wire,
                fingerprint=reading.fingerprint.value if hop.number == 1 else None,
                source_server=work.identities[hop.plan.source.system],
                target_server=work.identities[hop.plan.target.system],
                seconds=seconds,
                attempts=attempt,
                counts=counts,
                schema=column_schema(hop.plan),
                artifacts=(*artifacts, *receipt.artifacts),
            )
            writer.progress(record)
            started = time.perf_counter()
            verdicts = audit(work, hop, key_range, reading, load)
            audited = time.perf_counter()
            work.tell(hop, name, "finalise")
            visible = load.finalise()
            _require_visible(target, hop, key_range, options, visible)
            seconds["reconcile"] = audited - started
            seconds["finalise"] = time.perf_counter() - audited
            moving = time.perf_counter() - began - seconds["reconcile"]
            record = replace(record, moving_seconds=moving)
    reached("after_commit")
    writer.progress(replace(record, state=State.FINALISED))
    if hop.options.mode == "upsert" and (kept := visible - staged):
        verdicts = tuple(with_kept(one, kept) for one in verdicts)
    return settle(work, hop, record, reason, verdicts)


def _require_visible(
    target: Target, hop: Hop, key_range: KeyRange, options: TargetOptions, rows: int
) -> None:
    """What readers see now must be what was audited."""
    shown = target.range_rows(hop.plan, key_range, options)
    if shown != rows:
        raise ReceiptMismatch(
            f"{rows} rows were audited and made visible, but the range has {shown} in "
            f"{written_to(hop.plan, options)}: another writer, or a trigger, changed it"
        )


def _staged(work: Work, hop: Hop, key_range: KeyRange, reading: Reading, load: RangeLoad) -> int:
    """Rows that arrived; they must be those that the fingerprint counted, and still stands for."""
    staged, expected = load.staged_rows(), reading.fingerprint.rows
    require_unmoved(work, hop, key_range, reading)
    if hop.number == 1 and staged != expected:
        # without a snapshot, a row whose key moved past the reader is missed or read twice
        kind = SourceMoved if reading.snapshot is None else ReceiptMismatch
        raise kind(
            f"{hop.plan.source} holds {expected} rows in this range, but {staged} arrived in the "
            "staging table; nothing was committed"
        )
    return staged


def _export(
    work: Work,
    hop: Hop,
    key_range: KeyRange,
    reading: Reading,
    counts: dict[str, int],
    framing: Framing | None,
    artifacts: list[Artifact],
) -> Callable[[], AbstractContextManager[Iterator[Any]]]:
    """How to open the stream of a range: batches as the target wants them, or text."""
    source = work.servers.endpoint(hop.plan.source.system)
    sql = hop.plan.select(key_range, hop.wire)
    snapshot = reading.snapshot if hop.number == 1 else None

    @contextmanager
    def batches() -> Iterator[Iterator[pa.RecordBatch]]:
        with source.read_arrow(sql, batch_rows=work.batch_rows, snapshot=snapshot) as reader:
            yield (conform(batch, hop.plan, counts) for batch in reader)

    def chunks() -> AbstractContextManager[Iterator[bytes]]:
        if hop.plan.source.system == "sqlserver":
            return read_tab_separated(work.servers.sqlserver, hop.plan, key_range, artifacts)
        return work.servers.postgres.read_text(sql, snapshot=snapshot)

    @contextmanager
    def framed() -> Iterator[Iterator[bytes]]:
        assert framing is not None
        with source.read_arrow(
            framing.in_query(sql), batch_rows=work.batch_rows, snapshot=snapshot
        ) as reader:
            yield framed_rows(reader, framing, len(hop.plan.columns))

    if framing is not None:
        return framed
    return chunks if hop.wire == "text" else batches


def _watched(
    work: Work, hop: Hop, name: str, items: Iterable[Any], row_end: bytes
) -> Iterator[Any]:
    """Pass a stream on, telling how many rows of it have gone; `row_end` ends each row of text."""
    for item in items:
        reached("during_export")
        yield item
        rows = item.num_rows if isinstance(item, pa.RecordBatch) else item.count(row_end)
        work.tell(hop, name, "load", rows)
        reached("during_load")
    reached("after_export")


class _Slot(AbstractContextManager["_Slot"]):
    """A semaphore's slot that may be given back before the context ends, from another thread."""

    def __init__(self, semaphore: threading.Semaphore) -> None:
        self._semaphore, self._held, self._lock = semaphore, False, threading.Lock()

    def __enter__(self) -> Self:
        self._semaphore.acquire()
        self._held = True
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def release(self) -> None:
        with self._lock:
            if self._held:
                self._held = False
                self._semaphore.release()
