"""Plans one hop: which target type each column gets, how it is selected, what is refused."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from tableferry.resources.columns.advice import alternative, no_decimal, text_type
from tableferry.resources.columns.conversions import (
    NoConversion,
    conversion_between,
    default_type,
    holds,
    plain_type,
    source_export,
    target_slot,
)
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan, Format
from tableferry.resources.contract.dialects import quote
from tableferry.resources.contract.formats import format_of
from tableferry.resources.contract.refusals import Where
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.errors import ColumnsRefused, InputError, NamesClash, TypeRefused
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.types.conversion import Conversion
from tableferry.resources.types.export import Refusal
from tableferry.resources.types.kinds import Array, Float
from tableferry.resources.types.steps import OverflowPolicy


@dataclass(frozen=True)
class ColumnOverride:
    """What the user declares about one column.

    `type` is the target type; values that do not fit into it are refused by name. `on_overflow`
    says what happens to those instead: `null`, `clamp` to the nearest value, or let the whole
    column travel as `text`.
    """

    rename: str | None = None
    type: str | None = None
    on_overflow: OverflowPolicy = "refuse"
    low_cardinality: bool = False


def plan_copy(
    source: TableRef,
    source_columns: Sequence[Column],
    target: TableRef,
    *,
    key: str,
    overrides: Mapping[str, ColumnOverride] | None = None,
    exclude: Collection[str] = (),
    target_version: str | None = None,
) -> CopyPlan:
    """Plan a hop column by column.

    Args:
        source: the table to read.
        source_columns: its columns as the server declares them, in catalog order.
        target: the table to write.
        key: source name of the column whose ranges are moved.
        overrides: by source column name.
        exclude: source columns to leave out.
        target_version: as `ping` tells it, of a target whose types depend on it; without it,
            ClickHouse's dates are held to what every release keeps, and floats do not travel as
            text.

    Raises:
        TypeRefused: names every column that cannot travel exactly: type, why, and what would work.
        ColumnsRefused: named columns do not exist, or options do not fit their columns.
        NamesClash: columns get names that the target does not tell apart.
        InputError: the key is excluded, or one of the systems does
            not take its part.
    """
    text_format = format_of("text", source, target)
    overrides = overrides or {}
    names = {column.name for column in source_columns}
    unknown = [name for name in dict.fromkeys([key, *overrides, *exclude]) if name not in names]
    if unknown:
        problems = {name: f"there is no column {name!r}" for name in unknown}
        problems[unknown[-1]] += f"; there are {_list(names)}"
        raise ColumnsRefused(str(source), problems)
    if key in exclude:
        raise InputError(f"{source}: the key column {key!r} cannot be excluded")
    plans: list[ColumnPlan] = []
    refused: dict[str, str] = {}
    refusal: type[ColumnsRefused] = ColumnsRefused
    key_sql = quote(source.system, key)
    version = target_version or ""
    for column in source_columns:
        if column.name in exclude:
            continue
        override = overrides.get(column.name, ColumnOverride())
        try:
            plans.append(
                _plan_column(source, column, target.system, override, key_sql, version, text_format)
            )
        except NoConversion as error:
            refused[column.name] = f"column {column.name!r} of type {column.type}: {error}"
            refusal = TypeRefused
        except InputError as error:
            refused[column.name] = str(error)
    if refused:
        raise refusal(f"{source} -> {target}", refused)
    require_distinct(source, target, {plan.source.name: plan.target.name for plan in plans})
    by_source = {plan.source.name: plan for plan in plans}
    keys = sorted((plan.source.primary_key or 0, plan.target.name) for plan in plans)
    primary_key = tuple(name for position, name in keys if position)
    if any(column.primary_key and column.name in exclude for column in source_columns):
        primary_key = ()
    return CopyPlan(
        source,
        target,
        tuple(plans),
        by_source[key],
        primary_key,
        text_format=text_format,
        target_version=version,
        excluded=tuple(column.name for column in source_columns if column.name in exclude),
    )


def is_target_type(system: System, type_: str) -> bool:
    """Whether columns of a declared type can be filled in that system."""
    return target_slot(system, plain_type(system, type_)) is not None


def incompatibility(target_system: System, planned: Column, actual: Column) -> str | None:
    """Whether an existing target column takes everything that the planned one would.

    Returns:
        None if it does, else the reason, to be put after the column's name.
    """
    own = actual.own_type or actual.type
    if actual.generated:
        return "is computed by the server"
    wanted, found = (
        target_slot(target_system, plain_type(target_system, column.type))
        for column in (planned, actual)
    )
    never_null = wanted is not None and not wanted.nullable
    if planned.nullable and not actual.nullable and not never_null:
        return f"is NOT NULL, but the source allows NULL ({planned.type} NULL was planned)"
    if plain_type(target_system, planned.type) == plain_type(target_system, own):
        return None
    if wanted is None or found is None or not holds(found.kind, wanted.kind):
        return f"is {own}, which cannot hold every {planned.type}"
    return None


def _plan_column(
    table: TableRef,
    column: Column,
    target: System,
    override: ColumnOverride,
    key_sql: str,
    version: str,
    text_format: Format | None,
) -> ColumnPlan:
    source, sending, types = table.system, source_of(table.system), target.types
    kept = _kept_type(source, column, target, override)
    if kept is not None:
        return _passed_on(table, column, kept, override, key_sql)
    target_type = _target_type(source, column, target, override)
    try:
        conversion = conversion_between(source, column.type, target, target_type, version)
    except NoConversion as error:
        advice = alternative(source, column, target)
        raise NoConversion(f"{error}, so not to {target_type}; {advice}") from None
    if override.on_overflow != "refuse" and not _can_overflow(conversion, override):
        raise InputError(f"column {column.name!r}: no value can overflow")
    nullable = column.nullable or override.on_overflow == "null"
    final = target_type
    if override.low_cardinality:
        assert types.low_cardinality is not None
        final = types.low_cardinality(target_type)
    text_sql = None
    if text_format and (not isinstance(conversion.slot.kind, Float) or types.reads_floats(version)):
        policy = override.on_overflow
        text_sql = sending.text_sql(text_format, column, conversion, table, key_sql, policy)
    return ColumnPlan(
        source=column,
        target=Column(override.rename or column.name, final, nullable and conversion.slot.nullable),
        arrow_sql=_for_batches(table, column, conversion, key_sql),
        arrow_type=conversion.arrow,
        text_sql=text_sql,
        on_overflow=override.on_overflow,
        fitted=target_type if override.on_overflow in ("null", "clamp") else "",
    )


def _for_batches(table: TableRef, column: Column, conversion: Conversion, key_sql: str) -> str:
    """The expression for record batches, which fails where they would lose something unseen."""
    name = quote(table.system, column.name)
    expression = (
        (conversion.source.as_text if conversion.as_text else None) or conversion.source.arrow
    ).replace("{}", name)
    refuse = conversion.source.refuse_text if conversion.as_text else conversion.source.refuse
    if not refuse:
        return expression
    return source_of(table.system).guarded(
        expression,
        refuse.replace("{}", name),
        Where(str(table), column.name, key_sql, name),
        conversion.source.refuse_reason,
        "text" if conversion.as_text else conversion.source.refuse_type,
    )


def _kept_type(
    source: System, column: Column, target: System, override: ColumnOverride
) -> str | None:
    """The type that a column has on both sides, so that its values need not be looked at."""
    types = source.types
    own = types.keeps(column) if source == target else None
    if own is None or override.on_overflow == "text" or override.low_cardinality:
        return None
    declared = override.type and plain_type(target, override.type)
    return own if declared in (None, own, column.type) else None


def _passed_on(
    table: TableRef, column: Column, type_: str, override: ColumnOverride, key_sql: str
) -> ColumnPlan:
    """A column between two servers of one system, which hand its values over as they are."""
    if override.on_overflow != "refuse":
        raise InputError(f"column {column.name!r}: no value can overflow")
    sending = source_of(table.system)
    arrow_sql, arrow_type = None, pa.null()
    try:
        conversion = conversion_between(table.system, column.type, table.system, type_)
    except NoConversion:
        pass
    else:
        # of which record batches do not keep all, and the digest looks at the server's own text
        if not isinstance(conversion.slot.kind, Array):
            arrow_sql = _for_batches(table, column, conversion, key_sql)
            arrow_type = conversion.arrow
    return ColumnPlan(
        source=column,
        target=Column(override.rename or column.name, type_, column.nullable),
        arrow_sql=arrow_sql,
        arrow_type=arrow_type,
        text_sql=sending.unread_sql("copy_text", column),
        binary_sql=sending.unread_sql("pgcopy", column),
    )


def _can_overflow(conversion: Conversion, override: ColumnOverride) -> bool:
    return conversion.guarded or override.on_overflow == "text"


def _target_type(source: System, column: Column, target: System, override: ColumnOverride) -> str:
    if override.low_cardinality and target.types.low_cardinality is None:
        raise InputError(f"column {column.name!r}: {target} has no type for low_cardinality")
    if override.type is not None:
        if override.on_overflow == "text":
            raise InputError(f"column {column.name!r}: 'on_overflow: text' chooses the type itself")
        type_ = plain_type(target, override.type)
        if not is_target_type(target, type_):
            raise InputError(
                f"column {column.name!r}: {override.type!r} is no {target} type that we can fill"
            )
        return type_
    export = source_export(source, column.type)
    if override.on_overflow == "text":
        return text_type(target)
    if isinstance(export, Refusal):
        raise NoConversion(f"it is {export.why}; {alternative(source, column, target)}")
    type_or_none = default_type(target, export.kind)
    if type_or_none is None:
        raise NoConversion(no_decimal(export, column, target))
    return type_or_none


def require_distinct(source: TableRef, target: TableRef, names: Mapping[str, str]) -> None:
    """Look for columns whose names the target does not tell apart.

    Args:
        source: the table to read.
        target: the table to write.
        names: of the columns, in the target by those in the source.

    Raises:
        NamesClash: there are such columns.
    """
    folded = target.system.dialect.folded
    taken = {folded(name) for name in names.values()}
    first: dict[str, str] = {}
    problems: dict[str, str] = {}
    renames: dict[str, str] = {}
    for column, name in names.items():
        if (other := first.setdefault(folded(name), column)) == column:
            continue
        numbered = (f"{name}_{number}" for number in count(2))
        free = next(one for one in numbered if folded(one) not in taken)
        taken.add(folded(free))
        renames[column] = free
        problems[column] = (
            f"columns {other!r} and {column!r} would both be named {name!r}; rename one of them: "
            f"columns: {{{_yaml(column)}: {{rename: {_yaml(free)}}}}}"
        )
    if problems:
        raise NamesClash(f"{source} -> {target}", problems, renames)


def _yaml(text: str) -> str:
    """A text as a quoted value of YAML."""
    return json.dumps(text, ensure_ascii=False)


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
