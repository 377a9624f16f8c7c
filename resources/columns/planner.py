"""Plans a hop's columns: each target type, how values are selected, what is refused, names too."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from tableferry.resources.columns.advice import alternative, no_decimal
from tableferry.resources.columns.conversions import NoConversion, conversion_between, holds
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan, Format
from tableferry.resources.contract.dialect import Dialect
from tableferry.resources.contract.loader import format_of
from tableferry.resources.contract.refusals import Where
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.errors import ColumnsRefused, InputError, NamesClash, TypeRefused
from tableferry.resources.tables import TableRef
from tableferry.resources.types.export import Conversion, Refusal
from tableferry.resources.types.kinds import Array, Float
from tableferry.resources.types.steps import CHANGES, OverflowPolicy
from tableferry.resources.types.type_map import Column


@dataclass(frozen=True)
class ColumnOverride:
    """What the user declares about a column.

    `type` is the target type; values that do not fit are refused, unless `on_overflow` says
    to make them `null`, to `clamp` them to the nearest value, or to move the column as `text`.
    """

    rename: str | None = None
    type: str | None = None
    on_overflow: OverflowPolicy = "refuse"
    low_cardinality: bool = False
    where_possible: bool = False
    """Whether `on_overflow` is without effect where every value fits, rather than an error."""


def plan_copy(
    source: TableRef,
    source_columns: Sequence[Column],
    target: TableRef,
    *,
    key: str,
    overrides: Mapping[str, ColumnOverride] | None = None,
    exclude: Collection[str] = (),
    target_version: str | None = None,
    existing: Collection[str] = (),
) -> CopyPlan:
    """Plan a hop column by column.

    Args:
        source: the table to read.
        source_columns: its columns as the server declares them, in catalog order.
        target: the table to write.
        key: the source's name of the column whose ranges are moved.
        overrides: overrides by source column name.
        exclude: source columns to leave out.
        target_version: the version that `ping` returns, if the target's types depend on it. Without
            it, ClickHouse's dates have the limits of its oldest releases, and floats do not travel
            as text.
        existing: the names that columns of the target have already.

    Raises:
        TypeRefused: columns cannot travel exactly; names all with type, reason and what would work.
        ColumnsRefused: named columns do not exist, or options do not fit their columns.
        NamesClash: columns would get names that the target cannot have, or does not tell apart.
        InputError: the key is excluded, or a system cannot be a source or a target.
    """
    text_format = format_of("text", source, target)
    overrides = overrides or {}
    names = {column.name for column in source_columns}
    unknown = [name for name in dict.fromkeys([key, *overrides, *exclude]) if name not in names]
    if unknown:
        problems = {name: f"there is no column {name!r}" for name in unknown}
        problems[unknown[-1]] += f"; there are {', '.join(sorted(names))}"
        raise ColumnsRefused(str(source), problems)
    if key in exclude:
        raise InputError(f"{source}: the key column {key!r} cannot be excluded")
    row = sorted((each.primary_key or 0, each.name) for each in source_columns)
    of_row = [name for position, name in row if position and name not in exclude]
    named_by = [source.system.quote(name) for name in (of_row if key in of_row else [key])]
    together = ", ', ', ".join(named_by)
    key_sql = f"CONCAT({together})" if named_by[1:] else together
    planner = _ColumnPlanner(source, target.system, key_sql, target_version or "", text_format)
    plans: list[ColumnPlan] = []
    refused: dict[str, str] = {}
    refusal: type[ColumnsRefused] = ColumnsRefused
    for column in source_columns:
        if column.name in exclude:
            continue
        try:
            plans.append(planner.plan(column, overrides.get(column.name, ColumnOverride())))
        except NoConversion as error:
            refused[column.name] = f"column {column.name!r} of type {column.type}: {error}"
            refusal = TypeRefused
        except InputError as error:
            refused[column.name] = str(error)
    if refused:
        raise refusal(f"{source} -> {target}", refused)
    require_names(source, target, plans, existing)
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
        target_version=planner.version,
        excluded=tuple(column.name for column in source_columns if column.name in exclude),
    )


def is_target_type(system: System, type_: str) -> bool:
    """Whether columns of a declared type can be filled in a system."""
    return system.types.slot(system.types.plain(type_), "") is not None


def incompatibility(target_system: System, planned: Column, actual: Column) -> str | None:
    """Say why an existing target column cannot take all values of the planned one; None if it can.

    The reason completes the column's name.
    """
    if actual.generated:
        return "is computed by the server"
    types = target_system.types
    declared = actual.own_type or actual.type
    planned_slot, slot = (types.slot(types.plain(column.type), "") for column in (planned, actual))
    never_null = planned_slot is not None and not planned_slot.nullable
    if planned.nullable and not actual.nullable and not never_null:
        return f"is NOT NULL, but the source allows NULL ({planned.type} NULL was planned)"
    if types.plain(planned.type) == types.plain(declared):
        return None
    if planned_slot is not None and slot is None:
        return f"is {declared}, which cannot be filled ({planned.type} was planned)"
    if planned_slot is None or slot is None or not holds(slot.kind, planned_slot.kind):
        return f"is {declared}, which cannot hold every {planned.type}"
    return None


@dataclass(frozen=True)
class _ColumnPlanner:
    table: TableRef
    target: System
    key_sql: str
    """What names a row in refusals: its primary key."""
    version: str
    text_format: Format | None

    def plan(self, column: Column, override: ColumnOverride) -> ColumnPlan:
        kept = self._kept_type(column, override)
        plan = self._passed_on(column, kept, override) if kept else self._made(column, override)
        if plan.on_overflow != override.on_overflow and not override.where_possible:
            raise InputError(f"column {column.name!r}: no value can overflow")
        return plan

    def _made(self, column: Column, override: ColumnOverride) -> ColumnPlan:
        """Plan a column whose values are read, and may be refused or changed."""
        source, target = self.table.system, self.target
        target_type = self._target_type(column, override)
        try:
            conversion = conversion_between(source, column.type, target, target_type, self.version)
        except NoConversion as error:
            advice = alternative(source, column, target)
            raise NoConversion(f"{error}, so it cannot become {target_type}; {advice}") from None
        policy = override.on_overflow
        changes = policy in CHANGES and conversion.guarded
        if policy in CHANGES and not changes:
            policy = "refuse"
        final = target_type
        if override.low_cardinality:
            assert target.types.low_cardinality is not None
            final = target.types.low_cardinality(target_type)
        text_sql = None
        is_float = isinstance(conversion.slot.kind, Float)
        # a query that streams texts cannot count the values that it changes
        exact = not changes and (not is_float or target.types.reads_floats(self.version))
        if self.text_format and exact:
            text_sql = source_of(source).text_sql(
                self.text_format, column, conversion, self.table, self.key_sql
            )
        nullable = (column.nullable or policy == "null") and conversion.slot.nullable
        return ColumnPlan(
            source=column,
            target=Column(override.rename or column.name, final, nullable),
            arrow_sql=self._arrow_sql(column, conversion),
            arrow_type=conversion.arrow,
            text_sql=text_sql,
            on_overflow=policy,
            fitted=target_type if changes else "",
        )

    def _arrow_sql(self, column: Column, conversion: Conversion) -> str:
        """Write the expression for record batches, which fails if they would lose something."""
        name, export = self.table.system.quote(column.name), conversion.source
        value, refuse, type_ = export.arrow, export.refuse, export.refuse_type
        if conversion.as_text:
            value, refuse, type_ = export.as_text or value, export.refuse_text, "text"
        expression = value.replace("{}", name)
        if not refuse:
            return expression
        return source_of(self.table.system).guarded(
            expression,
            refuse.replace("{}", name),
            Where(str(self.table), column.name, self.key_sql, name),
            export.refuse_reason,
            type_,
        )

    def _kept_type(self, column: Column, override: ColumnOverride) -> str | None:
        """The type of a column whose values are passed on unread; None for other columns."""
        system = self.table.system
        kept = system.types.keeps(column) if system == self.target else None
        if kept is None or override.on_overflow == "text" or override.low_cardinality:
            return None
        declared = override.type and system.types.plain(override.type)
        if declared in (None, kept, column.type):
            return kept
        # the same type in other words, e.g. timestamp(0)
        read = system.types.read(declared)
        return declared if read.kind and read == system.types.read(column.type) else None

    def _passed_on(self, column: Column, type_: str, override: ColumnOverride) -> ColumnPlan:
        """Plan a column whose values one server of a system passes on to another unread."""
        system = self.table.system
        arrow_sql, arrow_type = None, pa.null()
        try:
            conversion = conversion_between(system, column.type, system, type_)
        except NoConversion:
            pass
        else:
            # record batches lose parts of arrays, of which the digest reads the server's text
            if not isinstance(conversion.slot.kind, Array):
                arrow_sql, arrow_type = self._arrow_sql(column, conversion), conversion.arrow
        return ColumnPlan(
            source=column,
            target=Column(override.rename or column.name, type_, column.nullable),
            arrow_sql=arrow_sql,
            arrow_type=arrow_type,
            text_sql=source_of(system).unread_sql("copy_text", column),
            binary_sql=source_of(system).unread_sql("pgcopy", column),
        )

    def _target_type(self, column: Column, override: ColumnOverride) -> str:
        target, types = self.target, self.target.types
        if override.low_cardinality and types.low_cardinality is None:
            raise InputError(f"column {column.name!r}: {target} has no type for low_cardinality")
        if override.type is not None:
            if not is_target_type(target, override.type):
                raise InputError(
                    f"column {column.name!r}: {override.type!r} is not a {target} type that can be "
                    "filled"
                )
            return types.plain(override.type)
        if override.on_overflow == "text":
            return types.text
        export = self.table.system.types.export(column.type)
        if isinstance(export, Refusal):
            advice = alternative(self.table.system, column, target)
            raise NoConversion(f"it is {export.why}; {advice}")
        default = types.default(export.kind)
        if default is None:
            raise NoConversion(no_decimal(export, column, target))
        return default


def require_names(
    source: TableRef,
    target: TableRef,
    columns: Sequence[ColumnPlan],
    existing: Collection[str] = (),
) -> None:
    """Refuse names that the target cannot have, or does not tell apart.

    Args:
        source: the table to read.
        target: the table to write.
        columns: the columns of the hop.
        existing: names that columns of the target have already.

    Raises:
        NamesClash: names each column with the reason, and a name that it could have.
    """
    dialect = target.system.dialect
    clashes = _clashes(dialect, columns)
    held = set(existing)
    if source.system == target.system:
        names = {column.source.name for column in columns}
        held |= names - {name for name in names if dialect.taken.get(dialect.folded(name))}
    unfit = {
        name: why
        for name, why in dialect.unfit_names([column.target for column in columns]).items()
        if name not in held
    }
    taken = {dialect.folded(column.target.name) for column in columns} | dialect.taken.keys()
    problems: dict[str, str] = {}
    renames: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for column in columns:
        name, target_name = column.source.name, column.target.name
        if target_name in unfit:
            reasons[name], wanted = unfit[target_name]
            problem = f"column {name!r}: {target} cannot have the name {target_name!r}, which "
            problem += reasons[name]
        elif name in clashes:
            reasons[name], wanted = dialect.not_distinct, target_name
            problem = f"columns {clashes[name]!r} and {name!r} would both be named {target_name!r}"
        else:
            continue
        renames[name] = _free(dialect, wanted, taken, same=target_name)
        taken.add(dialect.folded(renames[name]))
        problems[name] = (
            f"{problem}; rename {'it' if target_name in unfit else 'one of them'}: "
            f"columns: {{{_yaml(name)}: {{rename: {_yaml(renames[name])}}}}}"
        )
    if problems:
        raise NamesClash(f"{source} -> {target}", problems, renames, reasons)


def _clashes(dialect: Dialect, columns: Sequence[ColumnPlan]) -> dict[str, str]:
    """Map source names to the earlier source name whose target name is the same to the target."""
    first: dict[str, str] = {}
    clashes = {}
    for column in columns:
        earlier = first.setdefault(dialect.folded(column.target.name), column.source.name)
        if earlier != column.source.name:
            clashes[column.source.name] = earlier
    return clashes


def _free(dialect: Dialect, wanted: str, taken: Collection[str], *, same: str) -> str:
    """Find a name like the wanted one that no column has."""
    for number in count(1):
        suffix = f"_{number}" if number > 1 else ""
        name = dialect.shortened(wanted, suffix)
        if name != same and dialect.folded(name) not in taken:
            return name
    raise AssertionError("numbers do not end")


def _yaml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
