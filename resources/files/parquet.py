"""Parquet files as pyarrow reads them: their columns by the footer, and their rows.

DuckDB reads the same files for counts and digests. A column whose type the two do not tell alike is
refused, and so is a value that does not fit into what DuckDB makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tableferry.resources.connecting.retry import is_transient
from tableferry.resources.contract.refusals import SHOWN
from tableferry.resources.errors import TableferryError
from tableferry.resources.files.folder import File, FileUnreadable, known
from tableferry.resources.keys.range import ROW, KeyRange

BATCH_ROWS, BATCH_BYTES = 65_536, 32 << 20
"""Most of a batch, as the footer tells the bytes of a row."""

BUFFER_BYTES = 1 << 20
"""Of a column that are read at once."""

MOST_DIGITS = 38
"""Of DuckDB's decimals."""


class Footer(NamedTuple):
    """What a file says of itself."""

    columns: pa.Schema
    """In the types in which `batches` yields them."""
    row_groups: list[int]
    """The rows of each."""


def footer(file: File) -> Footer:
    """What the footer says.

    Raises:
        FileUnreadable: it is not whole, or has a type that pyarrow does not know.
    """
    return known(file, "footer", partial(_footer, file))


def _footer(file: File) -> Footer:
    with _opened(file) as parquet:
        legacy, known = _legacy(parquet), parquet.metadata
        columns = [
            field.with_type(pa.timestamp("us") if field.name in legacy else _read(field.type))
            for field in parquet.schema_arrow
        ]
        groups = [known.row_group(number).num_rows for number in range(known.num_row_groups)]
        return Footer(pa.schema(columns), groups)


def batches(
    file: File,
    wanted: Collection[str],
    key_range: KeyRange,
    fail: Callable[[Exception], None] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> pa.RecordBatchReader:
    """The rows of a range, with their numbers in the column `ROW`.

    Args:
        file: the file.
        wanted: the columns that matter.
        key_range: the file, or a stretch of it.
        fail: gets what fails, for a consumer that keeps only the text of it.
        batch_rows: most rows of a batch.
    """
    fields = [field for field in footer(file).columns if field.name in wanted]
    schema = pa.schema([*fields, pa.field(ROW, pa.int64())])

    def rows() -> Iterator[pa.RecordBatch]:
        try:
            yield from _rows(file, schema, key_range, batch_rows)
        except Exception as error:
            if fail is not None:
                fail(error)
            raise

    return pa.RecordBatchReader.from_batches(schema, rows())


def _rows(
    file: File, schema: pa.Schema, key_range: KeyRange, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    names = schema.names[:-1]
    low, past = key_range.rows or (1, None)
    with ExitStack() as stack:
        parquet = stack.enter_context(_opened(file))
        legacy = [name for name in _legacy(parquet) if name in names]
        rounded = stack.enter_context(_opened(file, int96="us")) if legacy else None
        first = 1
        for number in range(parquet.metadata.num_row_groups):
            group = parquet.metadata.row_group(number)
            end = first + group.num_rows
            if group.num_rows and end > low and (past is None or first < past):
                size = max(1, group.total_byte_size // group.num_rows)
                options = {
                    "batch_size": max(1, min(batch_rows, BATCH_BYTES // size)),
                    "row_groups": [number],
                }
                micros = rounded.iter_batches(**options, columns=legacy) if rounded else None
                for batch in parquet.iter_batches(**options, columns=names):
                    other = next(micros) if micros else None
                    arrays = [
                        _instants(file, name, batch.column(name), other.column(name))
                        if other is not None and name in legacy
                        else _converted(file, schema.field(name), batch.column(name))
                        for name in names
                    ]
                    numbers = pa.arange(first, first + batch.num_rows)
                    rows = pa.RecordBatch.from_arrays([*arrays, numbers], schema=schema)
                    skipped = min(batch.num_rows, max(0, low - first))
                    kept = batch.num_rows if past is None else max(0, past - first - skipped)
                    yield rows.slice(skipped, kept)
                    first += batch.num_rows
            first = end


def _converted(file: File, field: pa.Field, array: pa.Array) -> pa.Array:
    """A column of a batch in the type of the schema, in which each of its values is exact."""
    try:
        if array.type != field.type:
            # of instants, the number that is stored; a cast may show a clock of their zone
            zoned = pa.types.is_timestamp(array.type) and array.type.tz and not field.type.tz
            array = (array.cast(pa.int64()) if zoned else array).cast(field.type)
        if not pa.types.is_primitive(field.type):
            array.validate(full=True)
    except pa.ArrowException as error:
        raise file.unreadable(f"column {field.name!r}: {str(error)[:SHOWN]}") from None
    return array


def _instants(file: File, name: str, nanos: pa.Array, micros: pa.Array) -> pa.Array:
    """A column of INT96 in microseconds, which was read in nanoseconds as well.

    Nanoseconds wrap around beyond the year 2262, as the product does: they differ from it by what
    is less than a microsecond, and by nothing else.
    """
    thousand = pa.scalar(1000, pa.int64())
    whole = pc.multiply(micros.cast(pa.int64()), thousand)
    wrong = pc.indices_nonzero(pc.fill_null(pc.not_equal(whole, nanos.cast(pa.int64())), False))
    if len(wrong):
        raise file.unreadable(
            f"column {name!r}: the INT96 timestamp {micros[wrong[0].as_py()]} has more than 6 "
            "decimals of a second"
        )
    return micros


def _read(type_: pa.DataType) -> pa.DataType:
    """The type in which DuckDB takes values of a type as they are; one of its own otherwise, which
    DuckDB then does not take for that of the file."""
    if pa.types.is_float16(type_):
        return pa.float32()
    if pa.types.is_timestamp(type_) and type_.unit == "ns":
        return pa.timestamp("ns")
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz and "UTC")
    if pa.types.is_duration(type_):
        return pa.int64()
    if pa.types.is_decimal(type_) and type_.precision <= MOST_DIGITS:
        return pa.decimal128(type_.precision, type_.scale)
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_dictionary(type_):
        return _read(type_.value_type)
    if pa.types.is_map(type_):
        return pa.map_(_read(type_.key_type), _read(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_read(field.type)) for field in type_])
    if pa.types.is_nested(type_):
        return pa.list_(type_.value_field.with_type(_read(type_.value_type)))
    return type_


def _legacy(parquet: pq.ParquetFile) -> Sequence[str]:
    """The columns of INT96: 12 bytes of nanoseconds and days, of which both readers round."""
    leaves = (parquet.schema.column(at) for at in range(len(parquet.schema)))
    return [leaf.path for leaf in leaves if leaf.physical_type == "INT96" and "." not in leaf.path]


@contextmanager
def _opened(file: File, int96: str | None = None) -> Iterator[pq.ParquetFile]:
    try:
        with file.store.open(file.path, scattered=True) as stream:
            yield pq.ParquetFile(
                stream,
                coerce_int96_timestamp_unit=int96,
                # otherwise all of a row group is kept in memory
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
            )
    except FileUnreadable:
        raise
    except TableferryError as error:
        raise error if is_transient(error) else file.unreadable(error) from None
    except (pa.ArrowException, OSError) as error:
        raise file.unreadable(error) from None
