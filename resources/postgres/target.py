"""Loads key ranges into PostgreSQL tables: by COPY, each shown by one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target import LoadReceipt
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.errors import InputError, ReceiptMismatch
from tableferry.resources.postgres import anew
from tableferry.resources.postgres.ddl import STATEMENTS
from tableferry.resources.postgres.hazards import hazards
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.postgres.session import PostgresSession
from tableferry.resources.postgres.types import read
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.load import TransactionalLoad
from tableferry.resources.transactional.target import TransactionalTarget
from tableferry.resources.types.kinds import Uuid
from tableferry.resources.types.type_map import Column
from tableferry.resources.wires.text_rows import Counted


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
        """Copy another COPY's output into the staging table."""
        columns = self.sql.columns(self.plan)
        binary = " WITH (FORMAT binary)" if self.publication.format == "pgcopy" else ""
        sql = f"COPY {qualified(self.staging)} ({columns}) FROM STDIN{binary}"
        # another session than the one that holds the lock, which a failed load must not break
        with self.resource.session() as session:
            rows, sent = session.copy_in(sql, chunks)
        self._sent += rows
        return LoadReceipt(rows, sent)

    def _connect(self) -> PostgresSession:
        return self.resource.open_session()


UUID_BYTES = 16


def copy_in(
    resource: PostgresServer,
    plan: CopyPlan,
    staging: TableRef,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema | None = None,
) -> LoadReceipt:
    """Append batches to a staging table, all or none, on a separate connection.

    Args:
        resource: the server.
        plan: the hop, whose target columns the table has.
        staging: the table.
        batches: columns named as in the target, of the plan's Arrow types.
        schema: the batches', the plan's by default.

    Raises:
        ReceiptMismatch: the server accepted another number of rows than it was sent.
    """
    schema = schema or plan.arrow_schema
    source = Counted(batches)
    texts = [
        position
        for position, column in enumerate(plan.target_columns)
        if isinstance(read(column.type).kind, Uuid)
        and not pa.types.is_fixed_size_binary(schema.field(position).type)
    ]
    for position in texts:
        schema = schema.set(position, schema.field(position).with_type(pa.large_binary()))
    reader = pa.RecordBatchReader.from_batches(
        schema, (_with_uuids(batch, texts, schema) for batch in source)
    )
    try:
        copied = resource.write_arrow(staging, reader)
    except Exception:
        if source.error is not None:
            # ADBC reports only its text
            raise source.error from None
        raise
    if copied != source.rows:
        raise ReceiptMismatch(f"{staging}: {copied} of {source.rows} rows were taken")
    return LoadReceipt(source.rows, source.bytes)


def _with_uuids(batch: pa.RecordBatch, texts: list[int], schema: pa.Schema) -> pa.RecordBatch:
    """Convert the columns of uuids that arrive as text to bytes."""
    if not texts:
        return batch
    columns = list(batch.columns)
    for position in texts:
        columns[position] = _uuid_bytes(columns[position], schema.field(position).name)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _uuid_bytes(texts: pa.Array, column: str) -> pa.Array:
    """The bytes of uuids, whose texts are decoded all at once."""
    digits = pc.replace_substring(texts.drop_null(), "-", "").cast(pa.string())
    count = len(digits)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), digits), "")
    try:
        data = bytes.fromhex(joined[0].as_py())
    except ValueError:
        data = b""
    lengths = pc.equal(pc.binary_length(digits), 2 * UUID_BYTES)
    # fromhex skips blanks
    if len(data) != count * UUID_BYTES or not pc.all(lengths, min_count=0).as_py():
        raise InputError(
            f"column {column!r}: a uuid should have {2 * UUID_BYTES} hexadecimal digits"
        )
    uuids = pa.Array.from_buffers(pa.binary(UUID_BYTES), count, [None, pa.py_buffer(data)])
    if texts.null_count:
        positions = pc.subtract(pc.cumulative_sum(texts.is_valid().cast(pa.int64())), 1)
        uuids = uuids.take(pc.if_else(texts.is_valid(), positions, None))
    return uuids.cast(pa.large_binary())


class PostgresTarget(TransactionalTarget[PostgresSession]):
    """A PostgreSQL database as a load target."""

    resource: PostgresServer
    sql = STATEMENTS

    def altering(
        self, table: TableRef, before: Column, after: Column
    ) -> tuple[tuple[str, ...], str]:
        """Views and other objects keep the types of their columns. See `Target.altering`."""
        statements, _ = super().altering(table, before, after)
        if before.type == after.type:
            return statements, ""
        users = [str(user) for (user,) in self.resource.query(STATEMENTS.users(table, before.name))]
        return statements, f"{', '.join(users)} needs its type; drop that first" if users else ""

    def _session(self) -> AbstractContextManager[PostgresSession]:
        return self.resource.session()

    def _as_it_is(
        self, plan: CopyPlan, options: TargetOptions, columns: Sequence[Column]
    ) -> TargetOptions:
        if options.written_to(plan) != plan.target:
            return options
        return replace(options, hazards=tuple(self.hazards(plan, options, columns)))

    def _in_catalog(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        return hazards(self.resource, plan, options)

    def lost(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        """See `Target.lost`."""
        return anew.lost(self.resource, plan)

    def as_made(self, plan: CopyPlan, options: TargetOptions) -> bool:
        """See `Target.as_made`."""
        return super().as_made(plan, options) and not anew.carried(self.resource, plan)

    def _load(self, stack: contextlib.ExitStack, **parts: Any) -> PostgresLoad:
        return PostgresLoad(**parts)

    def _add_indexes(self, session: PostgresSession, plan: CopyPlan, shadow: TableRef) -> None:
        anew.ensure_indexes(session, plan.target, shadow)

    def _before_swap(self, session: PostgresSession, plan: CopyPlan) -> None:
        anew.carry_over(session, plan.target, shadow_of(plan.target))
