"""One key range on its way into ClickHouse: staged, then published by one REPLACE PARTITION."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import pyarrow as pa

from tableferry.resources import crash_points, errors
from tableferry.resources.clickhouse import ddl, locks, quarantine, replaced
from tableferry.resources.clickhouse.dialect import literal
from tableferry.resources.clickhouse.publish_audit import PartitionAudit
from tableferry.resources.connecting.retry import retrying
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target import LoadReceipt, TargetMoved
from tableferry.resources.contract.target_names import rejected_of, surplus_rejected
from tableferry.resources.contract.target_options import require_staged
from tableferry.resources.tables import TableRef, staging_prefix

UNDIVIDED: Mapping[str, str | int] = {
    "insert_deduplicate": 0,
    "optimize_on_insert": 0,
    "async_insert": 0,
}
"""Settings of INSERT SELECT: it merges no rows, and is answered when all rows are there."""


@dataclass
class ClickHouseLoad(locks.HeldRange):
    """See `RangeLoad`."""

    _sent: int = field(default=0, init=False)
    _blocks: int = field(default=0, init=False)
    _arrived: int | None = field(default=None, init=False)
    """Rows of the staging table after the load."""
    _audited: int | None = field(default=None, init=False)
    """Rows of the staging table as audited."""
    _doubled: bool = field(default=False, init=False)
    """Whether the target may have its rows twice: a server has restarted while it replaced them."""
    _target_rows: int = field(default=0, init=False)
    """`append`: the target's rows of the range, which the audit included."""

    def load_arrow(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema | None = None
    ) -> LoadReceipt:
        """Stream batches into staging by one INSERT of ArrowStream. See `RangeLoad.load_arrow`."""
        body = _Body()
        rows = body.arrow(batches, schema or self.plan.arrow_schema)
        return self._insert(body, rows, "ArrowStream")

    def load_bytes(self, chunks: Iterator[bytes]) -> LoadReceipt:
        """Stream rows into staging by one INSERT of TabSeparated. See `RangeLoad.load_bytes`."""
        body = _Body()
        return self._insert(body, body.text(chunks), "TabSeparated")

    def staged_rows(self) -> int:
        """Rows in the staging table."""
        self._arrived = self._count(self._staged)
        return self._arrived

    def audited_table(self) -> TableRef:
        """The staging table with what will be published. See `RangeLoad.audited_table`."""
        if self._audited is None:
            # only this attempt writes to it, and `finalise` counts anew
            arrived = self.staged_rows() if self._arrived is None else self._arrived
            self._audited = require_staged(self.table, self.key_range, arrived, self._sent, "sent")
            if self.atomic and self.options.keeps_rows(self.plan):
                self._doubled = replaced.may_come_back(self.resource) and self.marker.is_announced()
                self._gather_strays()
            if self.options.appends(self.plan):
                self._target_rows = self._count(qualified(self.table), self._in_range)
                self._complete()
                self._audited = self.staged_rows()
        return self.staging_table

    def keep_rejected(self) -> TableRef:
        """Rename the staging table, so that the attempt's end does not drop it."""
        target = self.plan.target
        rows = self.resource.query(
            f"SELECT name FROM system.tables WHERE database = {literal(target.schema)} "
            f"AND startsWith(name, {literal(staging_prefix(target))}) "
            "ORDER BY metadata_modification_time, name"
        )
        kept = rejected_of(target, self.key_range.name)
        names = [name for (name,) in rows]
        for name in {kept.name, *surplus_rejected(target, names)}.intersection(names):
            self.resource.execute(drop_table(target, name))
        self.resource.execute(f"RENAME TABLE {self._staged} TO {qualified(kept)}")
        return kept

    def finalise(self) -> int:
        """Publish the range, and check that it is visible. See `RangeLoad.finalise`.

        Every step may be repeated: the staging table does not change before the range is visible.
        """
        self.audited_table()
        if self.atomic:
            self._stage_rest()
        assert self._audited is not None
        self.marker.put(announced=True)
        crash_points.reached("after_marker")
        rows, number = self._owned_rows()
        require_staged(self.table, self.key_range, rows, self._audited, "audited")
        if (
            self.options.appends(self.plan)
            and self._count(qualified(self.table), self._in_range) != self._target_rows
        ):
            raise TargetMoved(
                f"{self.table} range {self.key_range.name}: somebody else wrote to it after the "
                "audit"
            )
        # without a transaction a row may be in the target and beside it for a moment, or until the
        # next attempt after a crash, but at no time in neither
        quarantine.replace_quarantine(self, keep=True)
        crash_points.reached("inside_finalise")
        rows = self._replace_partition() if self.atomic else self._rewrite()
        quarantine.replace_quarantine(self)
        crash_points.reached("after_publish")
        self.marker.confirm(number)
        return rows

    def _publish_audit(self) -> AbstractContextManager[None]:
        asked = self.options.audits_shown
        return PartitionAudit(self, self._in_range).around() if asked else nullcontext()

    def _replace_partition(self) -> int:
        assert self._audited is not None
        rows = self._audited
        table = qualified(self.table)
        with self._publish_audit():
            if rows:
                self._repeat(ddl.replace_partition(table, self._staged, self.key_range))
            else:
                # newer servers refuse REPLACE PARTITION from an empty table
                self._repeat(f"ALTER TABLE {table} DROP {ddl.partition(self.key_range)}")
            crash_points.reached("after_replace")
            # before the rows are counted: older servers also let a mutation that is under way bring
            # replaced parts back (https://github.com/ClickHouse/ClickHouse/issues/73783)
            replaced.let_go_ranges(self.resource, self.table, [self.key_range])
        shown, strays = self._rows_by_key()
        self._require_shown(shown, rows)
        self._target_rows = rows
        if strays and not self.options.keeps_rows(self.plan):
            crash_points.reached("before_strays")
            self.marker.require_alone()
            self._drop_strays()
            shown, strays = self._rows_by_key()
        return self._require_shown(shown + strays, rows)

    def _require_shown(self, shown: int, rows: int) -> int:
        """Return the rows of the range in the target if they are as many as should be."""
        if shown != rows:
            raise errors.ReceiptMismatch(
                f"{self.table} range {self.key_range.name}: it should have {rows} rows now, "
                f"but the target shows {shown}"
            )
        return rows

    def _rows_by_key(self) -> tuple[int, int]:
        """Rows of the target in this key range: in its own partition, and in others."""
        table, own = qualified(self.table), ddl.in_partition(self.key_range)
        ((shown, all_rows, token),) = self.resource.query(
            f"SELECT countIf({own}), count(), {self.marker.token} FROM {table} "
            f"WHERE {self.plan.target_range(self.key_range)} SETTINGS max_threads = 1"
        )
        self.marker.require(token)
        return int(shown), int(all_rows) - int(shown)

    def _rows_in_range(self) -> int:
        """Rows of the target in this range, which must still be this attempt's."""
        table = qualified(self.table)
        ((shown, token),) = self.resource.query(
            f"SELECT count(), {self.marker.token} FROM {table} WHERE {self._in_range}"
        )
        self.marker.require(token)
        return int(shown)

    def _drop_strays(self) -> None:
        """Remove rows of this key range from other partitions, where an earlier and now forgotten
        cut into ranges put them."""
        strays = ddl.strays_of(self.plan, self.key_range)
        self._repeat(ddl.delete_from(qualified(self.table), strays))

    def _gather_strays(self) -> None:
        """Bring such rows here. They exist twice for a moment, and a repetition adds no more."""
        table = qualified(self.table)
        if not self._count(table, ddl.strays_of(self.plan, self.key_range)):
            return
        self.resource.execute(
            ddl.gather_strays(self.plan, self._stored_columns(), table, self.key_range),
            {**UNDIVIDED, "insert_allow_materialized_columns": 1},
        )
        crash_points.reached("before_strays")
        self._drop_strays()

    def _stored_columns(self) -> str:
        """All columns, also those that the transfer does not write."""
        columns = self.resource.columns(self.table)
        return ddl.names([column.name for column in columns if not column.generated])

    @property
    def _in_range(self) -> str:
        """The condition that a row of the target is in this range."""
        if self.atomic:
            return ddl.in_partition(self.key_range)
        return self.plan.target_range(self.key_range)

    def _stage_rest(self) -> None:
        """Have staging hold the whole range: with the target's rows that stay.

        Raises:
            TableferryError: with its delta, the range does not agree with its source.
        """
        if self.options.replaces(self.plan) or self.options.appends(self.plan):
            return
        self._complete()
        self.publication.delta.prove(self.resource, self.staging_table)
        self._audited = self.staged_rows()

    def _complete(self) -> None:
        columns, target = self._stored_columns(), qualified(self.table)
        which = "DISTINCT " if self._doubled else ""
        publication, options, staged = self.publication, self.options, self._staged
        # only we use staging, so it does not matter that each replica would evaluate a subquery of
        # a mutation by itself
        settings = {**UNDIVIDED, "allow_nondeterministic_mutations": 1}
        for each in ddl.complete(
            publication, options, columns, target, staged, self._in_range, which
        ):
            self.resource.execute(each, settings)

    def _rewrite(self) -> int:
        """Publish into a table that somebody else partitioned: delete, then insert. Not atomic.

        After a crash at any point, the next attempt starts with the same delete.
        """
        target = qualified(self.table)
        # an INSERT SELECT outlives its client, and must not run beside its own repetition
        self.resource.execute(f"KILL QUERY WHERE startsWith(query_id, {literal(self.lock)}) SYNC")
        options, in_range = self.options, self._in_range
        *deletes, insert = ddl.rewrite(self.publication, options, target, self._staged, in_range)
        # rows that are written by themselves are proven in the table itself
        with nullcontext() if options.single_rows else self._publish_audit():
            for delete in deletes:
                self.resource.execute(
                    delete, {"mutations_sync": 2, "allow_nondeterministic_mutations": 1}
                )
            whole = options.replaces(self.plan) or options.appends(self.plan)
            kept = 0 if whole else self._count(target, in_range)
            query_id = f"{self.lock}-{self.owner.token}"
            self.resource.execute(insert, {**UNDIVIDED, "query_id": query_id})
        assert self._audited is not None
        self._target_rows = kept + self._audited
        self._require_shown(self._rows_in_range(), self._target_rows)
        self.publication.delta.prove(self.resource, self.table)
        return self._target_rows

    @property
    def _staged(self) -> str:
        return qualified(self.table, self.staging)

    def _insert(self, body: _Body, chunks: Iterator[bytes], fmt: str) -> LoadReceipt:
        token = f"{self.publication.version}|{self.table}|{self.key_range.name}|{self._blocks}"
        self._blocks += 1
        self._arrived = None
        digest = hashlib.blake2b(token.encode(), digest_size=16).hexdigest()
        self.resource.insert(
            self.staging_table,
            [column.name for column in self.plan.target_columns],
            chunks,
            fmt,  # type: ignore[arg-type]
            settings={"insert_deduplication_token": digest},
        )
        self._sent += body.rows
        return LoadReceipt(body.rows, body.size)

    def _owned_rows(self) -> tuple[int, int]:
        """Rows in staging, and the number of the marker, if the range is still ours; drop the
        rejected rows of earlier attempts.

        Two runs may take over from a dead one at once: the lock tells which of them has the range.
        A run that takes a range over drops its staging tables, too.
        """
        rejected = rejected_of(self.plan.target, self.key_range.name)
        tables = self.resource.query(
            f"SELECT name, comment, (SELECT count() FROM {self._staged}), {self.marker.standing} "
            f"FROM system.tables WHERE database = {literal(self.table.schema)} "
            f"AND name IN ({literal(self.lock)}, {literal(rejected.name)})"
        )
        comments = {name: comment for name, comment, *_ in tables}
        holder = locks.Owner.read(comments.get(self.lock, ""))
        if holder.token != self.owner.token:
            by = f" by run {holder.run}" if holder.run else ""
            raise errors.RangeBusy(f"{self.table} range {self.key_range.name} was taken over{by}")
        _, _, rows, standing = tables[0]
        number = self.marker.require_standing(standing)
        if rejected.name in comments:
            self.resource.execute(drop_table(rejected))
        return int(rows), number

    def _count(self, table: str, where: str | None = None) -> int:
        # without a condition the server counts without a plan for reading the table
        condition = f" WHERE {where}" if where else ""
        return int(self.resource.query(f"SELECT count() FROM {table}{condition}")[0][0])

    def _repeat(self, statement: str) -> None:
        """Run an idempotent statement, again if its outcome is unknown."""
        for attempt in retrying():
            with attempt:
                self.resource.execute(statement)


@dataclass
class _Body:
    """The chunks of an INSERT's body, counted on their way."""

    rows: int = 0
    size: int = 0

    def arrow(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[bytes]:
        """An Arrow stream, one chunk per batch."""
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                self.rows += batch.num_rows
                yield self._taken(sink)
        yield self._taken(sink)

    def text(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """TabSeparated, in which a newline always ends a row."""
        for chunk in chunks:
            self.rows += chunk.count(b"\n")
            self.size += len(chunk)
            yield chunk

    def _taken(self, sink: io.BytesIO) -> bytes:
        chunk = sink.getvalue()
        sink.seek(0)
        sink.truncate()
        self.size += len(chunk)
        return chunk
