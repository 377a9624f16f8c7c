"""Columns that a transfer computes in the SQL of its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.checks.table_side import refusal
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import alias_prefix, qualified
from tableferry.resources.errors import ColumnsRefused, InputError
from tableferry.resources.tables import TableRef
from tableferry.resources.types.export import Export, Refusal
from tableferry.resources.types.kinds import Date, Decimal, Float, Integer, Time, Timestamp
from tableferry.resources.types.type_map import Column

_CAST = (Float, Decimal, Date, Time, Timestamp)
_CAST_FROM = (*_CAST, Integer)
"""The kinds of values that a cast makes, and makes them of: others are cut by `on_overflow`."""


def with_expressions(
    transfer: Transfer, columns: Sequence[Column]
) -> tuple[list[Column], TableRef]:
    """Return the source's columns with those that are computed, and the source as it is read then.

    A computed column stands in the place of the source's column of its name, if there is one.

    Args:
        transfer: the transfer.
        columns: the columns that the source has.

    Raises:
        ColumnsRefused: a column of the primary key would be computed.
    """
    computed = _computed(transfer, columns)
    keys = {column.name for column in columns if column.primary_key}
    if problems := {
        name: f"column {name!r}: the primary key needs the column's own values, not computed ones"
        for name in computed
        if name in keys
    }:
        raise ColumnsRefused(str(transfer.source), problems)
    resolved = [
        computed[column.name].column if column.name in computed else column for column in columns
    ]
    names = {column.name for column in columns}
    resolved += [each.column for name, each in computed.items() if name not in names]
    return resolved, _read(transfer, columns, computed)


def with_losses(transfer: Transfer, columns: Sequence[Column], plan: CopyPlan) -> CopyPlan:
    """Return the plan of the first hop with the conditions that a `cast` loses part of a value.

    Args:
        transfer: the transfer.
        columns: the columns that the source has.
        plan: the plan of the first hop.
    """
    computed = _computed(transfer, columns)
    lossy = {name: each.lossy for name, each in computed.items() if each.lossy}
    return replace(
        plan,
        columns=tuple(
            replace(column, lossy=lossy.get(column.source.name, "")) for column in plan.columns
        ),
    )


def copied_expressions(transfer: Transfer, plan: CopyPlan) -> list[tuple[str, str]]:
    """Return how a plan's columns are computed, by name, which decides the values that move."""
    names = {column.source.name for column in plan.columns}
    return [
        (name, spec.expression or "cast")
        for name, spec in transfer.columns.items()
        if (spec.expression or spec.cast) and name in names
    ]


def require_expressions(transfer: Transfer, columns: Sequence[Column], source: Endpoint) -> None:
    """Ask the source's server about the expressions of a transfer.

    Args:
        transfer: the transfer.
        columns: the columns that the source has.
        source: its server.

    Raises:
        ColumnsRefused: it refuses some, or the row filter names a column that they replace.
    """
    computed = _computed(transfer, columns)
    if not computed:
        return
    problems: dict[str, str] = {}
    if refusal(source, _read(transfer, columns, computed)):
        for name, each in computed.items():
            if why := refusal(source, _read(transfer, columns, {name: each})):
                problems[name] = f"column {name!r}: {transfer.source} refuses its expression: {why}"
    names = {column.name for column in columns}
    replaced = [name for name in computed if name in names]
    if transfer.where is not None and replaced:
        others = [column for column in columns if column.name not in replaced]
        listed = ", ".join(source.system.quote(column.name) for column in others)
        alias = source.system.quote(transfer.source.name)
        rows = f"(SELECT {listed} FROM {qualified(transfer.source)}) AS {alias}"
        if why := refusal(source, replace(transfer.source, read_as=rows), transfer.where):
            problems[replaced[0]] = (
                f"column {replaced[0]!r}: where: {transfer.where!r} should do without columns that "
                f"expressions replace ({why}); give the expression a name of its own, or filter "
                "in a view"
            )
    if problems:
        raise ColumnsRefused(str(transfer.source), problems)


@dataclass(frozen=True)
class _Computed:
    """A column that is computed."""

    column: Column
    """Its name, and the type of its value."""
    sql: str
    """Its value."""
    lossy: str = ""
    """The condition that a `cast` has lost part of the value; see `raw_name`."""


def _computed(transfer: Transfer, columns: Sequence[Column]) -> dict[str, _Computed]:
    """The columns that are computed, by name.

    Raises:
        ColumnsRefused: a column cannot be cast as declared.
    """
    system, computed = transfer.source.system, {}
    by_name = {column.name: column for column in columns}
    for name, spec in transfer.columns.items():
        if spec.expression is not None:
            type_ = spec.type[system.name] if isinstance(spec.type, dict) else str(spec.type)
            column = Column(name, system.types.plain(type_))
            sql = system.dialect.cast(_enclosed(spec.expression), column)
            computed[name] = _Computed(column, sql)
        elif spec.cast and name in by_name:
            try:
                computed[name] = _cast(transfer, by_name[name])
            except InputError as error:
                raise ColumnsRefused(str(transfer.source), {name: str(error)}) from None
    return computed


def _cast(transfer: Transfer, column: Column) -> _Computed:
    """Cast a column to the source's type whose values the first hop's target holds exactly.

    Raises:
        InputError: there is none, or the column is of a type that has no values to cast.
    """
    system, target = transfer.source.system, transfer.hops[0].to.system
    declared = transfer.columns_in(1)[column.name].type
    where = f"column {column.name!r}"
    if not isinstance(declared, str):
        raise InputError(f"{where}: cast needs a type in {target}")
    slot = target.types.slot(target.types.plain(declared), "")
    exported = system.types.export(column.type)
    export = None if isinstance(exported, Refusal) else exported.kind
    if slot is None or not isinstance(slot.kind, _CAST) or not isinstance(export, _CAST_FROM):
        raise InputError(
            f"{where}: cast goes from numbers, dates and times to floats, decimals, dates and "
            f"times, not from {column.type} to {declared}; use an expression"
        )
    kind = slot.kind
    if isinstance(kind, Timestamp) and isinstance(export, Timestamp):
        kind = replace(kind, zone=export.zone)
    final, own = system.types.default(kind), system.types.default(export)
    held = final and system.types.export(final)
    held_kind = held.kind if isinstance(held, Export) else None
    finer = isinstance(held_kind, Timestamp | Time) and held_kind.digits > getattr(
        kind, "digits", 9
    )
    if final is None or finer:
        raise InputError(f"{where}: {system} has no type for the values of {declared}")
    quote, cast = system.quote, system.dialect.cast

    def to(type_: str, value: str) -> str:
        return cast(value, replace(column, type=type_))

    def exactly(value: str) -> str:
        # types such as money are cast to no other but decimals
        return to(own, value) if own else value

    widest = own or column.type
    if isinstance(export, Decimal):
        widest = system.types.decimal(system.types.most_digits, export.scale or 0)
        widest = widest if export.scale is not None else column.type
    raw = exactly(quote(raw_name(column.name)))
    lost = f"{to(widest, to(final, raw))} <> {raw}"
    return _Computed(replace(column, type=final), to(final, exactly(quote(column.name))), lost)


def raw_name(name: str) -> str:
    """The name of a source's own column beside its cast."""
    return f"ferry__raw {name}"


def _read(
    transfer: Transfer, columns: Sequence[Column], computed: Mapping[str, _Computed]
) -> TableRef:
    """The source, read as a table of all its columns and those that are computed."""
    if not computed:
        return transfer.source
    table, quote = transfer.source, transfer.source.system.quote
    # two steps, as ClickHouse would use a computed column in the other expressions
    prefix = alias_prefix(
        *(each.sql for each in computed.values()), *(column.name for column in columns)
    )
    raw = [quote(column.name) for column in columns]
    values = [f"{each.sql} AS {prefix}{number}" for number, each in enumerate(computed.values())]
    kept = [quote(column.name) for column in columns if column.name not in computed]
    named = [f"{prefix}{number} AS {quote(name)}" for number, name in enumerate(computed)]
    originals = [raw_name(name) for name, each in computed.items() if each.lossy]
    values += [
        f"{quote(name)} AS {quote(raw_name(name))}" for name, each in computed.items() if each.lossy
    ]
    named += map(quote, originals)
    inner = f"(SELECT {', '.join((*raw, *values))} FROM {qualified(table)}) AS {prefix}rows"
    rows = f"(SELECT {', '.join((*kept, *named))} FROM {inner}) AS {quote(table.name)}"
    return replace(table, read_as=rows)


def _enclosed(expression: str) -> str:
    """Put an expression into parentheses; line breaks end its comments."""
    return f"(\n{expression}\n)"
