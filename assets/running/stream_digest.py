"""Digests rows while they stream from a hop's source, which saves a second scan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tableferry.assets.running.audit import require_proven_source
from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.resources.contract.copy_plan import CopyPlan, WireFormat
from tableferry.resources.contract.fingerprint import Figures, KnownFigures, Way
from tableferry.resources.digest import fields, native
from tableferry.resources.digest.definition import definition
from tableferry.resources.digest.expressions import RowDigest
from tableferry.resources.digest.fingerprinting import source_digest
from tableferry.resources.digest.measure import DIGEST, ROWS, client_computes, empty
from tableferry.resources.digest.native import SentRows
from tableferry.resources.errors import ReceiptMismatch, SentDiffers, SourceMoved


class DeliveredRows:
    """Counts rows as a driver delivers them, and sums up their digests, as `SentRows` does.

    Args:
        plan: the hop.
        digest: that of the source, which the client computes.
        wire: the format that streams: batches as the target wants them, or tab-separated text.
    """

    def __init__(self, plan: CopyPlan, digest: RowDigest, wire: WireFormat) -> None:
        self._names = [column.target.name for column in plan.columns]
        self._digest, self._wire = digest, wire
        self.rows = self.total = 0

    def add(self, item: Any) -> None:
        """Digest the rows of a batch, or of whole lines of text."""
        # polars takes half a second to import
        from tableferry.resources.digest.client import digests, total

        if not len(item):
            return
        arrays, columns = self._arrays(item), self._digest.fields
        compared = [arrays[self._names.index(field.name)] for field in columns]
        values = digests(columns, compared, self._digest.dialect.algorithm)
        self.rows += len(values)
        self.total += total(values)

    def end(self) -> None:
        """See `SentRows.end`. Items hold whole rows."""

    def _arrays(self, item: Any) -> Sequence[pa.Array | pa.ChunkedArray]:
        from tableferry.resources.wires.text_rows import tab_separated

        if self._wire == "arrow":
            columns: Sequence[pa.Array] = item.columns
            return columns
        return tab_separated(item, len(self._names))


class StreamDigest:
    """Counts the rows of a range that pass, and sums up their digests.

    Args:
        plan: the hop.
        digest: that of the source.
        wire: the format that streams: batches as the target wants them, or tab-separated text.
    """

    def __init__(self, plan: CopyPlan, digest: RowDigest, wire: WireFormat) -> None:
        self.digest = digest
        layout = native.layout(plan, digest) if wire == "text" else None
        self._passed = SentRows(layout) if layout else DeliveredRows(plan, digest, wire)
        self.as_sent = layout is not None
        """Whether the bytes are digested as the source's server has sent them."""
        self.ended = False
        """Whether all rows have passed."""

    def watching(
        self, opens: Callable[[], AbstractContextManager[Iterator[Any]]]
    ) -> Callable[[], AbstractContextManager[Iterator[Any]]]:
        """Wrap what opens the stream, so that each item is digested before it is passed on."""

        @contextmanager
        def watched() -> Iterator[Iterator[Any]]:
            with opens() as items:
                yield self.watched(items)

        return watched

    def known_figures(self) -> KnownFigures:
        """The figures of the rows that have passed."""
        way: Way = "digested as sent" if self.as_sent else "digested by the client"
        figures = {ROWS: self._passed.rows, DIGEST: str(self._passed.total)}
        return KnownFigures(self.digest.id, figures, way)

    def watched(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items, each digested before it is passed on.

        Raises:
            ReceiptMismatch: rows are not as their server sends them.
        """
        for item in items:
            self._passed.add(item)
            yield item
        self._passed.end()
        self.ended = True


def stream_digest_of(attempt: RangeAttempt) -> StreamDigest | None:
    """Return the digest of an attempt's rows as they stream; None where that would save nothing.

    It saves a second reading of the source, whose server sends all that it would digest. Of the
    table between two hops, it also does so if the client digests its rows, but not if the previous
    hop has just proven the same digest of that table.
    """
    *_, level = attempt.work.levels
    hop, reading = attempt.hop, attempt.reading
    if reading.fingerprint.unsent and hop.wire == "text":
        stream = StreamDigest(hop.plan, source_digest(attempt.source, hop.plan), hop.wire)
        return stream if stream.as_sent else None
    if hop.options.single_rows or hop.plan.fitting or level != "checksum":
        return None
    if hop.first and (hop.wire != "text" or reading.snapshot is None):
        return None
    comparison = attempt.comparison(hop.written_plan.target)
    if fields.relaxed_fields(comparison.plan):
        return None  # the check compares the export's conversion of values with the server's
    digest = comparison.digests.row["source"]
    if reading.source_figures and reading.source_figures.digest == digest.id:
        return None
    stream = StreamDigest(comparison.plan, digest, hop.wire)
    if stream.as_sent or (not hop.first and client_computes(attempt.source, digest.dialect)):
        return stream
    return None


def with_digest_of(attempt: RangeAttempt, stream: StreamDigest) -> RangeAttempt:
    """Return an attempt with the figures of its rows, which have passed.

    Raises:
        SentDiffers: the source's server was asked as well, and computes others; the run ends.
        ReceiptMismatch: the server has counted other rows than it sent, or not all were taken.
        SourceMoved: the source has changed since it was read, or answers otherwise each time.
        MiddleDamaged: somebody has changed the table between two hops.
    """
    reading, work, figures = attempt.reading, attempt.work, stream.known_figures()
    sent, rows = figures.figures, reading.rows
    if not stream.ended or (reading.fingerprint.unsent and sent[ROWS] != rows):
        attempt.require_source_unchanged()
        raise ReceiptMismatch(
            f"{attempt.hop.plan.source}: of {rows} rows of this range {sent[ROWS]} were sent; "
            "nothing was committed"
        )
    if stream.as_sent and work.asks_too():
        asked = _asked(attempt, stream.digest)
        if asked != sent:
            attempt.require_source_unchanged()
            require_proven_source(attempt, None)
            if asked != _asked(attempt, stream.digest):
                raise SourceMoved(
                    f"{attempt.hop.plan.source} range {attempt.name}: asked twice under one "
                    "snapshot, the server computes other digests. No snapshot holds what a view's "
                    "volatile function or a foreign table returns"
                )
            work.stop.set()
            raise SentDiffers(
                f"{attempt.hop.plan.source}: range {attempt.name} was sent with {sent[ROWS]} rows "
                f"and the digest {sent[DIGEST]}, but the server computes {asked[DIGEST]} of "
                f"{asked[ROWS]} rows. One of them is wrong: nothing of the range was committed, "
                "and the run ends. Please report it; with 'wire: arrow' the server is asked for all"
            )
    used = definition(stream.digest.dialect.algorithm)
    return replace(attempt, reading=work.source.sent(attempt.name, reading, used, figures))


def _asked(attempt: RangeAttempt, digest: RowDigest) -> Figures:
    """Ask the source's server for the figures of an attempt's rows."""
    source = attempt.source_side
    grouped = source.by_range([attempt.key_range])
    return source.measure(grouped, digest=digest).get(0, empty(True, ()))
