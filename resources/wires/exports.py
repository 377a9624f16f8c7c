"""Which wire formats out of a server are believed: edge values by the very path of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.resources.columns.conform import conform
from tableferry.resources.columns.conversions import conversion_of
from tableferry.resources.connecting.probe import Wrong, shown
from tableferry.resources.contract.copy_plan import CopyPlan, WireFormat
from tableferry.resources.contract.delimited import END, Framing
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.refusals import refused_in_query
from tableferry.resources.contract.source import Source, source_of
from tableferry.resources.contract.system import System
from tableferry.resources.errors import ReceiptMismatch, SchemaDrift, StatementFailed, ValueRefused
from tableferry.resources.tables import TableRef
from tableferry.resources.types.kinds import Binary, Kind, Text
from tableferry.resources.types.samples import REFUSED, Sample
from tableferry.resources.wires.constants import (
    EVERYTHING,
    Arrivals,
    Misshapen,
    Row,
    TypePair,
    pairs_of,
    plan_of,
    require_rows,
    rows_of,
    samples_of,
    table_of,
    written,
    wrong_arrivals,
)

SILENT_SECONDS = 60.0
"""How long a tool may take for a few constants."""

WIDTH: dict[WireFormat, int] = {"text": 16, "arrow": 64, "pgcopy": 64}
"""Types that are asked for by one query; an argument of a command line has at most 128 KiB."""


def wrong_values(source: Endpoint, wire: WireFormat, plan: CopyPlan) -> tuple[Wrong, ...]:
    """Edge values of a hop's column types that do not leave its source as they must.

    Constants take the path of the hop's rows: through its expressions, the driver or the tool, and
    the conversions before the target. Those that the target cannot hold must be refused. Asked for
    once per connection and set of types.

    Args:
        source: the server.
        wire: the wire format.
        plan: the hop, all of whose columns can travel so.

    Raises:
        ConnectionFailed: the server is not there.
        StatementFailed: the connection broke, or the tool does not answer.
    """
    target, pairs = plan.target.system, pairs_of(plan)

    def ask() -> tuple[Wrong, ...]:
        found: list[Wrong] = []
        for start in range(0, len(pairs), WIDTH[wire]):
            probe = _Probe(source, wire, target, plan.target_version)
            found += probe.wrong(pairs[start : start + WIDTH[wire]])
        return tuple(found)

    subject = (wire, target, plan.target_version, pairs)
    return source.settings().facts.known(subject, ask)


@dataclass(frozen=True)
class _Probe:
    source: Endpoint
    wire: WireFormat
    target: System
    version: str

    @property
    def _sending(self) -> Source:
        return source_of(self.source.system)

    def wrong(self, pairs: Sequence[TypePair]) -> list[Wrong]:
        """What does not arrive; a failure of all is looked for type by type."""
        target = TableRef(self.target.name, "probe", "constants")
        plan = plan_of(pairs, self.source.system, target, self.version)
        found = samples_of(plan)
        rows = rows_of(found)
        bad: list[Row] = [
            tuple(sample if other == position else None for other in range(len(found)))
            for position, some in enumerate(found)
            for sample in some
            if sample.expected == REFUSED
        ]
        if not rows and not bad:
            return []
        try:
            arrived, outcomes = (self._arrow if self.wire == "arrow" else self._text)(
                plan, rows, bad
            )
            require_rows(rows, arrived)
        except (StatementFailed, ReceiptMismatch, SchemaDrift, ValueRefused, Misshapen) as error:
            if isinstance(error, StatementFailed) and error.transient:
                raise
            if len(pairs) > 1:
                return [one for pair in pairs for one in self.wrong([pair])]
            return [Wrong(pairs[0].source, "its values", shown(error))]
        return [
            *wrong_arrivals(plan, rows, arrived),
            *_wrong_refusals(plan, bad, outcomes),
        ]

    def _arrow(
        self, plan: CopyPlan, rows: Sequence[Row], bad: Sequence[Row]
    ) -> tuple[Arrivals, list[object]]:
        """All by one query: what cannot be held is refused on this side."""
        arrived: Arrivals = {}
        outcomes: dict[int, object] = {}
        table = table_of(plan, [*rows, *bad])
        with self.source.read_arrow(plan.select(EVERYTHING, "arrow", rows_of=table)) as batches:
            for batch in batches:
                numbers = batch.column(0)
                kept = batch.filter(pc.less_equal(numbers, len(rows)))
                columns = (column.to_pylist() for column in conform(kept, plan, {}).columns)
                for row in zip(*columns, strict=True):
                    arrived[int(row[0])] = [written(value) for value in row]
                others = batch.filter(pc.greater(numbers, len(rows)))
                for position in range(others.num_rows):
                    one = others.slice(position, 1)
                    number = int(one.column(0)[0].as_py()) - len(rows)
                    try:
                        conform(one, plan, {})
                    except ValueRefused as error:
                        outcomes[number] = error
                    else:
                        outcomes[number] = "the value"
        return arrived, [outcomes.get(number, "nothing") for number in range(1, len(bad) + 1)]

    def _text(
        self, plan: CopyPlan, rows: Sequence[Row], bad: Sequence[Row]
    ) -> tuple[Arrivals, list[object]]:
        arrived: Arrivals = {}
        if rows:
            table = table_of(plan, rows)
            read = self._framed if plan.framed("text") else self._tab_separated
            arrived = read(plan, table)
        return arrived, self._refusals(plan, bad) if bad else []

    def _refusals(self, plan: CopyPlan, rows: Sequence[Row]) -> list[object]:
        """What becomes of each row, each by a query of its own, since the query fails."""
        found: list[object] = []
        with self._sending.asking(self.source) as ask:
            for row in rows:
                position, sample = _only(row)
                one = replace(plan, columns=(plan.columns[0], plan.columns[position + 1]))
                sql = one.select(EVERYTHING, "text", rows_of=table_of(one, [(sample,)]))
                try:
                    ask(sql)
                    found.append("the value")
                except ValueRefused as error:
                    found.append(error)
                except StatementFailed as error:
                    if error.transient:
                        raise
                    found.append(refused_in_query(str(error)) or error)
        return found

    def _tab_separated(self, plan: CopyPlan, table: str) -> Arrivals:
        stream = self._sending.read_bytes(
            self.source, plan, EVERYTHING, "tab_separated", rows_of=table, silence=SILENT_SECONDS
        )
        from tableferry.resources.wires.text_rows import tab_separated

        with stream as chunks:
            data = b"".join(chunks)
        try:
            columns = tab_separated(data, len(plan.columns))
        except pa.ArrowInvalid as error:
            raise Misshapen(str(error)) from error
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return _numbered(plan, map(list, rows))

    def _framed(self, plan: CopyPlan, table: str) -> Arrivals:
        framing = Framing.fresh()
        sql = framing.in_query(plan.select(EVERYTHING, "text", rows_of=table))
        kinds = [conversion_of(column, plan) for column in plan.columns]
        rows = []
        with self.source.read_arrow(sql) as batches:
            for batch in batches:
                for text in batch.column(0).to_pylist():
                    fields = text.removesuffix(framing.row).split(framing.field)
                    rows.append(
                        [
                            _staged_text(conversion.slot.kind, field)
                            for conversion, field in zip(kinds, fields, strict=False)
                        ]
                    )
        return _numbered(plan, rows)


def _wrong_refusals(
    plan: CopyPlan, bad: Sequence[Row], outcomes: Sequence[object]
) -> Iterator[Wrong]:
    for row, outcome in zip(bad, outcomes, strict=True):
        position, sample = _only(row)
        column = plan.columns[position + 1].source
        if not isinstance(outcome, ValueRefused) or outcome.column != column.name:
            yield Wrong(f"{column.type}: {sample.what}", REFUSED, shown(outcome))


def _only(row: Row) -> tuple[int, Sample]:
    return next((position, one) for position, one in enumerate(row) if one is not None)


def _staged_text(kind: Kind, field: str) -> str | None:
    """A field for the table that bcp fills, see `resources.postgres.bcp_text`."""
    if field == "":
        return None
    return field.removesuffix(END) if isinstance(kind, (Text, Binary)) else field


def _numbered(plan: CopyPlan, rows: Iterable[list[str | None]]) -> Arrivals:
    """Rows by their number, which comes first."""
    found: Arrivals = {}
    for row in rows:
        if len(row) != len(plan.columns) or not (row[0] or "").isdigit():
            raise Misshapen(f"a row is {row}")
        found[int(row[0] or 0)] = row
    return found
