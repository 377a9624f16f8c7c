"""Which wire formats out of a server are believed: edge values by the very path of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import cast

import pyarrow.compute as pc

from resources.connection import ServerResource
from resources.delimited import END, Framing
from resources.dialects import quote
from resources.endpoint import Endpoint
from resources.errors import ReceiptMismatch, SchemaDrift, StatementFailed, ValueRefused
from resources.keys.range import KeyRange
from resources.plan import CopyPlan, WireFormat
from resources.probe import Wrong, remembered, shown
from resources.refusals import refused_in_query
from resources.registry import system as _system
from resources.source import Source
from resources.tables import Column, TableRef
from resources.types.conform import conform, conversion_of
from resources.types.conversions import Conversion, plain_type
from resources.types.kinds import Binary, Kind, Text
from resources.types.planner import ColumnOverride, plan_copy
from resources.types.samples import REFUSED, Sample, meaning, samples

Row = tuple[Sample | None, ...]
"""One value per column; None is NULL."""
Arrivals = dict[int, list[str | None]]
"""Rows as text, by their number."""

SILENT_SECONDS = 60.0
"""How long a tool may take for a few constants."""

WIDTH: dict[WireFormat, int] = {"text": 16, "arrow": 64, "pgcopy": 64}
"""Types that are asked for by one query; an argument of a command line has at most 128 KiB."""

EVERYTHING = KeyRange("integer")
KEY = "n"
RELEASES = {True: "26.9", False: "26.7"}
"""A ClickHouse that has the long calendar, and one that has not; both read floats exactly."""


@dataclass(frozen=True)
class TypePair:
    """A source column's declared type, and the type of its target column."""

    source: str
    target: str


def wrong_values(source: Endpoint, wire: WireFormat, plan: CopyPlan) -> tuple[Wrong, ...]:
    """Edge values of a hop's column types that do not leave its source as they must.

    Constants take the path of the hop's rows: through its expressions, the driver or the tool, and
    the conversions before the target. Those that the target cannot hold must be refused. Asked for
    once per server, connection settings and set of types; see `resources.probe`.

    Args:
        source: the server.
        wire: the wire format.
        plan: the hop, all of whose columns can travel so.

    Raises:
        ConnectionFailed: the server is not there.
        StatementFailed: the connection broke, or the tool does not answer.
    """
    target = plan.target.system
    pairs = {
        TypePair(column.source.type, plain_type(target, column.target.type))
        for column in plan.columns
    }
    ordered = sorted(pairs, key=lambda pair: (pair.source, pair.target))

    def ask() -> tuple[Wrong, ...]:
        found: list[Wrong] = []
        for start in range(0, len(ordered), WIDTH[wire]):
            probe = _Probe(source, wire, target, plan.long_calendar)
            found += probe.wrong(ordered[start : start + WIDTH[wire]])
        return tuple(found)

    subject = (wire, target, plan.long_calendar, tuple(ordered))
    return remembered(cast(ServerResource, source), subject, ask)


@dataclass(frozen=True)
class _Probe:
    source: Endpoint
    wire: WireFormat
    target: str
    long_calendar: bool

    @property
    def _sending(self) -> Source:
        return _system(self.source.system).as_source()

    def wrong(self, pairs: Sequence[TypePair]) -> list[Wrong]:
        """What does not arrive; a failure of all is looked for type by type."""
        plan = self._plan(pairs)
        columns = plan.columns[1:]
        style = self._sending.style
        assert style is not None
        found = [
            samples(style, column.source.type, conversion_of(column, plan)) for column in columns
        ]
        good = [[one for one in some if one.expected != REFUSED] for some in found]
        rows: list[Row] = list(zip_longest(*good))
        bad: list[Row] = [
            tuple(sample if other == position else None for other in range(len(columns)))
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
            if sorted(arrived) != list(range(1, len(rows) + 1)):
                raise _Misshapen(f"{len(rows)} rows were asked for, and {len(arrived)} came")
        except (StatementFailed, ReceiptMismatch, SchemaDrift, ValueRefused, _Misshapen) as error:
            if isinstance(error, StatementFailed) and error.transient:
                raise
            if len(pairs) > 1:
                return [one for pair in pairs for one in self.wrong([pair])]
            return [Wrong(pairs[0].source, "its values", shown(error))]
        return [
            *_wrong_arrivals(plan, rows, arrived),
            *_wrong_refusals(plan, bad, outcomes),
        ]

    def _plan(self, pairs: Sequence[TypePair]) -> CopyPlan:
        """A plan like the hop's, of one column per pair of types."""
        columns = {f"x{number}": pair for number, pair in enumerate(pairs, start=1)}
        return plan_copy(
            TableRef(self.source.system, "probe", "constants"),
            [
                Column(KEY, "integer", False),
                *(Column(name, pair.source) for name, pair in columns.items()),
            ],
            TableRef(self.target, "probe", "constants"),
            key=KEY,
            overrides={name: ColumnOverride(type=pair.target) for name, pair in columns.items()},
            target_version=RELEASES[self.long_calendar],
        )

    def _arrow(
        self, plan: CopyPlan, rows: Sequence[Row], bad: Sequence[Row]
    ) -> tuple[Arrivals, list[object]]:
        """All by one query: what cannot be held is refused on this side."""
        arrived: Arrivals = {}
        outcomes: dict[int, object] = {}
        table = self._table(plan, [*rows, *bad])
        with self.source.read_arrow(plan.select(EVERYTHING, "arrow", rows_of=table)) as batches:
            for batch in batches:
                numbers = batch.column(0)
                kept = batch.filter(pc.less_equal(numbers, len(rows)))
                columns = (column.to_pylist() for column in conform(kept, plan, {}).columns)
                for row in zip(*columns, strict=True):
                    arrived[int(row[0])] = [_written(value) for value in row]
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
            table = self._table(plan, rows)
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
                sql = one.select(EVERYTHING, "text", rows_of=self._table(one, [(sample,)]))
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
        with stream as chunks:
            data = b"".join(chunks)
        return _numbered(
            plan, ([_unescaped(field) for field in line.split(b"\t")] for line in _lines(data))
        )

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

    def _table(self, plan: CopyPlan, rows: Sequence[Row]) -> str:
        """The constants as a table expression."""
        system = self.source.system
        types = [column.source.type for column in plan.columns]
        lines = []
        for number, row in enumerate(rows, start=1):
            literals = [str(number), *("NULL" if one is None else one.literal for one in row)]
            typed = (
                f"CAST({literal} AS {type_})"
                for literal, type_ in zip(literals, types, strict=True)
            )
            lines.append(list(typed))
        names = [quote(system, column.source.name) for column in plan.columns]
        return _system(system).dialect.constants(lines, names)


class _Misshapen(Exception):
    """The rows are not those that were asked for."""


def _wrong_arrivals(plan: CopyPlan, rows: Sequence[Row], arrived: Arrivals) -> Iterator[Wrong]:
    for number, row in enumerate(rows, start=1):
        for column, sample, text in zip(plan.columns[1:], row, arrived[number][1:], strict=True):
            type_ = column.source.type
            if sample is None:
                if text is not None:
                    yield Wrong(f"{type_}: NULL", shown(None), shown(text))
            elif text is None:
                if not sample.optional:
                    yield Wrong(f"{type_}: {sample.what}", shown(sample.expected), shown(None))
            elif not _same(conversion_of(column, plan), text, sample.expected):
                yield Wrong(f"{type_}: {sample.what}", shown(sample.expected), shown(text))


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


def _same(conversion: Conversion, text: str, expected: str) -> bool:
    if isinstance(conversion.slot.kind, Text):
        return text == expected
    try:
        return meaning(conversion.source.kind, text) == meaning(conversion.source.kind, expected)
    except ValueError:
        return False


def _written(value: object) -> str | None:
    """An Arrow value as text."""
    if isinstance(value, bool):
        return str(int(value))
    isoformat: Callable[[], str] | None = getattr(value, "isoformat", None)
    if isoformat is not None:
        return isoformat().removesuffix("+00:00")
    return None if value is None else str(value)


def _lines(data: bytes) -> list[bytes]:
    return data.split(b"\n")[:-1] if data.endswith(b"\n") else data.split(b"\n")


_ESCAPES = {
    b"b": b"\b", b"f": b"\f", b"r": b"\r", b"n": b"\n", b"t": b"\t", b"0": b"\0", b"a": b"\a",
    b"v": b"\v",
}  # fmt: skip


def _unescaped(field: bytes) -> str | None:
    r"""A field as ClickHouse reads TabSeparated; None for `\N`."""
    if field == rb"\N":
        return None
    found, at = bytearray(), 0
    while at < len(field):
        one = field[at : at + 1]
        if one != b"\\":
            found += one
            at += 1
            continue
        following = field[at + 1 : at + 2]
        if following == b"x" and len(field) >= at + 4:
            found += bytes.fromhex(field[at + 2 : at + 4].decode())
            at += 4
        else:
            found += _ESCAPES.get(following, following)
            at += 2
    return found.decode(errors="backslashreplace")


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
            raise _Misshapen(f"a row is {row}")
        found[int(row[0] or 0)] = row
    return found
