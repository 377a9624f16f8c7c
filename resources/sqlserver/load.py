"""One key range on its way into SQL Server: bulk copied out of sight, then one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tableferry.resources.artifacts import workspace
from tableferry.resources.contract.target import LoadReceipt
from tableferry.resources.errors import InputError
from tableferry.resources.sqlserver.bcp import load_files
from tableferry.resources.sqlserver.bulk_copy import bulk_copy
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.transactional.load import TransactionalLoad


@dataclass
class SqlServerLoad(TransactionalLoad[SqlServerConnection]):
    """See `TransactionalLoad`."""

    resource: SqlServerServer
    files: contextlib.ExitStack
    """What holds the artifact files, until the commit or the attempt's end."""

    def load_arrow(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema | None = None
    ) -> LoadReceipt:
        """Bulk copy batches into the staging table, on a connection of the driver's own.

        Args:
            batches: the target's columns, in the plan's order, of the plan's Arrow types.
            schema: of the batches; of no interest here.

        Raises:
            ReceiptMismatch: the driver reports another number of rows than it was given.
        """
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
        """Load framed rows through files and bcp; see `resources.sqlserver.bcp`.

        Args:
            chunks: rows with the terminators of the options.
        """
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
