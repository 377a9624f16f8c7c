"""Parquet files as pyarrow reads them: their columns by the footer, and their rows.

DuckDB reads the same files for counts and digests. A column to which the two give different types
is refused, and so is a value that does not fit into DuckDB's type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tableferry.resources.connecting.retry import is_transient
from tableferry.resources.contract.batches import BATCH_BYTES
from tableferry.resources.errors import SHOWN, TableferryError
from tableferry.resources.files.folder import File, FileUnreadable, once_per_version
from tableferry.resources.keys.range import ROW

BATCH_ROWS = 65_536
"""Maximum number of rows of a batch."""

CHUNK_ROWS, CHUNK_BYTES = 2_048, 32 << 20
"""The rows that DuckDB reads at once, and the most bytes that it is left to read like this: it
holds some six times as much while it digests them."""

BUFFER_BYTES = 1 << 20
"""Bytes of a column that are read at once."""

HYBRID_CALENDAR = {
    b"org.apache.spark.legacyDateTime": b"",
    b"org.apache.spark.legacyINT96": b"",
    b"org.apache.spark.version": b"2.",
    b"writer.date.proleptic": b"false",
}
"""What footers say, and how that begins, where the writer counted days before 1582 by the Julian
calendar and instants before 1900 by local times: Spark before 3.0, or told to write as then
(`spark.sql.parquet.datetimeRebaseModeInWrite`), and Hive before 4."""

MOST_DIGITS = 38
"""Maximum number of digits of DuckDB's decimals."""


class Footer(NamedTuple):
    """What a file declares of its contents."""

    columns: pa.Schema
    """The columns, in the types in which `batches` yields them."""
    row_groups: list[int]
    """The number of rows of each row group."""
    row_bytes: list[int]
    """About the size of the rows of each row group: their average, or more."""
    hybrid_calendar: bool
    """Whether old dates and instants mean other ones than the same numbers do today."""

    @property
    def has_large_rows(self) -> bool:
        """Whether DuckDB's own reader would take too much memory."""
        return any(
            size * min(rows, CHUNK_ROWS) > CHUNK_BYTES
            for rows, size in zip(self.row_groups, self.row_bytes, strict=True)
        )


@once_per_version
def footer(file: File) -> Footer:
    """Read a file's footer.

    Raises:
        FileUnreadable: it is damaged, or has a type that pyarrow does not know.
    """
    with _opened(file) as parquet:
        legacy, metadata = _legacy(parquet), parquet.metadata
        columns = [
            field.with_type(pa.timestamp("us") if field.name in legacy else _read(field.type))
            for field in parquet.schema_arrow
        ]
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        sizes = [
            max(1, group.total_byte_size // max(1, group.num_rows)) + longest
            for group, longest in zip(groups, _longest(file, parquet), strict=True)
        ]
        told = metadata.metadata or {}
        hybrid = any(
            name in told and told[name].startswith(begin) for name, begin in HYBRID_CALENDAR.items()
        )
        return Footer(pa.schema(columns), [group.num_rows for group in groups], sizes, hybrid)


def _longest(file: File, parquet: pq.ParquetFile) -> list[int]:
    """Find the bytes of the longest values in the dictionaries of each row group, together.

    A value there counts once in the sizes that the footer has, however many rows have it.
    """
    metadata, sums = parquet.metadata, [0] * parquet.metadata.num_row_groups
    leaves = [parquet.schema.column(at) for at in range(len(parquet.schema))]
    texts = {
        at: leaf.path
        for at, leaf in enumerate(leaves)
        if leaf.physical_type == "BYTE_ARRAY" and "." not in leaf.path
    }
    in_dictionaries = None
    with ExitStack() as stack:
        for number in range(len(sums)):
            group = metadata.row_group(number)
            names = [
                name
                for at, name in texts.items()
                if group.column(at).has_dictionary_page
                and group.column(at).total_uncompressed_size * CHUNK_ROWS > CHUNK_BYTES
            ]
            if not names or not group.num_rows:
                continue
            in_dictionaries = in_dictionaries or stack.enter_context(
                _opened(file, dictionaries=[*texts.values()])
            )
            read = in_dictionaries.iter_batches(batch_size=1, row_groups=[number], columns=names)
            for array in next(read).columns:
                if pa.types.is_dictionary(array.type) and len(array.dictionary):
                    sums[number] += pc.max(pc.binary_length(array.dictionary)).as_py() or 0
    return sums


def stream(
    file: File,
    columns: Collection[str],
    stretch: tuple[int, int | None] = (1, None),
    batch_rows: int = BATCH_ROWS,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Read some columns of a file or of a stretch of its rows, with the rows' numbers, from 1, in
    the column `ROW`.

    Returns:
        The schema, and the rows, which are read as they are asked for.
    """
    fields = [field for field in footer(file).columns if field.name in columns]
    schema = pa.schema([*fields, pa.field(ROW, pa.int64())])
    return schema, _rows(file, schema, stretch, batch_rows)


def _rows(
    file: File, schema: pa.Schema, stretch: tuple[int, int | None], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    names, sizes = schema.names[:-1], footer(file).row_bytes
    low, past = stretch
    with ExitStack() as stack:
        parquet = stack.enter_context(_opened(file))
        legacy = [name for name in _legacy(parquet) if name in names]
        in_micros = stack.enter_context(_opened(file, int96="us")) if legacy else None
        first = 1
        for number in range(parquet.metadata.num_row_groups):
            group = parquet.metadata.row_group(number)
            end = first + group.num_rows
            if group.num_rows and end > low and (past is None or first < past):
                options = {
                    "batch_size": max(1, min(batch_rows, BATCH_BYTES // sizes[number])),
                    "row_groups": [number],
                }
                rounded = in_micros.iter_batches(**options, columns=legacy) if in_micros else None
                for batch in parquet.iter_batches(**options, columns=names):
                    micros = next(rounded) if rounded else None
                    arrays = [
                        _instants(file, name, batch.column(name), micros.column(name))
                        if micros is not None and name in legacy
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
    """Cast a column of a batch to the type of the schema, which holds each value exactly."""
    try:
        if array.type != field.type:
            # an instant's stored number: a cast may yield the clock of its zone
            zoned = pa.types.is_timestamp(array.type) and array.type.tz and not field.type.tz
            array = (array.cast(pa.int64()) if zoned else array).cast(field.type)
        if not pa.types.is_primitive(field.type):
            array.validate(full=True)
    except pa.ArrowException as error:
        raise file.unreadable(f"column {field.name!r}: {str(error)[:SHOWN]}") from None
    return array


def _instants(file: File, name: str, nanos: pa.Array, micros: pa.Array) -> pa.Array:
    """A column of INT96 in microseconds, each of which is exact.

    Nanoseconds wrap around beyond the year 2262, and so does the product below: the two differ only
    by what is less than a microsecond.
    """
    thousand = pa.scalar(1000, pa.int64())
    product = pc.multiply(micros.cast(pa.int64()), thousand)
    finer = pc.indices_nonzero(pc.fill_null(pc.not_equal(product, nanos.cast(pa.int64())), False))
    if len(finer):
        raise file.unreadable(
            f"column {name!r}: the INT96 timestamp {micros[finer[0].as_py()]} has more than 6 "
            "decimals of a second"
        )
    return micros


def _read(type_: pa.DataType) -> pa.DataType:
    """The Arrow type in which DuckDB gets values of a type unchanged; a type that DuckDB does not
    read the file as, where there is none."""
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
    """The columns of INT96: 12 bytes of nanoseconds and days, which both readers round."""
    leaves = (parquet.schema.column(at) for at in range(len(parquet.schema)))
    return [leaf.path for leaf in leaves if leaf.physical_type == "INT96" and "." not in leaf.path]


@contextmanager
def _opened(
    file: File, int96: str | None = None, dictionaries: Sequence[str] = ()
) -> Iterator[pq.ParquetFile]:
    try:
        with file.store.open(file.path, scattered=True) as stream:
            yield pq.ParquetFile(
                stream,
                coerce_int96_timestamp_unit=int96,
                read_dictionary=dictionaries,
                # it would keep the whole row group in memory
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
            )
    except FileUnreadable:
        raise
    except TableferryError as error:
        raise error if is_transient(error) else file.unreadable(error) from None
    except (pa.ArrowException, OSError) as error:
        raise file.unreadable(error) from None
