"""One key range on its way into PostgreSQL: copied out of sight, then one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from resources.counted import Counted
from resources.dialects import qualified
from resources.errors import ReceiptMismatch
from resources.plan import CopyPlan
from resources.postgres.resource import PostgresResource
from resources.postgres.session import PostgresSession
from resources.postgres.types import read
from resources.target import LoadReceipt
from resources.transactional.load import TransactionalLoad
from resources.types.kinds import Uuid


@dataclass
class PostgresLoad(TransactionalLoad[PostgresSession]):
    """See `TransactionalLoad`."""

    resource: PostgresResource

    def load_arrow(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema | None = None
    ) -> LoadReceipt:
        """Copy batches into the staging table by ADBC's binary COPY.

        Args:
            batches: columns named as in the target, of the plan's Arrow types.
            schema: of the batches; the plan's if not given.

        Raises:
            ReceiptMismatch: the server took another number of rows than it was sent.
        """
        schema = schema or _schema(self.plan)
        source = Counted(batches)
        texts = _uuid_texts(self.plan, schema)
        for position in texts:
            schema = schema.set(position, schema.field(position).with_type(pa.large_binary()))
        reader = pa.RecordBatchReader.from_batches(
            schema, (_with_uuids(batch, texts, schema) for batch in source)
        )
        try:
            copied = self.resource.write_arrow(self.staging, reader)
        except Exception:
            if source.error is not None:
                # ADBC tells of it as of a mere text
                raise source.error from None
            raise
        if copied != source.rows:
            raise ReceiptMismatch(f"{self.staging}: {copied} of {source.rows} rows were taken")
        self._sent += copied
        return LoadReceipt(source.rows, source.bytes)

    def load_bytes(self, chunks: Iterator[bytes]) -> LoadReceipt:
        """Copy rows that COPY wrote, as they are, into the staging table."""
        columns = self.sql.columns(self.plan)
        how = " WITH (FORMAT binary)" if self.options.format == "pgcopy" else ""
        sql = f"COPY {qualified(self.staging)} ({columns}) FROM STDIN{how}"
        # not by the session that holds the lock, which must not break with a load
        with self.resource.session() as session:
            rows, sent = session.copy_in(sql, chunks)
        self._sent += rows
        return LoadReceipt(rows, sent)

    def _connect(self) -> PostgresSession:
        return self.resource.open_session()


def _schema(plan: CopyPlan) -> pa.Schema:
    return pa.schema([(column.target.name, column.arrow_type) for column in plan.columns])


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
