"""The constants that wires are probed with: a table of edge values, and what must come of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tableferry.resources.columns.conversions import conversion_of, plain_type
from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.connecting.probe import Wrong, shown
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.dialects import quote
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.types.conversion import Conversion
from tableferry.resources.types.kinds import Text, signed
from tableferry.resources.types.samples import REFUSED, Sample, meaning, samples

Row = tuple[Sample | None, ...]
"""One value per column; None is NULL."""
Arrivals = dict[int, list[str | None]]
"""Rows as text, by their number, which is their first value too."""

EVERYTHING = KeyRange("integer")
KEY = "n"


@dataclass(frozen=True)
class TypePair:
    """A source column's declared type, and the type of its target column."""

    source: str
    target: str


class Misshapen(Exception):
    """The rows are not those that were asked for."""


def pairs_of(plan: CopyPlan) -> tuple[TypePair, ...]:
    """The types of a hop's columns, each pair once."""
    target = plan.target.system
    pairs = {
        TypePair(column.source.type, plain_type(target, column.target.type))
        for column in plan.columns
    }
    return tuple(sorted(pairs, key=lambda pair: (pair.source, pair.target)))


def plan_of(pairs: Sequence[TypePair], source: System, target: TableRef, version: str) -> CopyPlan:
    """A plan like the hop's, of the rows' number and one column per pair of types.

    Args:
        pairs: at least none.
        source: the source's system.
        target: where the rows go.
        version: see `CopyPlan.target_version`.
    """
    columns = {f"x{number}": pair for number, pair in enumerate(pairs, start=1)}
    numbers = str(source.types.default(signed(32)))
    return plan_copy(
        TableRef(source.name, "probe", "constants"),
        [
            Column(KEY, numbers, False),
            *(Column(name, pair.source) for name, pair in columns.items()),
        ],
        target,
        key=KEY,
        overrides={name: ColumnOverride(type=pair.target) for name, pair in columns.items()},
        target_version=version,
    )


def samples_of(plan: CopyPlan) -> list[list[Sample]]:
    """The edge values of each column of a plan of constants, but for the number."""
    style = source_of(plan.source.system).style
    assert style is not None
    return [
        samples(style, column.source.type, conversion_of(column, plan))
        for column in plan.columns[1:]
    ]


def rows_of(found: Sequence[Sequence[Sample]]) -> list[Row]:
    """Rows of the values that the target can hold."""
    good = [[one for one in some if one.expected != REFUSED] for some in found]
    return list(zip_longest(*good))


def table_of(plan: CopyPlan, rows: Sequence[Row]) -> str:
    """The constants as a table expression in the source's SQL; rows are numbered from 1."""
    types = [column.source.type for column in plan.columns]
    lines = []
    for number, row in enumerate(rows, start=1):
        literals = [str(number), *("NULL" if one is None else one.literal for one in row)]
        typed = (
            f"CAST({literal} AS {type_})" for literal, type_ in zip(literals, types, strict=True)
        )
        lines.append(list(typed))
    names = [quote(plan.source.system, column.source.name) for column in plan.columns]
    return plan.source.system.dialect.constants(lines, names)


def require_rows(rows: Sequence[Row], arrived: Arrivals) -> None:
    """See that each row has arrived, once.

    Raises:
        Misshapen: one has not.
    """
    if sorted(arrived) != list(range(1, len(rows) + 1)):
        raise Misshapen(f"{len(rows)} rows were asked for, and {len(arrived)} came")


def wrong_arrivals(plan: CopyPlan, rows: Sequence[Row], arrived: Arrivals) -> Iterator[Wrong]:
    """What of the rows is not as it must be."""
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


def written(value: object) -> str | None:
    """An Arrow value as text."""
    if isinstance(value, bool):
        return str(int(value))
    isoformat: Callable[[], str] | None = getattr(value, "isoformat", None)
    if isoformat is not None:
        return isoformat().removesuffix("+00:00")
    return None if value is None else str(value)


def _same(conversion: Conversion, text: str, expected: str) -> bool:
    if isinstance(conversion.slot.kind, Text):
        return text == expected
    try:
        return meaning(conversion.source.kind, text) == meaning(conversion.source.kind, expected)
    except ValueError:
        return False
