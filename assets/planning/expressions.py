"""Columns that a transfer computes in the SQL of its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.resources.aliases import alias_prefix
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import filtered, qualified, read_from
from tableferry.resources.errors import ColumnsRefused, StatementFailed
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column


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
    computed = _computed(transfer)
    keys = {column.name for column in columns if column.primary_key}
    if problems := {
        name: f"column {name!r}: the primary key needs the column's own values, not an expression"
        for name in computed
        if name in keys
    }:
        raise ColumnsRefused(str(transfer.source), problems)
    found = [computed.get(column.name, column) for column in columns]
    names = {column.name for column in columns}
    found += [column for name, column in computed.items() if name not in names]
    return found, _read(transfer, columns, computed)


def copied_expressions(transfer: Transfer, plan: CopyPlan) -> list[tuple[str, str | None]]:
    """Return the expressions of a plan's columns, by name, which decide the values that move."""
    names = {column.source.name for column in plan.columns}
    declared = transfer.columns.items()
    return [(name, spec.expression) for name, spec in declared if spec.expression and name in names]


def require_expressions(transfer: Transfer, columns: Sequence[Column], source: Endpoint) -> None:
    """Ask the source's server about the expressions of a transfer.

    Args:
        transfer: the transfer.
        columns: the columns that the source has.
        source: its server.

    Raises:
        ColumnsRefused: it refuses some, or the row filter names a column that they replace.
    """
    computed = _computed(transfer)
    if not computed:
        return
    problems: dict[str, str] = {}
    if _refusal(source, read_from(_read(transfer, columns, computed))):
        for name, column in computed.items():
            if why := _refusal(source, read_from(_read(transfer, columns, {name: column}))):
                problems[name] = f"column {name!r}: {transfer.source} refuses its expression: {why}"
    names = {column.name for column in columns}
    replaced = [name for name in computed if name in names]
    if transfer.where is not None and replaced:
        others = [column for column in columns if column.name not in replaced]
        listed = ", ".join(source.system.quote(column.name) for column in others)
        alias = source.system.quote(transfer.source.name)
        rows = f"(SELECT {listed} FROM {qualified(transfer.source)}) AS {alias}"
        if why := _refusal(source, rows, transfer.where):
            problems[replaced[0]] = (
                f"column {replaced[0]!r}: where: {transfer.where!r} should do without columns that "
                f"expressions replace ({why}); give the expression a name of its own, or filter "
                "in a view"
            )
    if problems:
        raise ColumnsRefused(str(transfer.source), problems)


def _computed(transfer: Transfer) -> dict[str, Column]:
    """The columns that are computed, by name."""
    system, computed = transfer.source.system, {}
    for name, spec in transfer.columns.items():
        if spec.expression is not None:
            type_ = spec.type[system.name] if isinstance(spec.type, dict) else str(spec.type)
            computed[name] = Column(name, system.types.plain(type_))
    return computed


def _read(
    transfer: Transfer, columns: Sequence[Column], computed: Mapping[str, Column]
) -> TableRef:
    """The source, read as a table of all its columns and those that are computed."""
    if not computed:
        return transfer.source
    table, system = transfer.source, transfer.source.system
    quote, dialect = system.quote, system.dialect
    expressions = {name: str(transfer.columns[name].expression) for name in computed}
    # two steps, as ClickHouse would use a computed column in the other expressions
    prefix = alias_prefix(*expressions.values(), *(column.name for column in columns))
    raw = [quote(column.name) for column in columns]
    values = [
        f"{dialect.cast(_enclosed(expressions[name]), column)} AS {prefix}{number}"
        for number, (name, column) in enumerate(computed.items())
    ]
    kept = [quote(column.name) for column in columns if column.name not in computed]
    named = [f"{prefix}{number} AS {quote(name)}" for number, name in enumerate(computed)]
    inner = f"(SELECT {', '.join((*raw, *values))} FROM {qualified(table)}) AS {prefix}rows"
    rows = f"(SELECT {', '.join((*kept, *named))} FROM {inner}) AS {quote(table.name)}"
    return replace(table, read_as=rows)


def _enclosed(expression: str) -> str:
    """Put an expression into parentheses; line breaks end its comments."""
    return f"(\n{expression}\n)"


def _refusal(source: Endpoint, rows: str, where: str | None = None) -> str:
    """What the server says against reading rows; empty if it reads them."""
    first, last = source.system.dialect.limited(1)
    try:
        source.query(f"SELECT {first}1 FROM {rows} WHERE {filtered('1 = 0', where)}{last}")
    except StatementFailed as error:
        if error.transient:
            raise
        return str(error)
    return ""
