"""Pairs the columns of two tables that are compared, whoever has filled them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.fields import Side
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.digest.comparable import NotComparableError, comparable
from tableferry.resources.digest.tolerance import Tolerance
from tableferry.resources.errors import ColumnsRefused, InputError
from tableferry.resources.keys.range import ROW, KeyKind
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column


@dataclass(frozen=True)
class ComparisonScope:
    """What of two tables a user wants compared. Names are the first table's, unless said."""

    mapped: Mapping[str, str] = field(default_factory=dict)
    """Columns of the second table by those of the first."""
    columns: Collection[str] = ()
    """Only these; empty: all that both tables have."""
    exclude: Collection[str] = ()
    key: Sequence[str] = ()
    """What identifies a row; empty: the primary key of either table."""
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    where: tuple[str | None, str | None] = (None, None)
    """Filters of rows, each in its server's SQL."""


@dataclass(frozen=True)
class Pairing:
    """How two tables are compared."""

    plan: CopyPlan
    """Both tables, as if the first had been moved into the second."""
    keyed: bool
    """Whether `plan.primary_key` identifies rows; otherwise rows are only counted and summed up."""
    key_side: int | None
    """Which table declares that key, 0 or 1; None if the user does."""
    range_kind: KeyKind | None
    """The kind of the first column of the key, if ranges of it can be cut."""
    rules: Mapping[str, str]
    """By which rule a column is compared whose types do not hold the same values."""
    tolerances: Mapping[str, Tolerance]
    names: Mapping[str, str]
    """The first table's names of columns by the second's."""
    unheld: Mapping[str, Side] = field(default_factory=dict)
    """The side on which NULL may be a number that no double holds, by the second table's column."""
    only_in_first: tuple[str, ...] = ()
    only_in_second: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Columns that the user leaves out."""


def pair(
    first: TableRef,
    first_columns: Sequence[Column],
    second: TableRef,
    second_columns: Sequence[Column],
    choice: ComparisonScope,
) -> Pairing:
    """Pair columns by name, and decide how each pair is compared.

    Names that differ only in case are the same where nothing else has them.

    Raises:
        InputError: the choice names a column that there is not, or leaves no column or key.
        ColumnsRefused: columns have types that cannot be compared; names all of them.
    """
    mine, theirs = (
        _own(table, columns)
        for table, columns in ((first, first_columns), (second, second_columns))
    )
    names = matched(first, mine, second, theirs, choice)
    ignored = {name for name, each in choice.tolerances.items() if each.ignore}
    left_out = [name for name in mine if name in {*choice.exclude, *ignored}]
    if choice.columns:
        left_out += [name for name in names if name not in choice.columns and name not in left_out]
    compared = {name: other for name, other in names.items() if name not in left_out}
    if not compared:
        raise InputError(f"{first} and {second} have no column in common that is compared")
    plans: dict[str, ColumnPlan] = {}
    rules: dict[str, str] = {}
    unheld: dict[str, Side] = {}
    problems: dict[str, str] = {}
    for name, other in compared.items():
        a, b = mine[name], theirs[other]
        try:
            found = comparable(first.system, a, second.system, b)
            what = found.field
            if tolerance := choice.tolerances.get(name):
                what = tolerance.applied(what, first.system, second.system)
        except NotComparableError as error:
            problems[name] = f"column {name!r}: {error}; leave it out: --exclude {name}"
            continue
        except InputError as error:
            raise InputError(f"column {name!r}: {error}") from None
        plans[name] = ColumnPlan(a, b, None, pa.null(), compared=what)
        if found.rule:
            rules[name] = found.rule
        if found.unheld:
            unheld[b.name] = found.unheld
    if problems:
        raise ColumnsRefused(f"{first} and {second} cannot be compared", problems)
    key, side = _key(first, mine, second, theirs, plans, choice)
    leading = plans[key[0]] if key else next(iter(plans.values()))
    plan = CopyPlan(
        first,
        second,
        tuple(plans.values()),
        leading,
        tuple(plans[name].target.name for name in key),
        where=choice.where[0],
        target_where=choice.where[1],
        observed=True,
    )
    return Pairing(
        plan,
        keyed=bool(key),
        key_side=side,
        range_kind=_range_kind(first, second, leading) if key else None,
        rules=rules,
        tolerances={n: t for n, t in choice.tolerances.items() if n in plans},
        names={other: name for name, other in compared.items()},
        unheld=unheld,
        only_in_first=tuple(n for n in mine if n not in names and n not in left_out),
        only_in_second=tuple(
            n for n in theirs if n not in names.values() and n not in choice.exclude
        ),
        left_out=tuple(left_out),
    )


def _own(table: TableRef, columns: Sequence[Column]) -> dict[str, Column]:
    """The columns by name, without those that a system adds to rows: their file and number."""
    added = {source_of(table.system).file_key, ROW} if source_of(table.system).file_key else set()
    return {column.name: column for column in columns if column.name not in added}


def matched(
    first: TableRef,
    mine: Collection[str],
    second: TableRef,
    theirs: Collection[str],
    choice: ComparisonScope,
) -> dict[str, str]:
    """Return the second table's columns by those of the first, in the first's order.

    Raises:
        InputError: the choice names a column that there is not.
    """
    named = [*choice.mapped, *choice.columns, *choice.exclude, *choice.key, *choice.tolerances]
    _require(first, mine, [name for name in named if name not in choice.exclude])
    _require(second, theirs, [*choice.mapped.values()])
    for name in choice.exclude:
        if name not in mine and name not in theirs:
            _require(first, mine, [name])
    free = [name for name in theirs if name not in choice.mapped.values()]
    free = [name for name in free if name not in choice.exclude]
    names: dict[str, str] = {}
    for name in mine:
        if name in choice.mapped:
            names[name] = choice.mapped[name]
        elif name in free:
            names[name] = name
    folded: dict[str, list[str]] = {}
    for name in free:
        if name not in names.values():
            folded.setdefault(name.casefold(), []).append(name)
    rest = [name for name in mine if name not in names]
    for name in rest:
        alike = [other for other in rest if other.casefold() == name.casefold()]
        if len(alike) == 1 and len(others := folded.get(name.casefold(), [])) == 1:
            names[name] = others[0]
    return {name: names[name] for name in mine if name in names}


def _require(table: TableRef, columns: Collection[str], names: Sequence[str]) -> None:
    for name in names:
        if name not in columns:
            raise InputError(f"{table} has no column {name!r}; it has {', '.join(columns)}")


def _key(
    first: TableRef,
    mine: Mapping[str, Column],
    second: TableRef,
    theirs: Mapping[str, Column],
    plans: Mapping[str, ColumnPlan],
    choice: ComparisonScope,
) -> tuple[list[str], int | None]:
    """The columns that identify a row, by the first table's names, and who declares them."""
    if choice.key:
        for name in choice.key:
            if name not in plans:
                raise InputError(f"the key column {name!r} is not compared")
        return [*choice.key], None
    by_second = {plan.target.name: name for name, plan in plans.items()}
    for side, columns in enumerate((mine, theirs)):
        declared = sorted((c.primary_key, n) for n, c in columns.items() if c.primary_key)
        key = [name if side == 0 else by_second.get(name, "") for _, name in declared]
        if key and all(name in plans for name in key):
            return key, side
    return [], None


def _range_kind(first: TableRef, second: TableRef, key: ColumnPlan) -> KeyKind | None:
    """The kind of ranges that both sides cut alike, by values that need not be looked for."""
    if any(source_of(table.system).file_key for table in (first, second)):
        # a column of text files is compared as it is written
        return None
    try:
        kinds = {_kind_of(first.system, key.source), _kind_of(second.system, key.target)}
    except InputError:
        return None
    kind = kinds.pop()
    return kind if not kinds and kind in ("integer", "uuid") else None


def _kind_of(system: System, column: Column) -> KeyKind:
    return key_kind(replace(column, primary_key=None), system)[0]
