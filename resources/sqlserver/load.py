"""One key range on its way into SQL Server: copied out of sight, then one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tableferry.resources.artifacts import workspace
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target import LoadReceipt
from tableferry.resources.errors import InputError, ReceiptMismatch
from tableferry.resources.sqlserver.bcp import load_files
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tableferry.resources.sqlserver.ddl import loaded, rows_of
from tableferry.resources.sqlserver.errors import translate
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.load import TransactionalLoad
from tableferry.resources.wires.counted import Counted


@dataclass
class SqlServerLoad(TransactionalLoad[SqlServerConnection]):
    """See `TransactionalLoad`."""

    resource: SqlServerServer
    files: contextlib.ExitStack
    """Holds the artifact files until the commit or the attempt's end."""

    def load_arrow(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema | None = None
    ) -> LoadReceipt:
        """Bulk copy batches into the staging table. See `RangeLoad.load_arrow`."""
        receipt = bulk_copy(
            self.resource,
            self.session,
            self.plan,
            self.staging,
            batches,
            batch_rows=self.options.batch_rows,
        )
        self._sent += receipt.rows
        return receipt

    def load_bytes(self, chunks: Iterator[bytes]) -> LoadReceipt:
        """Load rows framed as the options say by bcp. See `RangeLoad.load_bytes`."""
        if self.options.framing is None:
            raise InputError("text for sqlserver needs terminators: TargetOptions(framing=...)")
        receipt = load_files(
            self.resource,
            self.session,
            self.plan,
            self.key_range,
            self.staging,
            chunks,
            self.options.framing,
            self.files.enter_context(workspace(self.resource.artifact_folder_path())),
        )
        self._sent += receipt.rows
        return receipt

    def finalise(self) -> int:
        """Remove the artifact files, too. See `TransactionalLoad.finalise`."""
        rows = super().finalise()
        self.files.close()
        return rows

    def _connect(self) -> SqlServerConnection:
        return self.resource.connected()


def bulk_copy(
    resource: SqlServerServer,
    session: SqlServerConnection,
    plan: CopyPlan,
    staging: TableRef,
    batches: Iterable[pa.RecordBatch],
    *,
    batch_rows: int = 65_536,
) -> LoadReceipt:
    """Copy batches into a staging table by the driver, on a connection with the session's options.

    The batches have the target's columns in the plan's order, of the plan's Arrow types; the server
    commits `batch_rows` rows at once.

    Raises:
        ReceiptMismatch: the driver reports another number of rows than it was given.
    """
    table, source = rows_of(staging), Counted(batches)
    schema = loaded(plan).arrow_schema
    reader = pa.RecordBatchReader.from_batches(schema, _renamed(source, schema))
    try:
        with session.raw.cursor() as cursor:
            result = cursor.bulkcopy_arrow(
                qualified(table),
                reader,
                batch_size=batch_rows,
                timeout=0,  # no limit; the default is 30 s for the whole copy
                column_mappings=list(enumerate(schema.names)),
                keep_nulls=True,
                table_lock=True,
            )
    except Exception as error:
        # the driver's own checks of the values raise ValueError
        raise (source.error or translate(error, resource.settings(), qualified(table))) from None
    if result["rows_copied"] != source.rows:
        raise ReceiptMismatch(
            f"{table}: the driver copied {result['rows_copied']} of {source.rows} rows"
        )
    return LoadReceipt(source.rows, source.bytes)


def _renamed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches with the names and types of the staged columns; see `ddl.loaded`."""
    for batch in batches:
        arrays = [
            array.cast(pa.int64()).cast(field.type) if pa.types.is_time64(array.type) else array
            for array, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
