"""The constants that wires are probed with: rows of edge values, and what must arrive of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

import pyarrow as pa

from tableferry.resources.columns.conversions import conversion_of
from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.connecting.probe import Wrong, shown
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.source import source_of
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.export import Conversion
from tableferry.resources.types.kinds import Text, signed
from tableferry.resources.types.samples import REFUSED, Sample, meaning, samples
from tableferry.resources.types.type_map import Column

Row = Sequence[Sample | None]
"""One value per column; None is NULL."""
TextRow = Sequence[str | None]
"""What arrived of a row, as text, after the row's number."""

EVERYTHING = KeyRange("integer")
KEY = "n"


class TypePair(NamedTuple):
    """A source column's declared type, and the type of its target column."""

    source: str
    target: str


class Misshapen(Exception):
    """The rows that arrived are not the rows that were sent."""


def pairs_of(plan: CopyPlan) -> tuple[TypePair, ...]:
    """List the types of a hop's columns without repetitions."""
    types = plan.target.system.types
    pairs = ((column.source.type, types.plain(column.target.type)) for column in plan.columns)
    return tuple(sorted({TypePair(*pair) for pair in pairs}))


def plan_of(pairs: Sequence[TypePair], hop: CopyPlan) -> CopyPlan:
    """Make a plan like a hop's, of a row number and a column for each pair of types."""
    source = hop.source.system
    columns = {f"x{number}": pair for number, pair in enumerate(pairs, start=1)}
    numbers = str(source.types.default(signed(32)))
    return plan_copy(
        TableRef(source.name, "probe", "constants"),
        [
            Column(KEY, numbers, False),
            *(Column(name, pair.source) for name, pair in columns.items()),
        ],
        replace(hop.target, name="probe"),
        key=KEY,
        overrides={name: ColumnOverride(type=pair.target) for name, pair in columns.items()},
        target_version=hop.target_version,
    )


def rows_of(plan: CopyPlan) -> tuple[list[Row], list[tuple[int, Sample]]]:
    """Choose edge values for the columns of a plan of constants.

    Returns:
        Rows of the values that the target can hold, without their numbers; and the values that it
        cannot hold, each with its column's position.
    """
    style = source_of(plan.source.system).style
    assert style is not None
    held, refused = [], []
    for position, column in enumerate(plan.columns[1:]):
        values = samples(style, column.source.type, conversion_of(column, plan))
        held.append([value for value in values if value.expected != REFUSED])
        refused += [(position, value) for value in values if value.expected == REFUSED]
    return list(zip_longest(*held)), refused


def table_of(plan: CopyPlan, rows: Iterable[Row]) -> str:
    """Write rows as a table expression in the source's SQL, numbered from 1."""
    types = [column.source.type for column in plan.columns]
    lines = []
    for number, row in enumerate(rows, start=1):
        literals = [str(number), *("NULL" if value is None else value.literal for value in row)]
        lines.append(
            [f"CAST({literal} AS {type_})" for literal, type_ in zip(literals, types, strict=True)]
        )
    names = [plan.source.system.quote(column.source.name) for column in plan.columns]
    return plan.source.system.dialect.constants(lines, names)


def text_rows(batch: pa.RecordBatch) -> Iterator[TextRow]:
    """Read the rows of a batch as text."""
    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield [_as_text(value) for value in row]


def in_order(arrived: Iterable[TextRow], plan: CopyPlan, count: int) -> list[TextRow]:
    """Sort rows by their numbers, which come first and are left out.

    Raises:
        Misshapen: the rows are not those from 1 to `count`, or have other columns than the plan.
    """
    by_number: dict[int, TextRow] = {}
    for row in arrived:
        if len(row) != len(plan.columns) or not (row[0] or "").isdigit():
            raise Misshapen(f"a row is {row}")
        by_number[int(row[0] or 0)] = row[1:]
    if sorted(by_number) != list(range(1, count + 1)):
        raise Misshapen(f"{count} rows were sent, but {len(by_number)} arrived")
    return [by_number[number] for number in sorted(by_number)]


def wrong_arrivals(
    plan: CopyPlan, rows: Sequence[Row], arrived: Sequence[TextRow]
) -> Iterator[Wrong]:
    """List the values that are not what they should be."""
    for row, texts in zip(rows, arrived, strict=True):
        for column, sample, text in zip(plan.columns[1:], row, texts, strict=True):
            type_ = column.source.type
            if sample is None:
                if text is not None:
                    yield Wrong(f"{type_}: NULL", shown(None), shown(text))
            elif text is None:
                if not sample.optional:
                    yield Wrong(f"{type_}: {sample.what}", shown(sample.expected), shown(None))
            elif not _same(conversion_of(column, plan), text, sample.expected):
                yield Wrong(f"{type_}: {sample.what}", shown(sample.expected), shown(text))


def _as_text(value: object) -> str | None:
    if isinstance(value, bool):
        return str(int(value))
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).removesuffix("+00:00")
    return None if value is None else str(value)


def _same(conversion: Conversion, text: str, expected: str) -> bool:
    if isinstance(conversion.slot.kind, Text):
        return text == expected
    try:
        return meaning(conversion.source.kind, text) == meaning(conversion.source.kind, expected)
    except ValueError:
        return False
