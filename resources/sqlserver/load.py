"""One key range on its way into SQL Server: copied out of sight, then one transaction."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.resources.artifacts import artifact_folder, workspace
from tableferry.resources.columns.conform import key_of
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target import LoadReceipt
from tableferry.resources.errors import InputError, ReceiptMismatch, StatementFailed, ValueRefused
from tableferry.resources.sqlserver.bcp import load_files
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tableferry.resources.sqlserver.ddl import loaded, rows_of
from tableferry.resources.sqlserver.errors import copying
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.load import TransactionalLoad
from tableferry.resources.types.column import Column
from tableferry.resources.wires.counted import Counted

DIGITS = ("9" * 38, ("1234567890" * 4)[:38])
"""Numbers that a server is tried with."""


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
            _without_misread(self, batches),
            batch_rows=self.publication.batch_rows,
        )
        self._sent += receipt.rows
        return receipt

    def load_bytes(self, chunks: Iterator[bytes]) -> LoadReceipt:
        """Load framed rows by bcp. See `RangeLoad.load_bytes`."""
        if (framing := self.publication.framing) is None:
            raise InputError("text for sqlserver needs terminators: Publication.framing")
        receipt = load_files(
            self.resource,
            self.session,
            self.plan,
            self.staging,
            chunks,
            framing,
            self.files.enter_context(workspace(artifact_folder())),
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
        raise (source.error or copying(error, session.login.settings, qualified(table))) from None
    if result["rows_copied"] != source.rows:
        raise ReceiptMismatch(
            f"{table}: the driver copied {result['rows_copied']} of {source.rows} rows"
        )
    return LoadReceipt(source.rows, source.bytes)


def takes_38_digits(load: SqlServerLoad) -> bool:
    """Whether decimals of 38 digits arrive in a bulk copy, by a trial beside a staging table.

    Babelfish 4 writes them into a text of 40 bytes without an end, and reads on behind it, so that
    what arrives depends on what is there (TdsTypeNumericToDatum, tdstypeio.c). Fewer digits arrive.
    Asked once per server, also in the middle of a bulk copy.
    """

    def ask() -> bool:
        # the driver copies once at a time in a thread
        with ThreadPoolExecutor(1) as other:
            return other.submit(_digits_arrive, load).result()

    return load.resource.settings().facts.known("38 digits", ask)


def _digits_arrive(load: SqlServerLoad) -> bool:
    values = [Decimal(f"{sign}{digits}e-10") for digits in DIGITS for sign in ("", "-")] * 16
    number, value = pa.field("n", pa.int32()), pa.field("x", pa.decimal128(38, 10))
    arrays = [pa.array(range(len(values)), number.type), pa.array(values, value.type)]
    columns = tuple(
        ColumnPlan(Column(field.name, type_), Column(field.name, type_), None, field.type)
        for field, type_ in ((number, "int"), (value, "decimal(38,10)"))
    )
    plan = CopyPlan(load.plan.target, load.plan.target, columns, columns[0])
    # what a dead process leaves under such a name is dropped with the range's staging tables
    staging = replace(load.staging, name=f"{load.lock}_{uuid.uuid4().hex[:12]}")
    session = load.resource.connected()
    try:
        for statement in load.sql.create_staging(plan, staging):
            session.execute(statement)
        try:
            batch = pa.record_batch(arrays, schema=pa.schema([number, value]))
            bulk_copy(load.resource, session, plan, staging, [batch])
            # a driver cuts off digits that are stored behind the scale
            shown = "CAST(x AS varchar(60))"
            rows = session.query(f"SELECT n, {shown} FROM {qualified(staging)}")
        except (StatementFailed, ReceiptMismatch) as error:
            if getattr(error, "transient", False):
                raise
            return False
        finally:
            session.execute(load.sql.drop_staging(staging))
    finally:
        session.close()
    return sorted(map(tuple, rows)) == [*enumerate(format(value, "f") for value in values)]


def _without_misread(
    load: SqlServerLoad, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield batches without decimals of 38 digits that the server gets wrong.

    Raises:
        ValueRefused: a batch has one.
    """
    plan = load.plan
    widest = {
        at: pa.scalar(Decimal(f"1e{37 - column.arrow_type.scale}"), column.arrow_type)
        for at, column in enumerate(plan.columns)
        if pa.types.is_decimal128(column.arrow_type) and column.arrow_type.precision == 38
    }
    for batch in batches:
        for at, least in widest.items():
            values = batch.column(at)
            row = pc.index(pc.greater_equal(pc.abs(values), least), True).as_py()
            if row >= 0 and not takes_38_digits(load):
                key = key_of(plan, batch, row)
                name, value = plan.columns[at].source.name, str(values[row].as_py())
                reason = (
                    "has 38 digits, of which this server gets the last ones wrong in a bulk copy "
                    f"(constants were tried); declare columns: {{{name}: {{type: nvarchar(41)}}}} "
                    "for its text, or exclude the column"
                )
                raise ValueRefused(str(plan.source), name, key, value, reason)
        yield batch


def _renamed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches with the names and types of the staged columns; see `ddl.loaded`."""
    for batch in batches:
        arrays = [
            array.cast(pa.int64()).cast(field.type) if pa.types.is_time64(array.type) else array
            for array, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
