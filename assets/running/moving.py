"""Moves one key range through one hop: export, load, audit, finalise, record."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.states import Reason, State
from tableferry.assets.running.audit import settle
from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.assets.running.rows import RowSet
from tableferry.assets.running.stream_digest import stream_digest_of, with_digest_of
from tableferry.assets.running.work import RangeOutcome
from tableferry.checks.rejected import rejected_in
from tableferry.checks.verdict import with_rejected
from tableferry.resources.artifacts import Artifact
from tableferry.resources.columns.conform import conform, schema
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.delimited import Framing, framed_rows
from tableferry.resources.contract.loader import format_of
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.target import LoadReceipt, RangeLoad
from tableferry.resources.crash_points import reached
from tableferry.resources.errors import ReceiptMismatch
from tableferry.resources.wires.text_rows import CountedBytes

logger = logging.getLogger(__name__)

MIN_ROWS_FOR_PROGRESS = 10_000
"""Fewer rows are committed moments after they are loaded, so that only the commit is recorded,
unless files stay behind if it does not come."""

Item = TypeVar("Item")

DEPTH = 2
"""Maximum number of items between source and sink. As one side is always the slower one, more
would only cost memory."""


def move(rows: RowSet, reason: Reason) -> RangeOutcome:
    """Load rows of a range, audit them, publish them and record the range.

    Raises:
        CheckFailed: a blocking check of the staged rows failed.
        TooManyRejected: more rows do not fit than the transfer allows.
        SourceMoved: the source has changed since it was read.
        RangeDiffers: the range still differs after its newer rows were moved.
    """
    stream_digest = stream_digest_of(rows.attempt)
    if rows.attempt.reading.fingerprint.unsent and stream_digest is None:
        rows = replace(rows, attempt=rows.attempt.asked)
    attempt = rows.attempt
    work, hop = attempt.work, attempt.hop
    counts: dict[str, int] = {}
    artifacts: list[Artifact] = []
    framing = Framing.fresh() if hop.plan.framed(hop.wire) else None
    format = format_of(hop.wire, hop.plan.source, hop.plan.target)
    most = work.plan.transfer.max_rejected
    kept = rejected_in(
        attempt.source_side, hop.spec.wire, attempt.key_range, most=most, run_id=work.run_id
    )
    publication = replace(
        attempt.publication,
        format=format,
        framing=framing,
        batch_rows=work.batch_rows,
        delta=rows.delta,
        quarantine=kept,
        displaced=partial(_displaced, attempt),
    )
    with ExitStack() as held:
        export_slot = held.enter_context(_Slot(work.exports))
        reached("before_export")
        attempt.tell("export")
        # the range stays locked until it is recorded: runs record in the order they publish
        load = held.enter_context(attempt.loader.attempt(publication, hop.options, work.alive))
        exports = _export(rows, counts, publication, artifacts)
        exports = stream_digest.watching(exports) if stream_digest else exports
        with ExitStack() as opened:
            if attempt.source.bounded:
                # an open stream that waits for its turn to load would keep the connection that the
                # audit of another range may need to end that range's turn
                opened.enter_context(work.loads)
            stream = opened.enter_context(Prefetch(exports, export_slot.release))
            if not attempt.source.bounded:
                opened.enter_context(work.loads)
            began = started = time.perf_counter()
            watched = _watched(attempt, stream, framing.row.encode() if framing else b"\n")
            receipt = _loaded(rows, load, watched)
            seconds = {
                "export": stream.source_seconds,
                "load": max(time.perf_counter() - started - stream.waited_seconds, 0.0),
            }
            if stream_digest:
                rows = replace(rows, attempt=with_digest_of(attempt, stream_digest))
                attempt = rows.attempt
                publication.version = attempt.data_version
            reached("after_load")
            staged = _staged(rows, load, kept.rows or 0)
            record = attempt.record_of_move(
                State.LOADED,
                rows=staged,
                bytes=receipt.bytes,
                wire=hop.wire,
                wire_because=hop.wire_because,
                seconds=seconds,
                counts=counts,
                artifacts=(*artifacts, *receipt.artifacts),
                cast=attempt.lost(),
                quarantined=kept.rows,
                repaired=rows.repaired,
                **attempt.of_source(stream.source_seconds, stream.open_seconds),
            )
            if staged >= MIN_ROWS_FOR_PROGRESS or record.artifacts:
                attempt.writer.progress(record)
            started = time.perf_counter()
            reached("before_audit")
            attempt.tell("reconcile")
            verdicts = rows.audited(load)
            reached("after_audit")
            verdicts = tuple(with_rejected(each, hop.plan, kept.rows or 0) for each in verdicts)
            audited = time.perf_counter()
            attempt.require_snapshot()
            attempt.tell("finalise")
            visible = load.finalise()
            seconds["reconcile"] = audited - started + rows.seconds
            seconds["finalise"] = time.perf_counter() - audited
            moving = time.perf_counter() - began - (audited - started)
            record = replace(record, moving_seconds=moving)
        reached("after_commit")
        extra = visible - staged if hop.options.mode.updates_known else 0
        record, verdicts = rows.completed((record, verdicts), extra)
        return settle(attempt, record, reason, verdicts)


def _displaced(attempt: RangeAttempt, names: Sequence[str]) -> None:
    """Record that other ranges are about to lose rows that have moved to this one.

    They move in this run, too, as the source has changed there; until then they are not proven.
    """
    if attempt.hop.options.mode.whole_table:
        return  # nobody sees the shadow before all of its ranges are there
    for name in names:
        why = f"rows of it have moved to range {attempt.name}, where they are now; run it again"
        error = attempt.work.message(attempt.hop, name, why)
        run = attempt.work.run_id
        attempt.writer.progress(RangeRecord(name, State.FAILED, run_id=run, error=error))


def _staged(rows: RowSet, load: RangeLoad, rejected: int) -> int:
    """Return the number of staged rows, which must match a fingerprint that is still valid.

    `rejected` is the number of rows that the target does without.
    """
    attempt, staged, is_live = rows.attempt, load.staged_rows(), rows.attempt.reading.is_live
    different = rows.expected is not None and staged != rows.expected - rejected
    if different or is_live:
        attempt.require_source_unchanged()
    if different:
        kind = rows.miscounted if is_live else ReceiptMismatch
        raise kind(
            f"{attempt.hop.plan.source}: of {rows.expected} rows of this range {rejected} do not "
            f"fit, and {staged} arrived in the staging table; nothing was committed"
        )
    return staged


def _loaded(rows: RowSet, load: RangeLoad, stream: Iterator[Any]) -> LoadReceipt:
    """Load a stream of batches or bytes; one of no rows may lack even a format's frame."""
    hop = rows.attempt.hop
    if not rows.parts:
        for _ in stream:
            pass
        return LoadReceipt(0, 0)
    if hop.wire == "arrow":
        return load.load_arrow(stream, schema(hop.plan))
    return load.load_bytes(stream)


def _export(
    rows: RowSet, counts: dict[str, int], into: Publication, artifacts: list[Artifact]
) -> Callable[[], AbstractContextManager[Iterator[Any]]]:
    """Return how to open the stream of a range: batches in the target's types, or bytes."""
    attempt, framing = rows.attempt, into.framing
    plan, source = attempt.hop.plan, attempt.source
    wire, snapshot = attempt.hop.wire, attempt.reading.snapshot
    batch_rows, sending = attempt.work.batch_rows, source_of(plan.source.system)

    @contextmanager
    def batches(plan: CopyPlan) -> Iterator[Iterator[pa.RecordBatch]]:
        sql = plan.select(attempt.key_range, wire)
        with sending.read_arrow(
            source, plan, attempt.key_range, sql, batch_rows=batch_rows, snapshot=snapshot
        ) as reader:
            yield (conform(batch, plan, counts) for batch in reader)

    def chunks(plan: CopyPlan) -> AbstractContextManager[Iterator[bytes]]:
        assert into.format is not None
        sql = plan.select(attempt.key_range, wire)
        return sending.read_bytes(source, plan, sql, into.format, artifacts, snapshot=snapshot)

    @contextmanager
    def framed(plan: CopyPlan) -> Iterator[Iterator[bytes]]:
        assert framing is not None
        sql = plan.select(attempt.key_range, wire)
        with source.read_arrow(
            framing.in_query(sql), batch_rows=batch_rows, snapshot=snapshot
        ) as reader:
            yield framed_rows(reader, framing, len(plan.columns))

    streams: Callable[[CopyPlan], AbstractContextManager[Iterator[Any]]] = (
        framed if framing is not None else batches if wire == "arrow" else chunks
    )
    parts = rows.parts
    if len(parts) == 1:
        return partial(streams, *parts)

    def each() -> Generator[Iterator[Any], None, None]:
        for part in parts:
            with streams(part) as stream:
                yield stream

    @contextmanager
    def joined() -> Iterator[Iterator[Any]]:
        # an error leaves the generators where they are, with a stream that is open
        with closing(each()) as opened, closing(sending.joined(into.format, opened)) as items:
            yield items

    return joined


def _watched(attempt: RangeAttempt, items: Iterable[Any], row_end: bytes) -> Iterator[Any]:
    """Pass a stream on, and report the rows of each item; `row_end` ends each row of text."""
    for item in items:
        reached("during_export")
        attempt.pause()
        yield item
        attempt.tell("load", _rows_of(item, row_end))
        reached("during_load")
    reached("after_export")


def _rows_of(item: Any, row_end: bytes) -> int:
    if isinstance(item, pa.RecordBatch):
        return item.num_rows
    return item.rows if isinstance(item, CountedBytes) else int(item.count(row_end))


class _Slot(AbstractContextManager["_Slot"]):
    """A semaphore's slot that another thread may release before the context ends."""

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


class Prefetch(AbstractContextManager["Prefetch[Item]"], Generic[Item]):
    """Reads `source` in its own thread, at most `DEPTH` items ahead of the iteration.

    An error of the source is raised in place of its item. Leaving the context stops the thread,
    even before the end of the source, and waits until the source's connection is closed.

    Args:
        source: opens the stream; it is entered, read and left in the reading thread.
        on_done: called in that thread when the source has ended or failed.
    """

    def __init__(
        self,
        source: Callable[[], AbstractContextManager[Iterator[Item]]],
        on_done: Callable[[], None] = lambda: None,
    ) -> None:
        self._source, self._on_done = source, on_done
        self._items: queue.Queue[Item | None] = queue.Queue(DEPTH)
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="export", daemon=True)
        self.source_seconds = 0.0
        """Time spent in the source, not counting waits for the sink."""
        self.open_seconds = 0.0
        """How long the source was open, which includes waits for the sink."""
        self.waited_seconds = 0.0
        """Time that the sink has waited for the source."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def __iter__(self) -> Iterator[Item]:
        while True:
            started = time.perf_counter()
            item = self._items.get()
            self.waited_seconds += time.perf_counter() - started
            if item is None:
                break
            yield item
        if self._error is not None:
            raise self._error

    def _read(self) -> None:
        began = time.perf_counter()
        try:
            started = began
            with self._source() as items:
                for item in items:
                    self.source_seconds += time.perf_counter() - started
                    if not self._put(item):
                        return
                    started = time.perf_counter()
            self.source_seconds += time.perf_counter() - started
        except BaseException as error:
            self._error = error
        finally:
            self.open_seconds = time.perf_counter() - began
            self._on_done()
            self._put(None)

    def _put(self, item: Item | None) -> bool:
        while not self._stop.is_set():
            try:
                self._items.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
