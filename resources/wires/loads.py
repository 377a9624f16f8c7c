"""Which wire formats into a server are trusted: edge values are tried on the rows' own path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tableferry.resources import errors
from tableferry.resources.connecting.probe import Wrong
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan, Format, WireFormat
from tableferry.resources.contract.delimited import Framing, framed_rows
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.formats import format_of
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.table_sql import alias_prefix, qualified
from tableferry.resources.contract.target import RangeLoad
from tableferry.resources.types.export import Refusal
from tableferry.resources.wires import constants


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
