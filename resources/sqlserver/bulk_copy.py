"""The driver's bulk copy of record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.dialects import qualified
from tableferry.resources.contract.target import LoadReceipt
from tableferry.resources.errors import ReceiptMismatch
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tableferry.resources.sqlserver.ddl import loaded, rows_of
from tableferry.resources.sqlserver.errors import translate
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.tables import TableRef
from tableferry.resources.wires.counted import Counted


def bulk_copy(
    resource: SqlServerServer,
    session: SqlServerConnection,
    plan: CopyPlan,
    staging: TableRef,
    batches: Iterable[pa.RecordBatch],
    *,
    batch_rows: int = 65_536,
    table_lock: bool = True,
) -> LoadReceipt:
    """Copy batches into a staging table, on a connection of the driver's own.

    Args:
        resource: the server.
        session: whose options that connection gets.
        plan: whose target columns are staged.
        staging: made by `create_staging`.
        batches: the target's columns, in the plan's order, of the plan's Arrow types.
        batch_rows: rows that the server commits at once.
        table_lock: TABLOCK.

    Raises:
        ReceiptMismatch: the driver reports another number of rows than it was given.
    """
    rows, into, source = loaded(plan), rows_of(staging), Counted(batches)
    schema = rows.arrow_schema
    reader = pa.RecordBatchReader.from_batches(schema, _renamed(source, schema))
    try:
        with session.raw.cursor() as cursor:
            result = cursor.bulkcopy_arrow(
                qualified(into),
                reader,
                batch_size=batch_rows,
                timeout=0,  # no limit; the default is 30 s for the whole copy
                column_mappings=list(enumerate(schema.names)),
                keep_nulls=True,
                table_lock=table_lock,
            )
    except Exception as error:
        # the driver's own checks of the values raise ValueError
        raise (source.error or translate(error, resource.settings(), qualified(into))) from None
    if result["rows_copied"] != source.rows:
        raise ReceiptMismatch(
            f"{into}: the driver copied {result['rows_copied']} of {source.rows} rows"
        )
    return LoadReceipt(source.rows, source.bytes)


def _renamed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches as the table's columns are; see `loaded`."""
    for batch in batches:
        arrays = [
            array.cast(pa.int64()).cast(field.type) if pa.types.is_time64(array.type) else array
            for array, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
