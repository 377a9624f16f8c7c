"""The driver's bulk copy of record batches, and what some servers need around it.

Babelfish 4 computes times of day with doubles and cuts what they are short of, so that one in four
loses a microsecond; timestamps it rounds. So times go there as timestamps, into a table of their
own, and are cast on the server.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from tableferry.resources.counted import Counted
from tableferry.resources.dialects import drop_table, qualified
from tableferry.resources.errors import ReceiptMismatch
from tableferry.resources.plan import ColumnPlan, CopyPlan
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tableferry.resources.sqlserver.ddl import STATEMENTS, numbered
from tableferry.resources.sqlserver.errors import translate
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.tables import TableRef
from tableferry.resources.target import LoadReceipt

TRIED = dt.time(2, 43, 43, 1781)
"""Of which doubles make 9823001780.999998 microseconds."""

TIME = pa.time64("us")


def bulk_copy(
    resource: SqlServerServer,
    session: SqlServerConnection,
    plan: CopyPlan,
    staging: TableRef,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema | None = None,
    *,
    batch_rows: int = 65_536,
    table_lock: bool = True,
) -> LoadReceipt:
    """Copy batches into a staging table, on a connection of the driver's own.

    Args:
        resource: the server.
        session: for the statements around the copy.
        plan: whose target columns the table has.
        staging: made by `create_staging`.
        batches: columns named as in the target, of the plan's Arrow types.
        schema: of the batches; the plan's if not given.
        batch_rows: rows that the server commits at once.
        table_lock: TABLOCK.

    Raises:
        ReceiptMismatch: the driver reports another number of rows than it was given.
    """
    schema = schema or plan.arrow_schema

    def copy(plan: CopyPlan, into: TableRef, source: Counted, schema: pa.Schema) -> LoadReceipt:
        columns = [column.name for column in plan.target_columns]
        reader = pa.RecordBatchReader.from_batches(schema, iter(source))
        try:
            copied = _copied(session, into, reader, columns, batch_rows, table_lock)
        except Exception as error:
            # the driver's own checks of the values raise ValueError
            raise (source.error or translate(error, resource.settings(), qualified(into))) from None
        if copied != source.rows:
            raise ReceiptMismatch(f"{into}: the driver copied {copied} of {source.rows} rows")
        return LoadReceipt(source.rows, source.bytes)

    # the driver puts names into brackets, of which Babelfish reads no escape, the columns' by
    # QUOTENAME, which doubles quotes of all kinds there; and it asks for the columns' names, of
    # which Babelfish counts what is beyond U+FFFF once, against the protocol
    names = (staging.schema, staging.name, *(column.name for column in plan.target_columns))
    misread = any(char in "'\"]" or char > "\uffff" for name in names for char in name)
    place = staging if "]" not in staging.schema else replace(staging, schema=_own_schema(session))
    scratch = replace(place, name=f"{staging.name.replace(']', '')}_times")
    times = _has_times(plan) and not keeps_times(resource, session, scratch)
    if not misread and not times:
        return copy(plan, staging, Counted(batches), schema)
    copied_table = replace(place, name=f"{staging.name.replace(']', '')}_arrow")
    copied_plan = numbered(plan)
    selected = STATEMENTS.columns(copied_plan)
    if times:
        selected, copied_plan = _times_again(copied_plan), _in_timestamps(copied_plan)
        schema = copied_plan.arrow_schema
        batches = _converted(batches, schema)
    session.execute(drop_table(copied_table))
    session.execute(STATEMENTS.create_staging(copied_plan, copied_table))
    try:
        receipt = copy(copied_plan, copied_table, Counted(batches), schema)
        session.execute(
            f"INSERT INTO {qualified(staging)} ({STATEMENTS.columns(plan)}) "
            f"SELECT {selected} FROM {qualified(copied_table)}"
        )
    finally:
        session.execute(drop_table(copied_table))
    return receipt


def _own_schema(session: SqlServerConnection) -> str:
    """The user's, which is made of a plainer name than the target's may be."""
    ((name,),) = session.query("SELECT SCHEMA_NAME()")
    return str(name)


def keeps_times(resource: SqlServerServer, session: SqlServerConnection, scratch: TableRef) -> bool:
    """Whether a time arrives as it was sent; tried once per server, with one row.

    Args:
        resource: the server.
        session: on it.
        scratch: a table to make, and to drop again.
    """
    facts = resource.settings().facts
    return facts.known("keeps times", lambda: _keeps(resource, session, scratch))


def _keeps(resource: SqlServerServer, session: SqlServerConnection, scratch: TableRef) -> bool:
    session.execute(f"CREATE TABLE {qualified(scratch)} (a time(6) NULL)")
    try:
        rows = pa.table({"a": pa.array([TRIED], TIME)})
        _copied(session, scratch, rows.to_reader(), ["a"])
        ((same,),) = session.query(
            f"SELECT COUNT_BIG(*) FROM {qualified(scratch)} "
            f"WHERE a = CAST('{TRIED.isoformat()}' AS time(6))"
        )
        return int(same) == 1
    finally:
        session.execute(drop_table(scratch))


def _has_times(plan: CopyPlan) -> bool:
    """Whether any column is sent as a time."""
    return any(column.arrow_type == TIME for column in plan.columns)


def _in_timestamps(plan: CopyPlan) -> CopyPlan:
    """The plan of a table that has timestamps of 1970-01-01 instead of times."""
    return replace(plan, columns=tuple(_in_timestamp(column) for column in plan.columns))


def _times_again(plan: CopyPlan) -> str:
    """What to select from a table of `_in_timestamps` for the columns of the plan."""
    selected = []
    for column in plan.columns:
        name = STATEMENTS.names([column.target.name])
        time = column.arrow_type == TIME
        selected.append(f"CAST({name} AS {column.target.type})" if time else name)
    return ", ".join(selected)


def _converted(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches with their times as such timestamps, of a schema of `_in_timestamps`."""
    for batch in batches:
        arrays = [
            array.cast(pa.int64()).cast(field.type) if array.type == TIME else array
            for array, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _in_timestamp(column: ColumnPlan) -> ColumnPlan:
    if column.arrow_type != TIME:
        return column
    type_ = column.target.type.lower().replace("time", "datetime2", 1)
    target = replace(column.target, type=type_)
    return replace(column, target=target, arrow_type=pa.timestamp("us"))


def _copied(
    session: SqlServerConnection,
    into: TableRef,
    reader: pa.RecordBatchReader,
    columns: Sequence[str],
    batch_rows: int = 0,
    table_lock: bool = False,
) -> int:
    # the driver opens another connection, with this one's options
    with session.raw.cursor() as cursor:
        result = cursor.bulkcopy_arrow(
            qualified(into),
            reader,
            batch_size=batch_rows,
            timeout=0,  # no limit; the default is 30 s for the whole copy
            column_mappings=list(enumerate(columns)),
            keep_nulls=True,
            table_lock=table_lock,
        )
    return int(result["rows_copied"])
