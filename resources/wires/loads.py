"""Which wire formats into a server are believed: edge values by the very path of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tableferry.resources.columns.conversions import source_export
from tableferry.resources.connecting.probe import Wrong
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan, Format, WireFormat
from tableferry.resources.contract.delimited import Framing, framed_rows
from tableferry.resources.contract.dialects import qualified, quote
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.formats import format_of
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.target import RangeLoad, TargetOptions
from tableferry.resources.errors import (
    InputError,
    RangeBusy,
    ReceiptMismatch,
    StatementFailed,
    ValueRefused,
)
from tableferry.resources.own_names import own_prefix
from tableferry.resources.types.export import Refusal
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


class _Untried(Exception):
    """Nothing is known: what is in the way has nothing to do with the values."""


def wrong_loads(
    source: Endpoint, target: Endpoint, wire: WireFormat, plan: CopyPlan
) -> tuple[Wrong, ...]:
    """Edge values of a hop's column types that do not get into its target as they must.

    Constants of the source take the path of the hop's rows, into a staging table that is dropped
    again, and are read back by Arrow. Asked for once per connection and set of types. Where they
    cannot be tried (the user may not create tables, or a disk is full) nothing is known to be
    wrong: then the load itself tells.

    Args:
        source: the server that the hop reads; what leaves it is believed, see `wires.exports`.
        target: the server that it writes.
        wire: the wire format.
        plan: the hop, all of whose columns can travel so.

    Raises:
        InputError: nothing at all gets in; says why.
        ConnectionFailed: a server is not there.
    """
    format = format_of(wire, plan.source, plan.target)
    if format is None or format not in loader_of(target.system).rehearsals:
        return ()
    pairs = pairs_of(plan)
    probe = _Probe(source, target, format, plan)
    subject = ("load", format, plan.source.system, pairs)
    try:
        answer = target.settings().facts.known(subject, lambda: probe.answer(pairs))
    except _Untried:
        return ()
    if isinstance(answer, str):
        raise InputError(answer)
    return answer


class _Probe:
    def __init__(self, source: Endpoint, target: Endpoint, format: Format, plan: CopyPlan) -> None:
        self._source, self._target, self._format, self._plan = source, target, format, plan
        self._rehearse = loader_of(target.system).rehearsals[format]

    def answer(self, pairs: Sequence[TypePair]) -> tuple[Wrong, ...] | str:
        """What does not arrive, or why nothing does; a failure of all is looked for by type."""
        found = self._wrong(pairs)
        if not isinstance(found, str):
            return found
        nothing = self._wrong(())
        if isinstance(nothing, str):
            return nothing
        wrong: list[Wrong] = []
        for pair in pairs:
            found = self._wrong([pair])
            wrong += [Wrong(pair.source, "its values", found)] if isinstance(found, str) else found
        return tuple(wrong)

    def _wrong(self, pairs: Sequence[TypePair]) -> tuple[Wrong, ...] | str:
        plan = plan_of(
            pairs,
            self._source.system,
            replace(self._plan.target, name="probe"),
            self._plan.target_version,
        )
        # a row of NULLs goes along, where there may be nothing else
        rows = [*rows_of(samples_of(plan)), (None,) * len(pairs)]
        framing = Framing.fresh()
        options = TargetOptions(framing=framing, format=self._format)
        loading = False
        try:
            with self._rehearse(self._target, plan, options) as load:
                loading = True
                arrived = self._arrived(load, plan, rows, framing)
            require_rows(rows, arrived)
        except (StatementFailed, ReceiptMismatch, ValueRefused, Misshapen, RangeBusy) as error:
            if not loading or getattr(error, "transient", False):
                raise _Untried from error
            return str(error)
        except InputError as error:
            raise _Untried from error
        return tuple(wrong_arrivals(plan, rows, arrived))

    def _arrived(
        self, load: RangeLoad, plan: CopyPlan, rows: Sequence[Row], framing: Framing
    ) -> Arrivals:
        query = plan.select(EVERYTHING, "text", rows_of=table_of(plan, rows))
        with self._source.read_arrow(framing.in_query(query)) as reader:
            load.load_bytes(framed_rows(reader, framing, len(plan.columns)))
        found = [self._read(column) for column in plan.columns]
        own = own_prefix(*found)
        selected = ", ".join(f"{sql} AS {own}{position}" for position, sql in enumerate(found))
        arrived: Arrivals = {}
        staged = f"SELECT {selected} FROM {qualified(load.audited_table())}"
        with self._target.read_arrow(staged) as reader:
            for batch in reader:
                columns = (column.to_pylist() for column in batch.columns)
                for row in zip(*columns, strict=True):
                    arrived[int(row[0])] = [written(value) for value in row]
        return arrived

    def _read(self, column: ColumnPlan) -> str:
        """A staged column as it is read by Arrow."""
        name = quote(self._target.system, column.target.name)
        export = source_export(self._target.system, column.target.type)
        return name if isinstance(export, Refusal) else export.arrow.replace("{}", name)
