"""Loads one key range into PostgreSQL by COPY."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target import LoadReceipt
from tableferry.resources.postgres.copy_in import copy_in
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.postgres.session import PostgresSession
from tableferry.resources.transactional.load import TransactionalLoad


@dataclass
class PostgresLoad(TransactionalLoad[PostgresSession]):
    """See `TransactionalLoad`."""

    resource: PostgresServer

    def load_arrow(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema | None = None
    ) -> LoadReceipt:
        """See `RangeLoad.load_arrow` and `copy_in`."""
        receipt = copy_in(self.resource, self.plan, self.staging, batches, schema)
        self._sent += receipt.rows
        return receipt

    def load_bytes(self, chunks: Iterator[bytes]) -> LoadReceipt:
        """Copy another COPY's output into the staging table or, unstaged, the table itself."""
        columns = self.sql.columns(self.plan)
        binary = " WITH (FORMAT binary)" if self.options.format == "pgcopy" else ""
        into = self.table if self.unstaged else self.staging
        sql = f"COPY {qualified(into)} ({columns}) FROM STDIN{binary}"
        if self.unstaged:
            self._begin_unstaged()
            rows, sent = self.session.copy_in(sql, chunks)
        else:
            # another session than the one that holds the lock, which a failed load must not break
            with self.resource.session() as session:
                rows, sent = session.copy_in(sql, chunks)
        self._sent += rows
        return LoadReceipt(rows, sent)

    def _connect(self) -> PostgresSession:
        return self.resource.open_session()
