"""One key range on its way into PostgreSQL: copied out of sight, then one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tableferry.resources.contract.dialects import qualified
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
        """Copy batches into the staging table by ADBC's binary COPY.

        Args:
            batches: columns named as in the target, of the plan's Arrow types.
            schema: of the batches; the plan's if not given.

        Raises:
            ReceiptMismatch: the server took another number of rows than it was sent.
        """
        receipt = copy_in(self.resource, self.plan, self.staging, batches, schema)
        self._sent += receipt.rows
        return receipt

    def load_bytes(self, chunks: Iterator[bytes]) -> LoadReceipt:
        """Copy rows that COPY wrote, as they are, into the staging table, or the table itself."""
        columns = self.sql.columns(self.plan)
        how = " WITH (FORMAT binary)" if self.options.format == "pgcopy" else ""
        into = self.table if self.unstaged else self.staging
        sql = f"COPY {qualified(into)} ({columns}) FROM STDIN{how}"
        if self.unstaged:
            self._begin_unstaged()
            rows, sent = self.session.copy_in(sql, chunks)
        else:
            # not by the session that holds the lock, which must not break with a load
            with self.resource.session() as session:
                rows, sent = session.copy_in(sql, chunks)
        self._sent += rows
        return LoadReceipt(rows, sent)

    def _connect(self) -> PostgresSession:
        return self.resource.open_session()
