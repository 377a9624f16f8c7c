"""Which wire formats out of and into servers are trusted: edge values are tried on their path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.resources import errors
from tableferry.resources.columns.conform import conform
from tableferry.resources.columns.conversions import conversion_of
from tableferry.resources.connecting.probe import Wrong, shown
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan, Format, WireFormat
from tableferry.resources.contract.delimited import END, Framing, framed_rows
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.loader import format_of, loader_of
from tableferry.resources.contract.refusals import refused_in_query
from tableferry.resources.contract.source import Source, source_of
from tableferry.resources.contract.table_sql import alias_prefix, qualified
from tableferry.resources.contract.target import RangeLoad
from tableferry.resources.errors import ReceiptMismatch, SchemaDrift, StatementFailed, ValueRefused
from tableferry.resources.types.export import Refusal
from tableferry.resources.types.kinds import Binary, Kind, Text
from tableferry.resources.types.samples import REFUSED, Sample
from tableferry.resources.wires import constants

SILENT_SECONDS = 60.0
"""How long a tool may take for a few constants."""

WIDTH: dict[WireFormat, int] = {"text": 16, "arrow": 64, "pgcopy": 64}
"""Maximum number of types in a query; a command line argument has at most 128 KiB."""


def wrong_values(source: Endpoint, wire: WireFormat, plan: CopyPlan) -> tuple[Wrong, ...]:
    """List the edge values of a hop's column types that do not leave its source as they must.

    Constants take the path of the hop's rows: through its expressions, the driver or the tool, and
    the conversions before the target. Those that the target cannot hold must be refused. Each
    connection is asked once per set of types.

    Args:
        source: the server.
        wire: the wire format.
        plan: the hop, all of whose columns can take the wire format.

    Raises:
        ConnectionFailed: the server cannot be reached.
        StatementFailed: the connection broke, or the tool does not answer.
    """
    pairs, probe = constants.pairs_of(plan), _Probe(source, wire, plan)

    def ask() -> tuple[Wrong, ...]:
        starts = range(0, len(pairs), WIDTH[wire])
        return tuple(wrong for at in starts for wrong in probe.wrong(pairs[at : at + WIDTH[wire]]))

    subject = (wire, plan.target.system, plan.target_version, pairs)
    return source.settings().facts.known(subject, ask)


@dataclass(frozen=True)
class _Probe:
    source: Endpoint
    wire: WireFormat
    hop: CopyPlan

    @property
    def _sending(self) -> Source:
        return source_of(self.source.system)

    def wrong(self, pairs: Sequence[constants.TypePair]) -> list[Wrong]:
        """List the values that go wrong. If the probe fails as a whole, probe type by type."""
        plan = constants.plan_of(pairs, self.hop)
        rows, refused = constants.rows_of(plan)
        if not rows and not refused:
            return []
        try:
            probe = self._arrow if self.wire == "arrow" else self._text
            received, outcomes = probe(plan, rows, refused)
            arrived = constants.in_order(received, plan, len(rows))
        except (
            StatementFailed,
            ReceiptMismatch,
            SchemaDrift,
            ValueRefused,
            constants.Misshapen,
        ) as error:
            if isinstance(error, StatementFailed) and error.transient:
                raise
            if len(pairs) > 1:
                return [wrong for pair in pairs for wrong in self.wrong([pair])]
            return [Wrong(pairs[0].source, "its values", shown(error))]
        return [
            *constants.wrong_arrivals(plan, rows, arrived),
            *_wrong_refusals(plan, refused, outcomes),
        ]

    def _arrow(
        self, plan: CopyPlan, rows: Sequence[constants.Row], refused: Sequence[tuple[int, Sample]]
    ) -> tuple[list[constants.TextRow], list[object]]:
        """Probe by one query: the client refuses what the target cannot hold."""
        single = [
            [value if at == position else None for at in range(len(plan.columns) - 1)]
            for position, value in refused
        ]
        arrived: list[constants.TextRow] = []
        outcomes: dict[int, object] = {}
        table = constants.table_of(plan, [*rows, *single])
        with self.source.read_arrow(
            plan.select(constants.EVERYTHING, "arrow", rows_of=table)
        ) as batches:
            for batch in batches:
                numbers = batch.column(0)
                held = batch.filter(pc.less_equal(numbers, len(rows)))
                arrived += constants.text_rows(conform(held, plan, {}))
                others = batch.filter(pc.greater(numbers, len(rows)))
                for position in range(others.num_rows):
                    row = others.slice(position, 1)
                    number = int(row.column(0)[0].as_py())
                    try:
                        conform(row, plan, {})
                    except ValueRefused as error:
                        outcomes[number] = error
                    else:
                        outcomes[number] = "the value"
        numbers = range(len(rows) + 1, len(rows) + len(refused) + 1)
        return arrived, [outcomes.get(number, "nothing") for number in numbers]

    def _text(
        self, plan: CopyPlan, rows: Sequence[constants.Row], refused: Sequence[tuple[int, Sample]]
    ) -> tuple[Iterable[constants.TextRow], list[object]]:
        arrived: Iterable[constants.TextRow] = ()
        if rows:
            read = self._framed if plan.framed("text") else self._tab_separated
            arrived = read(plan, constants.table_of(plan, rows))
        return arrived, self._refusals(plan, refused) if refused else []

    def _refusals(self, plan: CopyPlan, refused: Sequence[tuple[int, Sample]]) -> list[object]:
        """What becomes of each value. Each has a query of its own, as the query should fail."""
        outcomes: list[object] = []
        with self._sending.asking(self.source) as ask:
            for position, value in refused:
                single = replace(plan, columns=(plan.columns[0], plan.columns[position + 1]))
                sql = single.select(
                    constants.EVERYTHING, "text", rows_of=constants.table_of(single, [[value]])
                )
                try:
                    ask(sql)
                    outcomes.append("the value")
                except ValueRefused as error:
                    outcomes.append(error)
                except StatementFailed as error:
                    if error.transient:
                        raise
                    outcomes.append(refused_in_query(str(error)) or error)
        return outcomes

    def _tab_separated(self, plan: CopyPlan, table: str) -> Iterable[constants.TextRow]:
        from tableferry.resources.wires.text_rows import tab_separated

        sql = plan.select(constants.EVERYTHING, "text", rows_of=table)
        stream = self._sending.read_bytes(
            self.source, plan, sql, "tab_separated", silence=SILENT_SECONDS
        )
        with stream as chunks:
            data = b"".join(chunks)
        try:
            columns = tab_separated(data, len(plan.columns))
        except pa.ArrowInvalid as error:
            raise constants.Misshapen(str(error)) from error
        return zip(*(column.to_pylist() for column in columns), strict=True)

    def _framed(self, plan: CopyPlan, table: str) -> Iterable[constants.TextRow]:
        framing = Framing.fresh()
        sql = framing.in_query(plan.select(constants.EVERYTHING, "text", rows_of=table))
        kinds = [conversion_of(column, plan).slot.kind for column in plan.columns]
        with self.source.read_arrow(sql) as batches:
            rows = [text for batch in batches for text in batch.column(0).to_pylist()]
        return [
            [
                _staged_text(kind, field)
                for kind, field in zip(
                    kinds, row.removesuffix(framing.row).split(framing.field), strict=False
                )
            ]
            for row in rows
        ]


def _wrong_refusals(
    plan: CopyPlan, refused: Sequence[tuple[int, Sample]], outcomes: Sequence[object]
) -> Iterator[Wrong]:
    for (position, value), outcome in zip(refused, outcomes, strict=True):
        column = plan.columns[position + 1].source
        if not isinstance(outcome, ValueRefused) or outcome.column != column.name:
            yield Wrong(f"{column.type}: {value.what}", REFUSED, shown(outcome))


def _staged_text(kind: Kind, field: str) -> str | None:
    """A field for the table that bcp fills, see `resources.postgres.text_formats`."""
    if field == "":
        return None
    return field.removesuffix(END) if isinstance(kind, (Text, Binary)) else field


class _NotRehearsed(Exception):
    """The probe failed for a reason that has nothing to do with the values."""


def wrong_loads(
    source: Endpoint, target: Endpoint, wire: WireFormat, plan: CopyPlan
) -> tuple[Wrong, ...]:
    """List the edge values of a hop's column types that do not get into its target as they must.

    Constants of the source take the path of the hop's rows, into a staging table that is dropped
    again, and are read back by Arrow. Each connection is asked once per set of types. Where they
    cannot be tried (the user may not create tables, or a disk is full), nothing is known to be
    wrong, and the load itself will tell.

    Args:
        source: the server that the hop reads; its wire is trusted, see `wires.exports`.
        target: the server that the hop writes.
        wire: the wire format.
        plan: the hop, all of whose columns can take the wire format.

    Raises:
        InputError: nothing at all can be loaded; says why.
        ConnectionFailed: a server cannot be reached.
    """
    format = format_of(wire, plan.source, plan.target)
    if format is None or format not in loader_of(target.system).rehearsals:
        return ()
    pairs = constants.pairs_of(plan)
    probe = _Rehearsal(source, target, format, plan)
    subject = ("load", format, plan.source.system, pairs)
    try:
        answer = target.settings().facts.known(subject, lambda: probe.answer(pairs))
    except _NotRehearsed:
        return ()
    if isinstance(answer, str):
        raise errors.InputError(answer)
    return answer


@dataclass(frozen=True)
class _Rehearsal:
    source: Endpoint
    target: Endpoint
    format: Format
    hop: CopyPlan

    def answer(self, pairs: Sequence[constants.TypePair]) -> tuple[Wrong, ...] | str:
        """List the values that go wrong, or say why nothing can be loaded.

        If the probe fails as a whole, probe type by type.
        """
        result = self._wrong(pairs)
        if not isinstance(result, str):
            return result
        without_types = self._wrong(())
        if isinstance(without_types, str):
            return without_types
        wrong: list[Wrong] = []
        for pair in pairs:
            result = self._wrong([pair])
            if isinstance(result, str):
                result = (Wrong(pair.source, "its values", result),)
            wrong += result
        return tuple(wrong)

    def _wrong(self, pairs: Sequence[constants.TypePair]) -> tuple[Wrong, ...] | str:
        plan = constants.plan_of(pairs, self.hop)
        # a row of NULLs, as there may be no other
        rows: list[constants.Row] = [*constants.rows_of(plan)[0], [None] * len(pairs)]
        framing = Framing.fresh()
        rehearse = loader_of(self.target.system).rehearsals[self.format]
        loading = False
        try:
            with rehearse(self.target, plan, framing) as load:
                loading = True
                arrived = constants.in_order(
                    self._staged(load, plan, rows, framing), plan, len(rows)
                )
        except (
            errors.StatementFailed,
            errors.ReceiptMismatch,
            errors.ValueRefused,
            constants.Misshapen,
            errors.RangeBusy,
        ) as error:
            if not loading or getattr(error, "transient", False):
                raise _NotRehearsed from error
            return str(error)
        except errors.InputError as error:
            raise _NotRehearsed from error
        return tuple(constants.wrong_arrivals(plan, rows, arrived))

    def _staged(
        self, load: RangeLoad, plan: CopyPlan, rows: Sequence[constants.Row], framing: Framing
    ) -> Iterator[constants.TextRow]:
        """Load rows, and read them back."""
        query = plan.select(constants.EVERYTHING, "text", rows_of=constants.table_of(plan, rows))
        with self.source.read_arrow(framing.in_query(query)) as reader:
            load.load_bytes(framed_rows(reader, framing, len(plan.columns)))
        values = [self._value(column) for column in plan.columns]
        prefix = alias_prefix(*values)
        selected = ", ".join(f"{sql} AS {prefix}{position}" for position, sql in enumerate(values))
        staged = f"SELECT {selected} FROM {qualified(load.audited_table())}"
        with self.target.read_arrow(staged) as reader:
            for batch in reader:
                yield from constants.text_rows(batch)

    def _value(self, column: ColumnPlan) -> str:
        """SQL of a staged column for Arrow."""
        name = self.target.system.quote(column.target.name)
        export = self.target.system.types.export(column.target.type)
        return name if isinstance(export, Refusal) else export.arrow.replace("{}", name)
