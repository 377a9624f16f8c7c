"""Digests rows while they stream from a hop's source, which saves a second scan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa

from tableferry.resources.contract.copy_plan import CopyPlan, WireFormat
from tableferry.resources.contract.fingerprint import KnownFigures, Way
from tableferry.resources.digest import native
from tableferry.resources.digest.expressions import RowDigest
from tableferry.resources.digest.measure import DIGEST, ROWS
from tableferry.resources.digest.native import SentRows


class StreamDigest:
    """Sums up the digests of rows that pass, in the thread that reads them.

    Args:
        plan: the hop.
        digest: that of the source.
        wire: the format that streams: batches as the target wants them, or tab-separated text.
    """

    def __init__(self, plan: CopyPlan, digest: RowDigest, wire: WireFormat) -> None:
        self._names = [column.target.name for column in plan.columns]
        self.digest, self._wire = digest, wire
        layout = native.layout(plan, digest) if wire == "text" else None
        self._sent = SentRows(layout) if layout else None
        self.rows = self.total = 0
        self.ended = False
        """Whether all rows have passed."""

    @property
    def as_sent(self) -> bool:
        """Whether the bytes are digested as the source's server has sent them."""
        return self._sent is not None

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
        way: Way = "digested as sent" if self._sent else "digested by the client"
        its = self._sent or self
        return KnownFigures(self.digest.id, {ROWS: its.rows, DIGEST: str(its.total)}, way)

    def watched(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items, each digested before it is passed on.

        Raises:
            ReceiptMismatch: rows are not as their server sends them.
        """
        if self._sent is not None:
            for item in items:
                self._sent.add(item)
                yield item
            self._sent.end()
            self.ended = True
            return
        # polars takes half a second to import
        from tableferry.resources.digest.client import digests, total

        columns = self.digest.fields
        positions = [self._names.index(field.name) for field in columns]
        for item in items:
            if len(item):
                arrays = self._arrays(item)
                compared = [arrays[position] for position in positions]
                values = digests(columns, compared, self.digest.dialect.algorithm)
                self.rows += len(values)
                self.total += total(values)
            yield item
        self.ended = True

    def _arrays(self, item: Any) -> Sequence[pa.Array | pa.ChunkedArray]:
        """The columns of a batch, or of rows of text."""
        from tableferry.resources.wires.text_rows import tab_separated

        if self._wire == "arrow":
            columns: Sequence[pa.Array] = item.columns
            return columns
        return tab_separated(item, len(self._names))
