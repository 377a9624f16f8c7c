"""What the values of a column are, from the types that both sides declare."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from resources.dialects import quote
from resources.endpoint import Endpoint
from resources.errors import SchemaDrift
from resources.plan import ColumnPlan, CopyPlan
from resources.tables import Column, System
from resources.types import declared as words
from resources.types.conversions import source_export
from resources.types.export import Refusal

Side = Literal["source", "target"]
Kind = Literal[
    "integer", "boolean", "decimal", "float", "text", "bytes", "date", "time", "timestamp", "uuid",
    "array",
]  # fmt: skip

_NAMES: dict[System, dict[Kind, str]] = {
    "postgres": {
        "integer": "smallint, integer, bigint, int2, int4, int8, oid, int",
        "decimal": "numeric, decimal, money",
        "float": "real, double precision, float4, float8",
        "boolean": "boolean, bool",
        "text": "text, character varying, varchar, character, char, bpchar, citext, name",
        "bytes": "bytea",
        "date": "date",
        "time": "time, time without time zone",
        "timestamp": "timestamp, timestamptz, timestamp without time zone, "
        "timestamp with time zone",
        "uuid": "uuid",
    },
    "sqlserver": {
        "integer": "tinyint, smallint, int, bigint",
        "decimal": "decimal, numeric, money, smallmoney",
        "float": "real, float",
        "boolean": "bit",
        "text": "char, varchar, nchar, nvarchar, text, ntext, xml, sysname",
        "bytes": "binary, varbinary, image, rowversion, timestamp",
        "date": "date",
        "time": "time",
        "timestamp": "datetime, smalldatetime, datetime2, datetimeoffset",
        "uuid": "uniqueidentifier",
    },
    "clickhouse": {
        "integer": "Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64",
        "decimal": "Int128, Int256, UInt128, UInt256, "
        "Decimal, Decimal32, Decimal64, Decimal128, Decimal256",
        "float": "Float32, Float64",
        "boolean": "Bool",
        "text": "String, FixedString, Enum8, Enum16",
        "date": "Date, Date32",
        "time": "Time, Time64",
        "timestamp": "DateTime, DateTime64",
        "uuid": "UUID",
        "array": "Array",
    },
}
_KINDS: dict[System, dict[str, Kind]] = {
    system: {name: kind for kind, names in kinds.items() for name in names.split(", ")}
    for system, kinds in _NAMES.items()
}


@dataclass(frozen=True)
class Declared:
    """A declared type, taken apart. `kind` is None for a type that only a text can stand for."""

    kind: Kind | None
    name: str
    precision: int | None = None
    """Digits of a decimal; characters of a text or bytes of a binary, None where unbounded."""
    scale: int = 0
    """Digits after the point of a decimal, or of a second."""
    padded: bool = False
    """Trailing blanks carry no meaning (character(n))."""
    zoned: bool = False


@dataclass(frozen=True)
class Field:
    """One column as both sides hold it, and what is compared of it."""

    name: str
    """The column's name in the target."""
    kind: Kind
    source: Column
    target: Column
    rendered: str | None = None
    """The source's SQL that renders the column as text, where the target holds a rendering."""
    scale: int = 0
    padded: bool = False
    """The target fills texts up with blanks, so that trailing ones carry no meaning."""
    item: Field | None = None
    """Of an array."""

    def column(self, side: Side) -> Column:
        return self.source if side == "source" else self.target

    def value(self, side: Side, system: System) -> str:
        """SQL of the column's value on one side, as it should stand in the target."""
        if side == "source" and self.rendered is not None:
            return f"({self.rendered})"
        return quote(system, self.column(side).name)


def declared(system: System, type_text: str) -> Declared:
    """Take a declared type apart, e.g. `numeric(38,10)` or `DateTime64(6, 'UTC')`."""
    if system == "clickhouse":
        inner = words.unwrap(type_text)[0]
        name, arguments = words.clickhouse(inner)
        zoned = any(argument.startswith("'") for argument in arguments)
        numbers = tuple(int(argument) for argument in arguments if argument.isdecimal())
    else:
        parsed = words.read(type_text)
        if parsed.array:
            return Declared("array", type_text)
        name, numbers = parsed.name, parsed.numbers
        zoned = name in ("timestamp with time zone", "timestamptz", "datetimeoffset")
    kind = _KINDS[system].get(name)
    precision, scale = _size(system, name, kind, numbers)
    return Declared(
        kind,
        name,
        precision,
        scale,
        padded=kind == "text" and name in ("character", "char", "bpchar", "nchar"),
        zoned=kind == "timestamp" and zoned,
    )


def fields(plan: CopyPlan) -> tuple[Field, ...]:
    """The columns of a hop, in plan order, that are compared value by value."""
    skipped = not_compared(plan)
    return tuple(field for field in all_fields(plan) if field.name not in skipped)


def all_fields(plan: CopyPlan) -> tuple[Field, ...]:
    """All columns of a hop, in plan order."""
    return tuple(_field(plan, column) for column in plan.columns)


def identity_fields(plan: CopyPlan) -> tuple[Field, ...]:
    """The columns that tell one row from another: the primary key's, or else the key."""
    by_name = {column.target.name: column for column in plan.columns}
    names = [name for name in plan.primary_key if name in by_name] or [plan.key.target.name]
    return tuple(_field(plan, by_name[name]) for name in names)


def own_field(system: System, column: Column) -> Field:
    """A column that is looked at on its own side only."""
    own = declared(system, column.type)
    return Field(
        column.name,
        own.kind or "text",
        column,
        column,
        rendered=None if own.kind else _as_text(system, column),
        scale=own.scale,
    )


def not_compared(plan: CopyPlan) -> tuple[str, ...]:
    """The columns whose values the transfer was asked to change (`on_overflow: null | clamp`).

    What such a column should hold is what the loader made of it, so that a comparison would hold
    the loader against itself.
    """
    return tuple(
        column.target.name
        for column in plan.columns
        if column.on_overflow in ("null", "clamp") and column != plan.key
    )


def observed(plan: CopyPlan, target: Endpoint) -> CopyPlan:
    """The plan with the target's columns as they are, which may be wider than what was planned.

    Raises:
        TableMissing: there is no target table.
        SchemaDrift: it lacks one of the columns.
    """
    found = {column.name: column for column in target.columns(plan.target)}
    missing = [c.target.name for c in plan.columns if c.target.name not in found]
    if missing:
        raise SchemaDrift(f"{plan.target} has no column {', '.join(map(repr, missing))}")
    columns = tuple(replace(c, target=found[c.target.name]) for c in plan.columns)
    key = replace(plan.key, target=found[plan.key.target.name])
    return replace(plan, columns=columns, key=key)


def key_field(plan: CopyPlan) -> Field:
    """The key column of a hop."""
    return _field(plan, plan.key)


def _field(plan: CopyPlan, column: ColumnPlan) -> Field:
    source = declared(plan.source.system, column.source.type)
    target = declared(plan.target.system, column.target.type)
    kind = _kind(source, target, column)
    if kind == "integer" and source.kind in ("date", "time", "timestamp"):
        kind = source.kind
    if kind == "array":
        return _array(plan, column)
    return Field(
        name=column.target.name,
        kind=kind,
        source=column.source,
        target=column.target,
        rendered=_as_text(plan.source.system, column.source)
        if kind == "text" and source.kind != "text"
        else None,
        scale=target.scale if target.kind == kind else source.scale,
        padded=target.padded,
    )


def _as_text(system: System, column: Column) -> str:
    """What a target's text column gets, without the guards that may stop an export."""
    export = source_export(system, column.type)
    template = export.as_text or ("{}" if isinstance(export, Refusal) else export.arrow)
    return template.replace("{}", quote(system, column.name))


def _kind(source: Declared, target: Declared, column: ColumnPlan) -> Kind:
    if target.kind == "text":
        # a ClickHouse String also holds bytes, and times of day, for which it has no type
        if source.kind == "bytes" and _is_bytes(column.arrow_type):
            return "bytes"
        if source.kind == "time" and target.name == "String":
            return "time"
    return target.kind or "text"


def _array(plan: CopyPlan, column: ColumnPlan) -> Field:
    item_source = Column(column.source.name, column.source.type.rpartition("[")[0])
    item_target = Column(column.target.name, words.clickhouse(column.target.type)[1][0])
    item = _field(plan, replace(column, source=item_source, target=item_target))
    return Field(
        name=column.target.name,
        kind="array",
        source=column.source,
        target=column.target,
        item=replace(item, rendered=None),
    )


def _size(
    system: System, name: str, kind: Kind | None, numbers: tuple[int, ...]
) -> tuple[int | None, int]:
    first = numbers[0] if numbers else None
    if kind == "decimal":
        return _decimal_size(system, name, numbers)
    if kind in ("time", "timestamp"):
        fixed = {
            "datetime": 3,
            "smalldatetime": 0,
            "DateTime": 0,
            "Time": 0,
            "DateTime64": 3,
        }
        default = fixed.get(name, 7 if system == "sqlserver" else 6)
        return None, default if first is None else first
    return first if first and first > 0 else None, 0


def _decimal_size(system: System, name: str, numbers: tuple[int, ...]) -> tuple[int | None, int]:
    if name in ("money", "smallmoney"):
        return 19, 2 if system == "postgres" else 4
    if name.startswith("Decimal") and name != "Decimal":
        return {"32": 9, "64": 18, "128": 38, "256": 76}[name[7:]], numbers[0] if numbers else 0
    if name.endswith(("Int128", "Int256")):
        return 76, 0
    if not numbers:
        return (None, 0) if system == "postgres" else (18 if system == "sqlserver" else 10, 0)
    return numbers[0], numbers[1] if len(numbers) > 1 else 0


def _is_bytes(type_: pa.DataType) -> bool:
    return pa.types.is_binary(type_) or pa.types.is_large_binary(type_)
