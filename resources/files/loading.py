"""A range of a Parquet file that is loaded as it is: DuckDB's SQL would change nothing of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.files import parquet
from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.folder import File
from tableferry.resources.files.types import FILE, FROM_TEXT, export
from tableferry.resources.keys.range import ROW, KeyRange
from tableferry.resources.types.export import Export


def unchanged(plan: CopyPlan, held: Mapping[str, str]) -> list[str] | None:
    """The columns of a file, and `FILE` and `ROW`, that are a plan's as they are.

    Args:
        plan: the hop.
        held: the file's columns.

    Returns:
        One for each column of the plan; None if something is to be made of one, or is selected.
    """
    here = {name.casefold(): name for name in held}
    found = []
    for column in plan.columns:
        name, type_ = column.source.name, column.source.type
        own = name if name in (FILE, ROW) else here.get(name.casefold())
        way = export(type_)
        if own is None or not isinstance(way, Export) or type_.endswith(FROM_TEXT):
            return None
        expected = way.arrow.replace("{}", DIALECT.quote(name))
        same = own in (FILE, ROW) or held[own] == type_
        if not same or way.refuse or column.arrow_sql != expected:
            return None
        found.append(own)
    return None if plan.where else found


def rows(
    file: File, names: list[str], key_range: KeyRange, batch_rows: int
) -> pa.RecordBatchReader:
    """The rows of a range, of the columns that `unchanged` tells."""
    source = parquet.batches(file, names, key_range, batch_rows=batch_rows)
    fields = {field.name: field for field in source.schema}
    types = [pa.string() if name == FILE else _stored(fields[name].type) for name in names]
    schema = pa.schema([(f"ferry__{at}", type_) for at, type_ in enumerate(types)])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in source:
            arrays = [
                pa.repeat(file.name, batch.num_rows) if name == FILE else batch.column(name)
                for name in names
            ]
            yield pa.RecordBatch.from_arrays(
                [_as(array, type_) for array, type_ in zip(arrays, types, strict=True)],
                schema=schema,
            )

    return pa.RecordBatchReader.from_batches(schema, batches())


def _as(array: pa.Array, type_: pa.DataType) -> pa.Array:
    stored = array.storage if isinstance(array, pa.ExtensionArray) else array
    return stored if stored.type == type_ else stored.cast(type_)


def _stored(type_: pa.DataType) -> pa.DataType:
    """A type as DuckDB sends it: uuids as their bytes, JSON as its text."""
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    return pa.binary() if pa.types.is_fixed_size_binary(type_) else type_
