"""Finds the values of a source that a move would refuse, before anything moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tableferry.checks.table_side import TableSide
from tableferry.resources.columns.conform import refused_rows
from tableferry.resources.columns.conform import shown as shown_value
from tableferry.resources.columns.conversions import NoConversion, conversion_of
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan, WireFormat
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field
from tableferry.resources.contract.table_sql import alias_prefix, filtered, read_from
from tableferry.resources.digest.definition import shown
from tableferry.resources.digest.fields import all_fields, identity_fields, own_field
from tableferry.resources.digest.guards import Guard, guards
from tableferry.resources.digest.measure import CHANGED, ROWS
from tableferry.resources.digest.probe import dialect
from tableferry.resources.errors import ValueRefused
from tableferry.resources.types.steps import OverflowPolicy, Step, Unreplaced

EXAMPLES = 5
"""Maximum examples per column."""

COLUMNS_AT_ONCE = 200
"""Maximum conditions in one query."""

BATCH_ROWS = 10_000


@dataclass(frozen=True)
class Example:
    """A value that would be refused."""

    key: Mapping[str, str | None]
    """The row's primary key, or its key."""
    value: str | None
    reason: str


@dataclass(frozen=True)
class RefusedColumn:
    """A column of a source with values that a hop would refuse."""

    column: ColumnPlan
    rows: int
    examples: tuple[Example, ...]
    policies: tuple[OverflowPolicy, ...]
    """What `on_overflow` may say so that all of them are changed instead."""


@dataclass(frozen=True)
class RefusedValues:
    """The values of a source that a hop would refuse."""

    rows: int | None
    """The rows that were looked at; None if no value could be refused, so that none was read."""
    columns: tuple[RefusedColumn, ...] = ()
    not_examined: tuple[tuple[str, str], ...] = ()
    """Columns whose values were not examined, each with the reason."""


def refused_values(source: TableSide, wire: WireFormat) -> RefusedValues:
    """Find the values that a hop refuses, by one scan of its source.

    Where the source's SQL cannot tell, the client reads those columns and tries the conversion.

    Args:
        source: the table that is to be read, of a plan into the target.
        wire: how its rows will travel.
    """
    written = guards(source.plan, wire, dialect(source.endpoint).variant)
    return _examined(source, written)


def refused_later(
    first: CopyPlan, later: CopyPlan, wire: WireFormat, source: Endpoint
) -> RefusedValues:
    """Find the values of a chain's source that a later hop refuses.

    What the hops before have accepted arrives unchanged, so that the guards of the later target
    are tried on the values of the source.

    Args:
        first: the chain's first hop.
        later: the later one.
        wire: how rows will travel in that.
        source: the server of `first.source`.
    """
    begins = {column.target.name: column for column in first.columns}
    columns: list[ColumnPlan] = []
    more: dict[str, Sequence[Step]] = {}
    unknown: list[tuple[str, str]] = []
    naming = (later.key.target.name, *later.primary_key)
    for column in later.columns:
        origin = begins.get(column.source.name)
        if origin is None:
            continue
        steps = [] if column.binary_sql and wire != "arrow" else _steps(column, later)
        direct = replace(column, source=origin.source, arrow_sql=origin.arrow_sql, binary_sql=None)
        if steps and origin.change:
            unknown.append((column.source.name, f"{first.target} has other values by on_overflow"))
        elif steps and not _converts(direct, replace(later, source=first.source)):
            unknown.append((column.source.name, f"only {first.target} will show what it becomes"))
        elif steps:
            more[column.target.name] = [step for step in steps if isinstance(step, Unreplaced)]
        elif column.target.name not in naming:
            continue
        if column.target.name in {*more, *naming}:
            columns.append(direct)
    key = replace(later.key, source=first.key.source)
    plan = replace(later, source=first.source, columns=tuple(columns), key=key, where=first.where)
    written = guards(plan, wire, dialect(source).variant, more)
    examined = _examined(TableSide(plan, "source", source), written)
    return replace(examined, not_examined=(*examined.not_examined, *unknown))


def _steps(column: ColumnPlan, plan: CopyPlan) -> list[Step]:
    """The steps of a column that may refuse a value."""
    try:
        conversion = conversion_of(column, plan)
    except NoConversion:
        return []
    return [*conversion.steps] if conversion.guarded else []


def _converts(column: ColumnPlan, plan: CopyPlan) -> bool:
    try:
        conversion_of(column, plan)
    except NoConversion:
        return False
    return True


def _examined(source: TableSide, written: Mapping[str, tuple[Guard, ...]]) -> RefusedValues:
    plan = source.plan
    if not written:
        return RefusedValues(None)
    known = {
        name: tuple(guard for guard in of_column if guard.condition is not None)
        for name, of_column in written.items()
    }
    conditions = {name: any_of(of_column) for name, of_column in known.items() if of_column}
    by_name, rows = count_refused(source, conditions)
    by_column: dict[str, RefusedColumn] = {}
    for column in plan.columns:
        name = column.target.name
        if not by_name.get(name):
            continue
        shown_values = tuple(_examples(source, column, known[name]))
        reasons = {example.reason for example in shown_values}
        broken = [guard for guard in known[name] if guard.reason in reasons] or [*known[name]]
        by_column[name] = RefusedColumn(column, by_name[name], shown_values, _remedies(broken))
    unseen: list[tuple[str, str]] = []
    by_client = {
        name: of_column
        for name, of_column in written.items()
        if any(guard.condition is None for guard in of_column)
    }
    for name, refused in _by_client(source, by_client, unseen).items():
        by_column[name] = refused
    in_order = [column.target.name for column in plan.columns if column.target.name in by_column]
    return RefusedValues(rows, tuple(by_column[name] for name in in_order), tuple(unseen))


def _remedies(broken: Sequence[Guard]) -> tuple[OverflowPolicy, ...]:
    """The policies that answer all of some guards."""
    return tuple(
        policy for policy in ("null", "clamp") if all(policy in guard.policies for guard in broken)
    )


def any_of(written: Sequence[Guard]) -> str:
    """Write the condition that a value breaks any of some guards, whose conditions are known."""
    return " OR ".join(f"({guard.condition})" for guard in written)


def count_refused(
    source: TableSide, conditions: Mapping[str, str], *, rows_of: str | None = None
) -> tuple[dict[str, int], int]:
    """Count the rows that meet each condition, and all rows.

    Args:
        source: the source of a hop.
        conditions: the conditions, by name.
        rows_of: the condition on rows; by default those of the transfer's row filter.
    """
    counted: dict[str, int] = {}
    rows, names = 0, list(conditions)
    where = rows_of or filtered("1 = 1", source.plan.where)
    for start in range(0, max(1, len(names)), COLUMNS_AT_ONCE):
        some = {name: conditions[name] for name in names[start : start + COLUMNS_AT_ONCE]}
        total = source.total(where, some)
        rows = total[ROWS]
        counted |= total.get(CHANGED, {})
    return counted, rows


def _examples(source: TableSide, column: ColumnPlan, written: Sequence[Guard]) -> Iterator[Example]:
    """Read the first rows, by their keys, whose values break one of a column's guards.

    Rows that share their key are one example.
    """
    plan, system = source.plan, source.table.system
    digests, keys = dialect(source.endpoint), identity_fields(plan)
    field = own_field_of(plan, column)
    selected = [digests.shown(each, "source") for each in (*keys, field)]
    head, tail = system.dialect.limited(EXAMPLES)
    seen: set[tuple[str | None, ...]] = set()
    for guard in written:
        where = filtered(str(guard.condition), plan.where)
        prefix = alias_prefix(where, *selected)
        listed = ", ".join(f"{sql} AS {prefix}{number}" for number, sql in enumerate(selected))
        rows = source.endpoint.query(
            f"SELECT {head}{listed} FROM {read_from(plan.source)} WHERE {where} "
            f"ORDER BY {system.quote(plan.key.source.name)}{tail}"
        )
        for *values, form in rows:
            forms = tuple(shown(key, value) for key, value in zip(keys, values, strict=True))
            if forms not in seen and len(seen) < EXAMPLES:
                seen.add(forms)
                names = [key.source.name for key in keys]
                key = dict(zip(names, forms, strict=True))
                yield Example(key, shown(field, form), guard.reason)


def own_field_of(plan: CopyPlan, column: ColumnPlan) -> Field:
    """Describe a column as the source has it: what the target would hold may be rounded."""
    (field,) = [each for each in all_fields(plan) if each.name == column.target.name]
    return field if field.kind == "array" else own_field(plan.source.system, column.source)


def _by_client(
    source: TableSide,
    written: Mapping[str, tuple[Guard, ...]],
    unseen: list[tuple[str, str]],
) -> dict[str, RefusedColumn]:
    """Try the conversion of columns that the source's SQL cannot examine, batch by batch."""
    plan = source.plan
    columns = [column for column in plan.columns if column.target.name in written]
    for column in [column for column in columns if column.arrow_sql is None]:
        unseen.append((column.source.name, "it travels unread"))
        columns.remove(column)
    if not columns:
        return {}
    keys = [
        column
        for column in plan.columns
        if column.target.name in (plan.primary_key or (plan.key.target.name,))
        and column.arrow_sql is not None
    ]
    read = [*keys, *columns]
    where = filtered("1 = 1", plan.where)
    fields = [str(column.arrow_sql) for column in read]
    prefix = alias_prefix(where, *fields)
    listed = ", ".join(f"{sql} AS {prefix}{number}" for number, sql in enumerate(fields))
    sql = f"SELECT {listed} FROM {read_from(plan.source)} WHERE {where}"
    counts: dict[str, int] = {}
    examples: dict[str, list[Example]] = {}
    try:
        with source.endpoint.read_arrow(sql, batch_rows=BATCH_ROWS) as batches:
            for batch in batches:
                for position, column in enumerate(columns, start=len(keys)):
                    name = column.target.name
                    for reason, rows in refused_rows(column, plan, batch.column(position)):
                        counts[name] = counts.get(name, 0) + len(rows)
                        shown_rows = examples.setdefault(name, [])
                        for row in rows[: EXAMPLES - len(shown_rows)]:
                            key = _key(batch, keys, row, plan)
                            value = shown_value(batch.column(position)[row], plan.source.system)
                            shown_rows.append(Example(key, str(value), reason))
    except ValueRefused as error:
        unseen += [(column.source.name, str(error)) for column in columns]
    return {
        column.target.name: RefusedColumn(
            column,
            counts[column.target.name],
            tuple(examples[column.target.name]),
            _remedies(written[column.target.name]),
        )
        for column in columns
        if column.target.name in counts
    }


def _key(
    batch: pa.RecordBatch, keys: Sequence[ColumnPlan], row: int, plan: CopyPlan
) -> dict[str, str | None]:
    return {
        column.source.name: str(shown_value(batch.column(position)[row], plan.source.system))
        for position, column in enumerate(keys)
    }
