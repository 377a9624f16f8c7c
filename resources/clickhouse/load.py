"""One key range on its way into ClickHouse: staged, then visible by one REPLACE PARTITION."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tableferry.resources import crash_points
from tableferry.resources.clickhouse.ddl import (
    Owner,
    drop_known,
    in_partition,
    kept_rows,
    names,
    partition,
    range_hash,
    replace_partition,
    rewrite,
    take_in,
)
from tableferry.resources.clickhouse.dialect import DIALECT
from tableferry.resources.clickhouse.held_range import HeldRange
from tableferry.resources.clickhouse.publish_audit import PublishAudit
from tableferry.resources.clickhouse.server import RANGE_COLUMN, ClickHouseServer
from tableferry.resources.connecting.retry import retrying
from tableferry.resources.contract.dialects import drop_table, qualified
from tableferry.resources.contract.target import (
    LoadReceipt,
    TargetMoved,
    appends,
    make_room,
    rejected_of,
    require_staged,
)
from tableferry.resources.errors import RangeBusy, ReceiptMismatch
from tableferry.resources.tables import TableRef, staging_prefix

UNDIVIDED: Mapping[str, str | int] = {
    "insert_deduplicate": 0,
    "optimize_on_insert": 0,
    "async_insert": 0,
}
"""Settings of INSERT SELECT: every row counts, and the answer comes when all are there."""


@dataclass
class ClickHouseLoad(HeldRange):
    """A held range and its staging table; made by `ClickHouseTarget.attempt`."""

    _sent: int = field(default=0, init=False)
    _blocks: int = field(default=0, init=False)
    _arrived: int | None = field(default=None, init=False)
    """Rows of the staging table as they were counted after the load."""
    _shown: int | None = field(default=None, init=False)
    _audited: int | None = field(default=None, init=False)
    """Rows of the staging table as it is to become visible."""
    _target_rows: int = field(default=0, init=False)
    """`append`: the target's own rows of the range, as the audit took them in."""

    def load_arrow(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema | None = None
    ) -> LoadReceipt:
        """Stream batches into the staging table by one INSERT in the Arrow stream format.

        Args:
            batches: columns named as in the target, of the plan's Arrow types.
            schema: of the batches; the plan's if not given.
        """
        stream = _ArrowBody(batches, schema or self.plan.arrow_schema)
        self._insert(iter(stream), "ArrowStream")
        self._sent += stream.rows
        return LoadReceipt(stream.rows, stream.bytes)

    def load_bytes(self, chunks: Iterator[bytes]) -> LoadReceipt:
        """Stream TabSeparated rows, columns in the plan's order, by one INSERT."""
        body = _TextBody(chunks)
        self._insert(iter(body), "TabSeparated")
        self._sent += body.rows
        return LoadReceipt(body.rows, body.bytes)

    def staged_rows(self) -> int:
        """Rows in the staging table."""
        self._arrived = self._count(self._staged)
        return self._arrived

    def reader(self) -> None:
        """All rows are staged. See `RangeLoad.reader`."""

    def audited_table(self) -> TableRef:
        """The staging table as the range is to become. See `RangeLoad.audited_table`."""
        if self._audited is None:
            # nobody but this attempt writes to it; `finalise` counts anew
            arrived = self.staged_rows() if self._arrived is None else self._arrived
            self._audited = self._require(arrived, self._sent, "sent")
            if appends(self.plan, self.options):
                self._target_rows = self._count(qualified(self.table), self._own)
                self._take_in_known_rows()
                self._audited = self.staged_rows()
        return self.staging_table

    def keep_rejected(self) -> TableRef:
        """Rename the staging table, so that the attempt's end does not drop it."""
        target = self.plan.target
        rows = self.resource.query(
            f"SELECT name FROM system.tables WHERE database = {_text(target.schema)} "
            f"AND startsWith(name, {_text(staging_prefix(target))}) ORDER BY name"
        )
        kept = rejected_of(target, self.key_range.name)
        names = [name for (name,) in rows]
        for name in {kept.name, *make_room(target, names)}.intersection(names):
            self.resource.execute(drop_table(target, name))
        self.resource.execute(f"RENAME TABLE {self._staged} TO {qualified(kept)}")
        return kept

    def finalise(self) -> int:
        """Make the range visible, and see that it is.

        Every step may be repeated: the staging table stays as it is until the range is visible.

        Raises:
            ReceiptMismatch: staging holds another number of rows than were sent, or the target
                shows another number than were staged.
            RangeBusy: another run took the range over.
            TargetMoved: somebody else has published the range since it was planned; or the target's
                own rows, which `append` keeps, are others than were audited.
        """
        self.audited_table()
        assert self._audited is not None
        self.marker.put()
        crash_points.reached("after_marker")
        self._require(self._owned_rows(), self._audited, "audited")
        if (
            appends(self.plan, self.options)
            and self._count(qualified(self.table), self._own) != self._target_rows
        ):
            raise TargetMoved(
                f"{self.table} range {self.key_range.name}: somebody else wrote to it after the "
                "audit"
            )
        crash_points.reached("inside_finalise")
        return self._replace_partition() if self.atomic else self._rewrite()

    def _publish_audit(self) -> PublishAudit | None:
        return PublishAudit(self, self._own) if self.options.audits_shown else None

    def _replace_partition(self) -> int:
        assert self._audited is not None
        rows = self._audited
        if self.options.mode.updates_known:
            self._take_in()
            rows = self.staged_rows()
        audit = self._publish_audit()
        if audit:
            audit.before()
        if rows:
            self._repeat(replace_partition(qualified(self.table), self._staged, self.key_range))
        else:
            # REPLACE PARTITION out of an empty table is refused by newer servers
            self._repeat(f"ALTER TABLE {qualified(self.table)} DROP {partition(self.key_range)}")
        if audit:
            audit.after()
        strays = 0
        if not self.options.mode.keeps_rows:
            shown, strays = self._rows_by_key()
            self._shown = None if strays else shown
        else:
            shown = self._rows_in_partition()
        if shown != rows:
            raise ReceiptMismatch(
                f"{self.table} range {self.key_range.name}: {rows} rows were staged, "
                f"but the target shows {shown}"
            )
        self._target_rows = rows
        if strays:
            self.marker.require_alone()
            self._drop_strays()
        return rows

    def shown_rows(self) -> int | None:
        """See `RangeLoad.shown_rows`."""
        return self._shown

    def _rows_by_key(self) -> tuple[int, int]:
        """Rows that the target has of this key range: in its own partition, and in others."""
        own = in_partition(self.key_range)
        ((shown, all_rows, token),) = self.resource.query(
            f"SELECT countIf({own}), count(), {self.marker.token} FROM {qualified(self.table)} "
            f"WHERE {self.plan.target_range(self.key_range)} SETTINGS max_threads = 1"
        )
        self.marker.require(token)
        return int(shown), int(all_rows) - int(shown)

    def _rows_in_partition(self) -> int:
        """Rows that the target has of this range, whatever their keys."""
        ((shown, token),) = self.resource.query(
            f"SELECT count(), {self.marker.token} FROM {qualified(self.table)} WHERE {self._own}"
        )
        self.marker.require(token)
        return int(shown)

    def _drop_strays(self) -> None:
        """Remove rows of this key range from other partitions.

        They are there if the ranges were once cut otherwise, by runs that nobody remembers.
        """
        self._repeat(
            f"ALTER TABLE {qualified(self.table)} DELETE "
            f"WHERE ({self.plan.target_range(self.key_range)}) "
            f"AND {RANGE_COLUMN} != {range_hash(self.key_range)} SETTINGS mutations_sync = 2"
        )

    def _require(self, rows: int, expected: int, which: str) -> int:
        return require_staged(self.table, self.key_range, rows, expected, which)

    @property
    def _own(self) -> str:
        """Condition: a row of the target that is in this range."""
        if self.atomic:
            return in_partition(self.key_range)
        return self.plan.target_range(self.key_range)

    def _take_in_known_rows(self) -> None:
        """Replace what the target has already by the target's own rows."""
        self.resource.execute(
            drop_known(self.plan, qualified(self.table), self._staged),
            # replicas would each see their own state of the subquery: this table has only us
            {"lightweight_deletes_sync": 2, "allow_nondeterministic_mutations": 1},
        )
        self._take_in()

    def _take_in(self) -> None:
        """Bring rows of the target that stay into staging, so that one REPLACE shows all."""
        # all columns, also those that the transfer does not write
        found = self.resource.columns(self.table)
        columns = names([column.name for column in found if not column.generated])
        kept = kept_rows(self.plan, self.options, self._staged, self._own)
        self.resource.execute(
            take_in(columns, qualified(self.table), self._staged, kept), UNDIVIDED
        )

    def _rewrite(self) -> int:
        """The way into a table that somebody else partitioned: delete, then insert. Not atomic.

        Whatever of it a crash leaves, the next attempt starts with the same delete.
        """
        target = qualified(self.table)
        # an INSERT SELECT outlives its lost client, and must not run beside its own repetition
        self.resource.execute(f"KILL QUERY WHERE startsWith(query_id, {_text(self.lock)}) SYNC")
        delete, insert = rewrite(self.plan, self.options, target, self._staged, self._own)
        audit = self._publish_audit()
        if audit:
            audit.before()
        if delete:
            self.resource.execute(
                delete, {"mutations_sync": 2, "allow_nondeterministic_mutations": 1}
            )
        kept = self._count(target, self._own) if self.options.mode.updates_known else 0
        self.resource.execute(
            insert,
            {**UNDIVIDED, "query_id": f"{self.lock}-{self.owner.token}"},
        )
        if audit:
            audit.after()
        self._rows_in_partition()
        self._target_rows = kept + self.staged_rows()
        return self._target_rows

    @property
    def _staged(self) -> str:
        return qualified(self.table, self.staging)

    def _insert(self, chunks: Iterator[bytes], fmt: str) -> None:
        token = f"{self.data_version}|{self.table}|{self.key_range.name}|{self._blocks}"
        self._blocks += 1
        self._arrived = None
        digest = hashlib.blake2b(token.encode(), digest_size=16).hexdigest()
        self.resource.insert(
            self.table,
            [column.name for column in self.plan.target_columns],
            chunks,
            fmt,  # type: ignore[arg-type]
            name=self.staging,
            settings={"insert_deduplication_token": digest},
        )

    def _owned_rows(self) -> int:
        """Rows in the staging table, if the range is still ours; what an earlier attempt has left
        of rejected rows is dropped.

        Two new runs may take over a dead one at once; the lock tells which of them has it. Whoever
        takes a range over drops its staging table, too.
        """
        rejected = rejected_of(self.plan.target, self.key_range.name)
        found = self.resource.query(
            f"SELECT name, comment, (SELECT count() FROM {self._staged}), {self.marker.standing} "
            f"FROM system.tables WHERE database = {_text(self.table.schema)} "
            f"AND name IN ({_text(self.lock)}, {_text(rejected.name)})"
        )
        comments = {name: comment for name, comment, *_ in found}
        self._require_owner(Owner.read(comments.get(self.lock, "")))
        _, _, rows, standing = found[0]
        self.marker.require_standing(standing)
        if rejected.name in comments:
            self.resource.execute(drop_table(rejected))
        return int(rows)

    def _require_owner(self, found: Owner | None) -> None:
        if found is None or found.token != self.owner.token:
            by = f" by run {found.run}" if found and found.run else ""
            raise RangeBusy(f"{self.table} range {self.key_range.name} was taken over{by}")

    def _count(self, table: str, where: str | None = None) -> int:
        # without a condition the server need not plan how to read the table
        condition = f" WHERE {where}" if where else ""
        return int(self.resource.query(f"SELECT count() FROM {table}{condition}")[0][0])

    def _repeat(self, statement: str) -> None:
        """Run a statement that may be run again, also when nobody knows whether it ran."""
        for attempt in retrying():
            with attempt:
                self.resource.execute(statement)


def read_owner(resource: ClickHouseServer, table: TableRef, name: str) -> Owner | None:
    """The owner of a lock, staging or shadow table; None if there is no such table."""
    rows = resource.query(f"SELECT comment FROM system.tables WHERE {_is(table, name)}")
    return Owner.read(rows[0][0]) if rows else None


def _is(table: TableRef, name: str) -> str:
    """Condition of `system.tables`: a table of that name, in the schema of another."""
    return f"database = {_text(table.schema)} AND name = {_text(name)}"


class _ArrowBody:
    """Batches as the bytes of an Arrow stream, one chunk per batch, counted on the way."""

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches, self._schema = batches, schema
        self._pieces: list[bytes] = []
        self.rows = self.bytes = 0

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def __iter__(self) -> Iterator[bytes]:
        with pa.ipc.new_stream(self, self._schema) as writer:
            for batch in self._batches:
                writer.write_batch(batch)
                self.rows += batch.num_rows
                yield self._take()
        yield self._take()

    def _take(self) -> bytes:
        chunk = b"".join(self._pieces)
        self._pieces.clear()
        self.bytes += len(chunk)
        return chunk

    closed = False

    def flush(self) -> None:
        """Part of the file interface that pyarrow asks for."""


class _TextBody:
    """TabSeparated chunks, counted on the way: a newline is written `\\n` inside of a value."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.rows = self.bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.rows += chunk.count(b"\n")
            self.bytes += len(chunk)
            yield chunk


def _text(value: str) -> str:
    return DIALECT.literal(value)
