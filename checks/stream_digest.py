"""Digests rows while they stream from the table between two hops, which saves a second scan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa

from tableferry.resources.contract.copy_plan import CopyPlan, WireFormat
from tableferry.resources.contract.fingerprint import KnownFigures
from tableferry.resources.digest.expressions import RowDigest
from tableferry.resources.digest.measure import DIGEST, ROWS


class StreamDigest:
    """Sums up the digests of rows that pass, in the thread that reads them.

    Args:
        plan: the hop.
        digest: that of the source, which the client computes.
        wire: the format that streams: batches as the target wants them, or tab-separated text.
    """

    def __init__(self, plan: CopyPlan, digest: RowDigest, wire: WireFormat) -> None:
        self._names = [column.target.name for column in plan.columns]
        self._digest, self._wire = digest, wire
        self._rows = self._total = 0

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
        return KnownFigures(self._digest.id, {ROWS: self._rows, DIGEST: str(self._total)})

    def watched(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items, each digested before it is passed on."""
        # polars takes half a second to import
        from tableferry.resources.digest.client import digests, total

        columns = self._digest.fields
        positions = [self._names.index(field.name) for field in columns]
        for item in items:
            if len(item):
                arrays = self._arrays(item)
                compared = [arrays[position] for position in positions]
                values = digests(columns, compared, self._digest.dialect.algorithm)
                self._rows += len(values)
                self._total += total(values)
            yield item

    def _arrays(self, item: Any) -> Sequence[pa.Array | pa.ChunkedArray]:
        """The columns of a batch, or of rows of text."""
        from tableferry.resources.wires.text_rows import tab_separated

        if self._wire == "arrow":
            columns: Sequence[pa.Array] = item.columns
            return columns
        return tab_separated(item, len(self._names))
