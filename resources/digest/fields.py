"""Decides how a column's values are compared, by the types that both sides declare."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from tableferry.resources.columns.conversions import conversion_of
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Kind
from tableferry.resources.contract.system import System
from tableferry.resources.digest.overflow import Overflow, integer_type
from tableferry.resources.errors import SchemaDrift
from tableferry.resources.types import kinds
from tableferry.resources.types.export import Refusal
from tableferry.resources.types.type_map import Column, TypeMap

_KINDS: dict[type[kinds.Kind], Kind] = {
    kinds.Integer: "integer",
    kinds.Boolean: "boolean",
    kinds.Decimal: "decimal",
    kinds.Float: "float",
    kinds.Text: "text",
    kinds.Binary: "bytes",
    kinds.Date: "date",
    kinds.Time: "time",
    kinds.Timestamp: "timestamp",
    kinds.Uuid: "uuid",
    kinds.Array: "array",
}


@dataclass(frozen=True)
class DigestedType:
    """The parts of a declared type. `kind` is None if only a text can represent its values."""

    kind: Kind | None
    name: str
    precision: int | None = None
    """Digits of a decimal, characters of a text or bytes of a binary; None where unbounded."""
    scale: int = 0
    """Digits after the decimal point, of a decimal or of a second."""
    padded: bool = False
    """Whether trailing blanks carry no meaning (character(n))."""
    zoned: bool = False
    single: bool = False
    """Whether a float has 32 bits."""


def declared(types: TypeMap, type_text: str) -> DigestedType:
    """Take a declared type apart, e.g. `numeric(38,10)` or `DateTime64(6, 'UTC')`."""
    read = types.read(type_text)
    kind = None if read.kind is None else _KINDS[type(read.kind)]
    match read.kind:
        case kinds.Decimal(precision, scale):
            return DigestedType(kind, read.name, precision, scale or 0)
        case kinds.Text(units, characters, padded=padded):
            return DigestedType(kind, read.name, characters or units, padded=padded)
        case kinds.Float(bits):
            return DigestedType(kind, read.name, single=bits == 32)
        case kinds.Binary(length):
            return DigestedType(kind, read.name, length)
        case kinds.Time(digits):
            return DigestedType(kind, read.name, scale=digits)
        case kinds.Timestamp(digits, zone=zone):
            return DigestedType(kind, read.name, scale=digits, zoned=zone != "none")
    return DigestedType(kind, read.name)


def fields(plan: CopyPlan) -> tuple[Field, ...]:
    """List the columns of a hop, in plan order, that can be compared."""
    relaxed = (_relaxed_field(plan, column) for column in plan.columns)
    return tuple(field for field in relaxed if field is not None)


def all_fields(plan: CopyPlan) -> tuple[Field, ...]:
    """List all columns of a hop, in plan order, without regard to `on_overflow`."""
    return tuple(_field(plan, column) for column in plan.columns)


def identity_fields(plan: CopyPlan) -> tuple[Field, ...]:
    """List the columns that identify a row: the primary key, or else the key."""
    by_name = {column.target.name: column for column in plan.columns}
    names = [name for name in plan.primary_key if name in by_name] or [plan.key.target.name]
    columns = [by_name[name] for name in names]
    return tuple(_relaxed_field(plan, column) or _field(plan, column) for column in columns)


def own_field(system: System, column: Column) -> Field:
    """Describe a column that is compared only with itself."""
    type_ = declared(system.types, column.type)
    rendered = computed(system, column) if type_.kind else _as_text(system, column)
    return Field(
        column.name, type_.kind or "text", column, column, rendered=rendered, scale=type_.scale
    )


def not_compared(plan: CopyPlan) -> tuple[str, ...]:
    """Name the columns with an `on_overflow` whose effect the source's SQL cannot compute."""
    names = {field.name for field in fields(plan)}
    return tuple(column.name for column in plan.target_columns if column.name not in names)


def relaxed_fields(plan: CopyPlan) -> tuple[Field, ...]:
    """List the columns whose values an `on_overflow` may change and that can be compared."""
    return tuple(field for field in fields(plan) if field.relaxed)


def _relaxed_field(plan: CopyPlan, column: ColumnPlan) -> Field | None:
    """Describe a column with its `on_overflow`; None if the source's SQL cannot compute that."""
    field, system = _field(plan, column), plan.source.system
    if column.change is None or column == plan.key:
        return field
    conversion = conversion_of(column, plan)
    overflow = Overflow(column.change, conversion.sent, conversion.steps, field, system)
    relaxed = {}
    for variant in ("", *system.digest.VARIANTS):
        value = replace(overflow, variant=variant).relaxed()
        if value is None:
            return None
        relaxed[variant] = value
    type_, item = overflow.base[1], field.item
    if item is not None and type_ != field.source.type:
        item = replace(item, source=replace(item.source, type=integer_type(system)))
    source_column = replace(field.source, type=type_)
    return replace(field, source=source_column, rendered=None, item=item, relaxed=relaxed)


def observed(plan: CopyPlan, target: Endpoint) -> CopyPlan:
    """Put the target's actual columns into the plan, which may be wider than planned.

    Raises:
        TableMissing: there is no target table.
        SchemaDrift: it lacks a column.
    """
    return plan if plan.observed else with_columns(plan, target.columns(plan.target))


def with_columns(plan: CopyPlan, actual: Iterable[Column]) -> CopyPlan:
    """Put actual columns of the target into the plan.

    Raises:
        SchemaDrift: one is missing.
    """
    by_name = {column.name: column for column in actual}
    missing = [c.target.name for c in plan.columns if c.target.name not in by_name]
    if missing:
        raise SchemaDrift(f"{plan.target} has no column {', '.join(map(repr, missing))}")
    columns = tuple(replace(c, target=by_name[c.target.name]) for c in plan.columns)
    key = replace(plan.key, target=by_name[plan.key.target.name])
    written = {column.target.name for column in columns}
    others = tuple(name for name in by_name if name not in written)
    return replace(plan, columns=columns, key=key, observed=True, only_in_target=others)


def key_field(plan: CopyPlan) -> Field:
    """Describe the key column of a hop."""
    return _field(plan, plan.key)


def _field(plan: CopyPlan, column: ColumnPlan) -> Field:
    return column.compared or field_between(plan.source.system, plan.target.system, column)


def field_between(source_system: System, target_system: System, column: ColumnPlan) -> Field:
    """Describe a column that is moved from one system to another."""
    source = declared(source_system.types, column.source.type)
    target = declared(target_system.types, column.target.type)
    # the server's text of a list shows nothing of the elements that a policy changes
    same_type = source_system == target_system and _has_same_type(column)
    if source.kind in (None, "array") and column.change is None and same_type:
        return same_text(source_system, column)
    kind = _kind(source, target, column, target_system)
    if kind == "integer" and source.kind in ("date", "time", "timestamp"):
        kind = source.kind
    if kind == "array":
        return _array(source_system, target_system, column)
    scale = target.scale if target.kind == kind else source.scale
    if kind in ("time", "timestamp"):
        # a digit that only the source can have would otherwise be ignored
        scale = max(source.scale, target.scale)
    to_text = _as_text if kind == "text" and source.kind != "text" else computed
    return Field(
        name=column.target.name,
        kind=kind,
        source=column.source,
        target=column.target,
        rendered=to_text(source_system, column.source),
        scale=scale,
        # trailing blanks of a bpchar of any length mean nothing to its server either
        padded=target.padded or (source.padded and source.precision is None),
        single=source.single or target.single,
    )


def _has_same_type(column: ColumnPlan) -> bool:
    source, target = (side.own_type or side.type for side in (column.source, column.target))
    return source == target


def same_text(system: System, column: ColumnPlan) -> Field:
    """Describe a column whose type two servers of a system print alike, whatever its values."""
    rendered, target_rendered = (
        system.dialect.text(system.quote(side.name)) for side in (column.source, column.target)
    )
    return Field(
        column.target.name,
        "text",
        column.source,
        column.target,
        rendered=rendered,
        target_rendered=target_rendered,
    )


def _as_text(system: System, column: Column) -> str:
    """Write what a text column of the target receives, without guards that may stop an export."""
    export = system.types.export(column.type)
    template = export.as_text or ("{}" if isinstance(export, Refusal) else export.arrow)
    return template.replace("{}", system.quote(column.name))


def computed(system: System, column: Column) -> str | None:
    """Write the value of a column that has to be computed by its type; None for other types."""
    template = system.types.computed.get(column.type)
    return template and template.replace("{}", system.quote(column.name))


def _kind(source: DigestedType, target: DigestedType, column: ColumnPlan, system: System) -> Kind:
    if target.kind == "text":
        # a type of texts may also hold bytes, and times if the system has no type for them
        arrow = column.arrow_type
        if source.kind == "bytes" and (
            pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow)
        ):
            return "bytes"
        if source.kind == "time":
            times = system.types.default(kinds.Time(source.scale))
            return "time" if target.name == times else "text"
    return target.kind or "text"


def _array(source_system: System, target_system: System, column: ColumnPlan) -> Field:
    source, target = (
        replace(side, type=str(system.types.read(side.type).item))
        for side, system in ((column.source, source_system), (column.target, target_system))
    )
    item = field_between(
        source_system, target_system, replace(column, source=source, target=target)
    )
    return Field(
        name=column.target.name,
        kind="array",
        source=column.source,
        target=column.target,
        item=replace(item, rendered=None),
    )
