"""Record batches into a PostgreSQL table, by ADBC's binary COPY."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tableferry.resources.counted import Counted
from tableferry.resources.errors import ReceiptMismatch
from tableferry.resources.plan import CopyPlan
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.postgres.types import read
from tableferry.resources.tables import TableRef
from tableferry.resources.target import LoadReceipt
from tableferry.resources.types.kinds import Uuid


def copy_in(
    resource: PostgresServer,
    plan: CopyPlan,
    staging: TableRef,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema | None = None,
) -> LoadReceipt:
    """Append batches to a staging table, all or none, on a connection of its own.

    Args:
        resource: the server.
        plan: whose target columns the table has.
        staging: made by `PostgresStatements.create_staging`.
        batches: columns named as in the target, of the plan's Arrow types.
        schema: of the batches; the plan's if not given.

    Raises:
        ReceiptMismatch: the server took another number of rows than it was sent.
    """
    schema = schema or plan.arrow_schema
    source = Counted(batches)
    texts = _uuid_texts(plan, schema)
    for position in texts:
        schema = schema.set(position, schema.field(position).with_type(pa.large_binary()))
    reader = pa.RecordBatchReader.from_batches(
        schema, (_with_uuids(batch, texts, schema) for batch in source)
    )
    try:
        copied = resource.write_arrow(staging, reader)
    except Exception:
        if source.error is not None:
            # ADBC tells of it as of a mere text
            raise source.error from None
        raise
    if copied != source.rows:
        raise ReceiptMismatch(f"{staging}: {copied} of {source.rows} rows were taken")
    return LoadReceipt(source.rows, source.bytes)


def _uuid_texts(plan: CopyPlan, schema: pa.Schema) -> list[int]:
    """Positions of the columns that arrive as texts where the server wants the bytes of uuids."""
    return [
        position
        for position, column in enumerate(plan.target_columns)
        if isinstance(read(column.type).kind, Uuid)
        and not pa.types.is_fixed_size_binary(schema.field(position).type)
    ]


def _with_uuids(batch: pa.RecordBatch, texts: list[int], schema: pa.Schema) -> pa.RecordBatch:
    if not texts:
        return batch
    # polars takes half a second to import
    import polars as pl

    columns = list(batch.columns)
    for position in texts:
        digits = pl.Series(columns[position]).str.replace_all("-", "", literal=True)
        columns[position] = digits.str.decode("hex").to_arrow().cast(pa.large_binary())
    return pa.RecordBatch.from_arrays(columns, schema=schema)
