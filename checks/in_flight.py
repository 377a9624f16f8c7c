"""Digests a range's rows while they stream from the source, which saves a second scan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa

from tableferry.checks.sides import Comparison
from tableferry.resources.contract.copy_plan import WireFormat
from tableferry.resources.contract.delimited import Framing
from tableferry.resources.contract.fingerprint import KnownFigures
from tableferry.resources.digest.expressions import RowDigest
from tableferry.resources.digest.measure import DIGEST, ROWS

STREAMED = "the rows as they streamed"


class StreamDigest:
    """Sums up the digests of rows that pass, in the thread that reads them.

    Args:
        comparison: both sides; the target table exists.
        wire: the format that streams: batches as the target wants them, or text.
        framing: the terminators of text for SQL Server.

    The client computes the digests, for which the extra `digest` has to be there.

    Raises:
        DigestRefused: the two servers have no digest in common.
    """

    def __init__(
        self, comparison: Comparison, wire: WireFormat, framing: Framing | None = None
    ) -> None:
        self.digest: RowDigest = comparison.observed.streamed_digests.row["source"]
        self._names = [column.target.name for column in comparison.plan.columns]
        self._wire, self._framing = wire, framing
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

    def known_figures(self, changed: Mapping[str, int] | None = None) -> KnownFigures:
        """The figures of the rows that have passed.

        Args:
            changed: the number of their values that `on_overflow` changed before, by column.
        """
        figures = {ROWS: self._rows, DIGEST: str(self._total)}
        return KnownFigures(self.digest.id, figures, STREAMED, changed or {})

    def watched(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items, each digested before it is passed on."""
        # polars takes half a second to import
        from tableferry.resources.digest.client import digests, total

        columns = self.digest.fields
        positions = [self._names.index(field.name) for field in columns]
        for item in items:
            if len(item):
                arrays = self._arrays(item)
                compared = [arrays[position] for position in positions]
                values = digests(columns, compared, self.digest.dialect.algorithm)
                self._rows += len(values)
                self._total += total(values)
            yield item

    def _arrays(self, item: Any) -> Sequence[pa.Array | pa.ChunkedArray]:
        """The columns of a batch, or of rows of text."""
        from tableferry.resources.wires import text_rows

        if self._wire == "arrow":
            columns: Sequence[pa.Array] = item.columns
            return columns
        if self._framing is None:
            return text_rows.tab_separated(item, len(self._names))
        kinds = {field.name: field.kind for field in self.digest.fields}
        return text_rows.framed(item, self._framing, [kinds.get(name) for name in self._names])
