"""Values read back through Arrow, brought to one form per kind that is the same on all systems.

What has an exact 64-bit form is read as the atoms that `checks.atoms` defines; the rest (texts,
bytes, floats, long decimals, arrays) is read whole. None of it goes through the casts that the
loader makes: a damage that the loader makes itself must show here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from checks import atoms_postgres
from checks.atoms import Side, atoms, value_sql
from checks.constants import NAN_BITS, NOT_FINITE, WHOLE_DIGITS
from checks.fields import Field, declared
from resources.tables import Column, System

_ATOMIC = {"integer", "boolean", "date", "time", "timestamp", "uuid"}


def is_atomic(field: Field) -> bool:
    """Whether the atoms tell every value of the column from every other."""
    short = field.precision is not None and field.precision <= WHOLE_DIGITS
    return field.kind in _ATOMIC or (field.kind == "decimal" and short)


def reading(field: Field, side: Side, systems: tuple[System, System]) -> list[str]:
    """The SQL expressions that read one column on one side; one or two."""
    if is_atomic(field):
        return list(atoms(field, side, systems).values())
    system = systems[0] if side == "source" else systems[1]
    value = value_sql(field, side, system)
    if field.kind == "array":
        return [_array(field, side, systems, value)]
    return [_whole(field, field.column(side), system, value)]


def _whole(field: Field, column: Column, system: System, value: str) -> str:
    kind = field.kind
    if kind == "bytes":
        return value
    if system == "postgres":
        if kind == "float":
            return f"({value})::float8"
        if kind == "decimal":
            number = f"({value})::numeric"
            # the same number of decimals as the target shows; more must not be rounded away
            fits = f"scale({number}) <= {field.scale}"
            padded = f"({number})::numeric({min(1000, 131 + field.scale)},{field.scale})::text"
            return f"CASE WHEN {fits} THEN {padded} ELSE ({number})::text END"
        return atoms_postgres.text_sql(field, column, value)
    if system == "sqlserver":
        if kind == "float":
            return f"CAST({value} AS float)"
        if kind == "decimal":
            return f"CAST(CAST({value} AS decimal(38,{field.scale})) AS varchar(42))"
        text = f"CAST({value} AS nvarchar(max))"
        return f"RTRIM({text})" if field.padded else text
    if kind == "float":
        return f"toFloat64({value})"
    if kind == "decimal":
        if declared("clickhouse", column.type).name.startswith("Decimal"):
            return f"toDecimalString({value}, {field.scale})"
        return f"toString({value})"
    return f"toString({value})"


def _array(field: Field, side: Side, systems: tuple[System, System], value: str) -> str:
    item = field.item
    assert item is not None
    system = systems[0] if side == "source" else systems[1]
    element = "e" if system == "clickhouse" else "ferry__u.e"
    if is_atomic(item) and item.kind != "uuid":
        one = next(iter(atoms(item, side, systems, value=element).values()))
    else:
        one = _whole(item, item.column(side), system, element)
    if system == "clickhouse":
        return f"arrayMap(e -> {one}, {value})"
    numbered = f"unnest({value}) WITH ORDINALITY AS ferry__u(e, i)"
    items = f"SELECT array_agg({one} ORDER BY i) FROM {numbered}"
    return f"CASE WHEN {value} IS NOT NULL THEN coalesce(({items}), '{{}}') END"


def canonical(field: Field, columns: Sequence[pa.Array]) -> list[pl.Series]:
    """The arrays that `reading` yields, equal exactly where the values are.

    Args:
        field: the column.
        columns: as many arrays as `reading` has expressions.
    """
    return [_canonical(field, column) for column in columns]


def _canonical(field: Field, column: pa.Array | pa.ChunkedArray) -> pl.Series:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if field.kind == "array":
        assert field.item is not None
        if column.offset:
            # pyarrow cannot rebuild a list that begins in the middle of its buffers
            column = column.take(pa.array(np.arange(len(column))))
        values = _canonical(field.item, column.values).to_arrow()
        rebuilt = type(column).from_arrays(column.offsets, values, mask=column.is_null())
        return pl.Series(rebuilt)
    if is_atomic(field) and not pa.types.is_string(column.type):
        return pl.Series(column.cast(pa.int64()))
    if field.kind == "float":
        return _bits(column.cast(pa.float64()))
    if pa.types.is_fixed_size_binary(column.type) or pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    # texts are compared as the bytes of UTF-8: ClickHouse does not promise that they are valid
    return pl.Series(column.cast(pa.large_binary()))


def _bits(column: pa.Array) -> pl.Series:
    """The 64 bits of doubles, so that -0.0 is not 0.0; every NaN is one value."""
    floats = pl.Series(column)
    filled = floats.fill_null(0.0).to_numpy()
    bits = np.where(np.isnan(filled), NAN_BITS, filled.view(np.int64))
    return pl.Series(pa.array(bits, mask=floats.is_null().to_numpy()))


def shown(field: Field, values: Sequence[object]) -> str | None:
    """A canonical value as a reviewer should read it; None for NULL.

    Args:
        field: the column.
        values: one value out of each series of `canonical`.
    """
    first = values[0]
    if first is None:
        return None
    if field.kind == "array":
        assert field.item is not None
        assert isinstance(first, list)
        parts = [shown(field.item, [value]) for value in first]
        return "[" + ", ".join("NULL" if part is None else part for part in parts) + "]"
    if isinstance(first, int) and first == NOT_FINITE and field.kind != "uuid":
        return "not finite"
    if field.kind == "uuid" and isinstance(first, int):
        return _uuid(first, int(str(values[1])))
    if isinstance(first, bytes):
        return first.hex() if field.kind == "bytes" else first.decode(errors="backslashreplace")
    if field.kind == "float":
        return repr(float(np.array([first], np.int64).view(np.float64)[0]))
    return _number(field, int(str(first)))


def _number(field: Field, number: int) -> str:
    if field.kind == "boolean":
        return "true" if number else "false"
    if field.kind == "decimal" and field.scale:
        digits = f"{abs(number):0{field.scale + 1}d}"
        return f"{'-' if number < 0 else ''}{digits[: -field.scale]}.{digits[-field.scale :]}"
    if field.kind == "date":
        return str(np.datetime64(number, "D"))
    if field.kind in ("timestamp", "time"):
        units = 10_000_000 if field.scale > 6 else 1_000_000
        whole, rest = divmod(number, units)
        width = min(field.scale, 7 if units == 10_000_000 else 6)
        fraction = f"{rest:0{len(str(units)) - 1}d}"
        # digits beyond the declared ones would be a difference: do not hide them
        fraction = fraction[:width] + fraction[width:].rstrip("0")
        moment = str(np.datetime64(whole, "s")).replace("T", " ")
        if field.kind == "time":
            moment = str(dt.timedelta(seconds=whole)).rjust(8, "0")
        return f"{moment}.{fraction}" if fraction else moment
    return str(number)


def _uuid(first: int, second: int) -> str:
    """Out of both halves in Microsoft's byte order."""
    raw = (first % 2**64).to_bytes(8, "big") + (second % 2**64).to_bytes(8, "big")
    hexed = (raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:]).hex()
    return f"{hexed[:8]}-{hexed[8:12]}-{hexed[12:16]}-{hexed[16:20]}-{hexed[20:]}"
