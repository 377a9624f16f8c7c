"""Converts the batches that a source sends to those that a sink takes, or refuses a value."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.resources.columns.conversions import conversion_of
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.system import System
from tableferry.resources.errors import SHOWN, SchemaDrift, ValueRefused
from tableferry.resources.types.kinds import MICROSECONDS_PER_DAY, Kind, Uuid, written_day
from tableferry.resources.types.steps import Violation, plain, relax


def conform(batch: pa.RecordBatch, plan: CopyPlan, counts: dict[str, int]) -> pa.RecordBatch:
    """Convert a batch to the plan's Arrow types and target names, exactly.

    Args:
        batch: a batch of `plan.select(..., "arrow")`.
        plan: the hop.
        counts: the number of changed values by target column, to be added to.

    Raises:
        ValueRefused: the target cannot hold a value; names table, column, key, value and reason.
        SchemaDrift: the batch is not what the plan selects.
    """
    if batch.num_columns != len(plan.columns):
        raise SchemaDrift(
            f"{plan.source}: {batch.num_columns} columns arrived instead of {len(plan.columns)}"
        )
    columns = [
        _convert(position, column, batch, plan, counts)
        for position, column in enumerate(plan.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema(plan))


def schema(plan: CopyPlan) -> pa.Schema:
    """The schema of `conform`: target names, the sink's Arrow types, nullability."""
    return pa.schema(
        pa.field(column.target.name, column.arrow_type, column.target.nullable)
        for column in plan.columns
    )


def _convert(
    position: int,
    column: ColumnPlan,
    batch: pa.RecordBatch,
    plan: CopyPlan,
    counts: dict[str, int],
) -> pa.Array:
    conversion = conversion_of(column, plan)
    array = raw = plain(batch.column(position))
    changed: pa.BooleanArray | None = None
    for step in conversion.steps:
        try:
            result = step.convert(array)
        except pa.ArrowInvalid as error:
            raise SchemaDrift(f"{plan.source}: column {column.source.name!r}: {error}") from None
        if isinstance(result, Violation):
            repaired = relax(step, array, result.rows, column.change)
            if repaired is None:
                row = pc.index(result.rows, True).as_py()
                raise _refusal(plan, column, batch, raw, row, step.reason)
            # a value that two guards change counts once
            changed = result.rows if changed is None else pc.or_(changed, result.rows)
            result = repaired
        array = result
    if changed is not None:
        name = column.target.name
        counts[name] = counts.get(name, 0) + pc.sum(changed).as_py()
    return array


def refused_rows(
    column: ColumnPlan, plan: CopyPlan, sent: pa.Array
) -> Iterator[tuple[str, list[int]]]:
    """Find the rows of a column whose values the conversion refuses, each row once, by reason."""
    array, rows = plain(sent), pa.array(range(len(sent)), pa.int64())
    for step in conversion_of(column, plan).steps:
        result = step.convert(array)
        if isinstance(result, Violation):
            yield step.reason, rows.filter(result.rows).to_pylist()
            rest = pc.invert(result.rows)
            array, rows = array.filter(rest), rows.filter(rest)
            result = step.convert(array)
            assert not isinstance(result, Violation), "only the other rows broke the guard"
        array = result


def _refusal(
    plan: CopyPlan, column: ColumnPlan, batch: pa.RecordBatch, raw: pa.Array, row: int, reason: str
) -> ValueRefused:
    value = shown(raw[row], plan.source.system, _kind(plan, column))
    key = key_of(plan, batch, row)
    return ValueRefused(str(plan.source), column.source.name, key, value, reason)


def key_of(plan: CopyPlan, batch: pa.RecordBatch, row: int) -> object:
    """Write what names a row of a batch in messages: its primary key, else the key of ranges."""
    values = [
        shown(plain(batch.column(at))[row], plan.source.system, _kind(plan, plan.columns[at]))
        for at in plan.row_key
    ]
    return ", ".join(map(str, values)) if values[1:] else values[0]


def _kind(plan: CopyPlan, column: ColumnPlan) -> Kind | None:
    return plan.source.system.types.read(column.source.type).kind


def shown(value: pa.Scalar, system: System, kind: Kind | None = None) -> object:
    """Write a value for a message, also beyond the limits of Python's own types.

    `kind` is the kind of values of its column, where it is known.
    """
    if isinstance(kind, Uuid) and isinstance(value.as_py(), bytes):
        return str(uuid.UUID(bytes=value.as_py()))
    if pa.types.is_date32(value.type) and value.is_valid:
        return _day(value.value, system)
    if pa.types.is_timestamp(value.type) and value.is_valid:
        return _moment(value.value, system)
    if pa.types.is_time(value.type) and value.is_valid:
        microseconds = value.value // (1000 if value.type.unit == "ns" else 1)
        if microseconds >= MICROSECONDS_PER_DAY:
            return "24:00:00"
        return str((dt.datetime.min + dt.timedelta(microseconds=microseconds)).time())
    if pa.types.is_list(value.type) and value.is_valid:
        return [shown(item, system) for item in value]
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        # its bytes may be why it is refused
        if not value.is_valid:
            return None
        return value.as_buffer().to_pybytes().decode(errors="backslashreplace")[:SHOWN]
    result = value.as_py()
    return result[:SHOWN] if isinstance(result, (str, bytes)) else result


def _day(number: int, system: System) -> str:
    days = system.types.calendar(number, 1, 32)
    return days if isinstance(days, str) else written_day(days)


def _moment(number: int, system: System) -> str:
    moment = system.types.calendar(number, MICROSECONDS_PER_DAY, 64)
    if isinstance(moment, str):
        return moment
    days, rest = divmod(moment, MICROSECONDS_PER_DAY)
    day, era, bc = written_day(days).partition(" BC")
    return f"{day} {(dt.datetime.min + dt.timedelta(microseconds=rest)).time()}{era}{bc}"
