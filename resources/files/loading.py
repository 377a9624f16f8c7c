"""Ranges of Parquet files that are loaded as they are: DuckDB's SQL would change no value."""

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


def unchanged(plan: CopyPlan, columns: Mapping[str, str]) -> list[str] | None:
    """Find which of the file's `columns`, `FILE` and `ROW` each column of a plan loads as it is.

    Returns:
        The names in the plan's order; None if a value would change, or rows are filtered.
    """
    by_folded = {name.casefold(): name for name in columns}
    names = []
    for column in plan.columns:
        name, type_ = column.source.name, column.source.type
        in_file = name if name in (FILE, ROW) else by_folded.get(name.casefold())
        exported = export(type_)
        if in_file is None or not isinstance(exported, Export) or type_.endswith(FROM_TEXT):
            return None
        expected = exported.arrow.replace("{}", DIALECT.quote(name))
        same_type = in_file in (FILE, ROW) or columns[in_file] == type_
        if not same_type or exported.refuse or column.arrow_sql != expected:
            return None
        names.append(in_file)
    return None if plan.condition else names


def rows(
    file: File, names: list[str], key_range: KeyRange, batch_rows: int
) -> pa.RecordBatchReader:
    """Read the columns that `unchanged` names, of a range."""
    source, stored = parquet.stream(file, names, key_range.rows or (1, None), batch_rows)
    fields = {field.name: field for field in source}
    types = [pa.string() if name == FILE else _stored(fields[name].type) for name in names]
    schema = pa.schema([(f"ferry__{at}", type_) for at, type_ in enumerate(types)])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in stored:
            arrays = [
                pa.repeat(file.name, batch.num_rows) if name == FILE else batch.column(name)
                for name in names
            ]
            yield pa.RecordBatch.from_arrays(
                [_cast(array, type_) for array, type_ in zip(arrays, types, strict=True)],
                schema=schema,
            )

    return pa.RecordBatchReader.from_batches(schema, batches())


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    stored = array.storage if isinstance(array, pa.ExtensionArray) else array
    return stored if stored.type == type_ else stored.cast(type_)


def _stored(type_: pa.DataType) -> pa.DataType:
    """The Arrow type in which DuckDB sends a type: uuids as bytes, JSON as text."""
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    return pa.binary() if pa.types.is_fixed_size_binary(type_) else type_
