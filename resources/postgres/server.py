"""A PostgreSQL database: queries, Arrow and text streams, exported snapshots."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import adbc_driver_manager
import psycopg
import pyarrow as pa
from pydantic import PrivateAttr

from tableferry.resources.connecting.address import Server
from tableferry.resources.connecting.gate import SETTLE_SECONDS
from tableferry.resources.connecting.pool import ConnectionPool
from tableferry.resources.connecting.retry import patiently
from tableferry.resources.connecting.waiting import lock_milliseconds, may_write, seconds_left
from tableferry.resources.contract.endpoint import BATCH_ROWS
from tableferry.resources.contract.limits import Budget
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.contract.snapshots import (
    HeldSnapshot,
    SetSnapshot,
    SharedSnapshot,
    Snapshot,
)
from tableferry.resources.errors import InputError
from tableferry.resources.postgres import arrow_session, catalog
from tableferry.resources.postgres.arrow_session import ArrowSession
from tableferry.resources.postgres.copy_out import copy_out
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.postgres.errors import connection_failed, statement_failed
from tableferry.resources.postgres.session import (
    MOST_SESSIONS,
    OWN_SESSION,
    POOL_SESSIONS,
    PgConnection,
    PostgresSession,
    await_session,
    has_own_session,
    waits_on,
)
from tableferry.resources.postgres.settings import (
    AT_LOGIN,
    NO_OPTIONS,
    PARALLEL_WORKERS,
    POLICIES,
    QUERIES,
    SESSION,
    conninfo,
    statements,
)
from tableferry.resources.postgres.snapshots import ExportedSnapshot, at_node, node_of, position
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tableferry.resources.wires.text_rows import CountedBytes

logger = logging.getLogger(__name__)

NOTHING: Mapping[str, str] = {}

CLOSING_SECONDS = 2.0
"""How long to wait for the end of a session."""


class PostgresServer(Server):
    """A PostgreSQL database (14 or later).

    Session settings are fixed, so that values have the same text whatever the defaults of server,
    database and role. Query parameters of the URL are passed to libpq, e.g. `sslmode=verify-full`.

    Examples:
        >>> PostgresServer(url="postgresql://me:secret@localhost/shop").columns(
        ...     TableRef.parse("postgres://public.orders")
        ... )
    """

    system_name: ClassVar[str] = "postgres"

    _node: str = PrivateAttr(default="")
    """The node of a snapshot, of several that the address may lead to; see `snapshots.node_of`."""

    def settings(self) -> ConnectionSettings:
        """See `Server.settings`."""
        return at_node(super().settings(), self._node)

    def ping(self) -> str:
        """See `Endpoint.ping`."""
        return str(self.query("SHOW server_version")[0][0])

    def identity(self) -> str:
        """Return the cluster's number, which a standby shares, and the database's name."""
        cluster = "SELECT system_identifier::text FROM pg_catalog.pg_control_system()"
        return str(self.query(f"SELECT concat_ws('/', ({cluster}), current_database())")[0][0])

    def instance(self) -> str | None:
        """When a primary was started; see `Endpoint.instance`."""
        started = "CASE WHEN NOT pg_is_in_recovery() THEN pg_postmaster_start_time()::text END"
        ((moment,),) = self.query(f"SELECT {started}")
        return None if moment is None else str(moment)

    def columns_of(self, tables: Sequence[TableRef]) -> dict[TableRef, list[Column]]:
        """See `Endpoint.columns_of`.

        Types are as `format_type` prints them, e.g. `numeric(38,10)`. A domain appears as its base
        type, an enum as `enum`, a row type as `composite`, an extension's type without its schema.
        """
        return catalog.columns(self, tables)

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        """See `Endpoint.query`. Select dates beyond the years 1 to 9999 as text.

        Raises:
            StatementFailed: the server refused the statement.
            SnapshotLost: the snapshot has ended.
        """
        seconds = seconds_left() if may_write() else None
        with self._at(snapshot)._lent(QUERIES) as connection, self._translated(snapshot):
            if seconds is not None:
                connection.execute(f"SET statement_timeout = '{seconds}s'".encode())
            for statement in _begin(snapshot):
                connection.execute(statement.encode())
            # values in binary come by a protocol that takes a single statement
            cursor = connection.execute(sql.encode(), binary=not may_write())
            rows = cursor.fetchall() if cursor.description else []
            connection.rollback()  # the snapshot's transaction
            if seconds is not None:
                connection.execute(b"SET statement_timeout = 0")
            return rows

    def query_columns(self, sql: str) -> list[Column]:
        """Return the columns of a query's result, with types as `columns` has them."""
        with self._lent(QUERIES) as connection, self._translated():
            result = connection.execute(f"SELECT * FROM (\n{sql}\n) q LIMIT 0".encode()).pgresult
            assert result is not None
            found = [
                ((result.fname(at) or b"").decode(), result.ftype(at), result.fmod(at))
                for at in range(result.nfields)
            ]
            listed = ", ".join(f"({at}, {oid}, {mod})" for at, (_, oid, mod) in enumerate(found))
            types = connection.execute(catalog.DESCRIBED_SQL.format(listed=listed).encode())
            names = [str(row[0]) for row in types.fetchall()]
            connection.rollback()
        return [Column(name, type_) for (name, _, _), type_ in zip(found, names, strict=True)]

    def execute(self, sql: str) -> None:
        """Run statements, separated by semicolons, in one transaction.

        Raises:
            StatementFailed: the server refused a statement; none took effect.
        """
        with (
            self.permit(),
            closing(self._new_connection()) as connection,
            self._translated(),
        ):
            connection.execute(sql.encode())

    @contextmanager
    def read_arrow(
        self, sql: str, *, batch_rows: int = BATCH_ROWS, snapshot: str | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        """See `Endpoint.read_arrow`. Rows arrive by ADBC's binary COPY.

        Memory is bounded by a batch of about `batches.BATCH_BYTES`. `numeric` arrives as an
        opaque string, so cast it in the query.

        Raises:
            StatementFailed: also while the batches are read.
            SnapshotLost: the snapshot has ended.
        """
        server = self._at(snapshot)
        with ExitStack() as opened:
            session = opened.enter_context(server._arrow_session())
            before = _begin(snapshot, lent=session.lent)
            with self._translated(snapshot):
                source = session.select(sql, *before)
                if not session.knows(source.schema):
                    source.close()
                    session.close()
                    session = opened.enter_context(server._another_arrow_session())
                    source = session.select(sql, *before)
            ended = False

            def batches() -> Iterator[pa.RecordBatch]:
                nonlocal ended
                read = self._batches(source, batch_rows, snapshot)
                yield from self._paced(read, lambda batch: batch.nbytes)
                ended = True

            try:
                yield pa.RecordBatchReader.from_batches(source.schema, batches())
            except BaseException:
                session.cancel()
                raise
            finally:
                with suppress(Exception):
                    source.close()
                if ended:
                    session.reset(in_transaction=bool(before))
                else:
                    session.close()

    def write_arrow(self, table: TableRef, reader: pa.RecordBatchReader) -> int:
        """Append batches to a table, all or none, by ADBC's binary COPY.

        Args:
            table: has the batches' columns, by name, of the types that ADBC sends for theirs.
            reader: the batches.

        Returns:
            The number of rows that the server accepted.

        Raises:
            StatementFailed: the server refused a row, or the reader failed.
        """
        with self._arrow_session() as session, self._translated():
            return session.append(table.schema, table.name, reader)

    @contextmanager
    def read_text(
        self, sql: str, *, snapshot: str | None = None, binary: bool = False
    ) -> Iterator[Iterator[CountedBytes]]:
        r"""Stream a query's result in COPY's text format: tabs, newlines, `\N` for NULL.

        The chunks are about 1 MiB long and end at row ends.

        Args:
            sql: a single SELECT.
            snapshot: exported by `snapshot`; None reads what is committed now.
            binary: use COPY's binary format instead.

        Raises:
            StatementFailed: also while the chunks are read.
            SnapshotLost: the snapshot has ended.
        """
        with self._at(snapshot)._lent() as connection:
            finished = False

            def chunks() -> Iterator[CountedBytes]:
                nonlocal finished
                with self._translated(snapshot):
                    yield from self._paced(copy_out(connection, sql, binary=binary), len)
                finished = True

            with self._translated(snapshot):
                for statement in _begin(snapshot, lent=connection.lent):
                    connection.execute(statement.encode())
            try:
                yield chunks()
            finally:
                if finished:
                    _rollback(connection)
                else:
                    with suppress(psycopg.Error):
                        connection.cancel_safe(timeout=5)
                    connection.close()

    def budget(self, connection: str) -> Budget | None:
        """See `Server.budget`. A small pool bounds it by what it lends."""
        declared = super().budget(connection)
        sessions = self.settings().facts.latest(POOL_SESSIONS, MOST_SESSIONS)
        if sessions >= MOST_SESSIONS:
            return declared
        return replace(declared or Budget(), lent=sessions)

    @property
    def asks_beside(self) -> bool:
        """See `Server.asks_beside`. A pooler may have no session but the one that it has lent."""
        return super().asks_beside and self.settings().facts.latest(OWN_SESSION, False)

    def by_kerberos(self) -> bool:
        """Whether a ticket has logged in."""
        with self._lent(QUERIES) as connection:
            return bool(connection.pgconn.used_gssapi)

    def open_session(self) -> PostgresSession:
        """Open a session in autocommit mode, which the caller closes."""
        return PostgresSession(self.settings(), self._new_connection(QUERIES))

    @contextmanager
    def session(self) -> Iterator[PostgresSession]:
        """Lend a pooled session in autocommit mode; it is closed if a statement fails.

        The borrower ends its transactions and releases its locks.
        """
        with self._lent(QUERIES) as connection:
            session = PostgresSession(self.settings(), connection)
            yield session
            if session.failed:
                session.close()

    @contextmanager
    def snapshot(
        self,
        table: TableRef | None = None,
        joined: str | None = None,
        at: str | None = None,
    ) -> Iterator[Snapshot]:
        """Hold one consistent state of the database, which any number of readers can share.

        A connection holds it open; as for every long transaction, VACUUM keeps the dead rows of
        the whole time. When that connection is lost, readers and `Snapshot.check` raise
        `SnapshotLost`.

        Args:
            table: the table that is read under it; `check` also sees whether it was rewritten.
            joined: a snapshot that another process holds, to hold the same state.
            at: the position of that snapshot, if it is known.

        Yields:
            The name to pass as `snapshot=`.

        Raises:
            SnapshotLost: the other process does not hold it any more.
        """
        with self._gate.holding() if self._gate else nullcontext():
            yield from self._hold(table, joined, at)

    def _hold(
        self, table: TableRef | None = None, joined: str | None = None, at: str | None = None
    ) -> Iterator[Snapshot]:
        with self._at(joined)._lent(QUERIES) as connection:
            node = node_of(self.settings(), connection)
            with self._translated(joined):
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                if joined is not None:
                    connection.execute(_import(joined).encode())
                ask = self._at(node).query
                snapshot = ExportedSnapshot.of(connection, table, ask, at, node)
            yield snapshot
            _rollback(connection)

    @contextmanager
    def set_snapshot(self) -> Iterator[SetSnapshot]:
        """Hold the state of the database in which a set of tables is read; see `snapshot`."""
        holding = self._gate.holding_set() if self._gate else nullcontext()
        with holding, contextmanager(self._hold)() as snapshot:
            # the server's clock, as a snapshot's name comes again after a restart
            ask = self._at(snapshot).query
            ((moment,),) = ask("SELECT clock_timestamp()")
            here = position(ask)
            state = f"{snapshot!s} of {moment.isoformat().replace('+00:00', 'Z')}"
            held = HeldSnapshot(str(snapshot), state, str(here) if here else None)
            yield SetSnapshot(held, snapshot.check)

    @contextmanager
    def shared_snapshot(
        self,
        table: TableRef | None = None,
        joined: HeldSnapshot | None = None,
        *,
        by_place: bool = False,
    ) -> Iterator[SharedSnapshot]:
        """Hold a snapshot for a long run, and replace it by a new one if it is lost.

        Args:
            table: as in `snapshot`.
            joined: as in `snapshot`, for the first one, or for all if it is that of a set.
            by_place: see `Source.shared_snapshot`.

        Yields:
            Its `name()`, called for each reader, is what to pass as `snapshot=`.
        """
        state = joined.state if joined else None
        joins = itertools.chain([joined], itertools.repeat(joined if state else None))

        def take() -> AbstractContextManager[Snapshot]:
            held = next(joins)
            return self.snapshot(table, held.name, held.position) if held else self.snapshot(table)

        shared = SharedSnapshot(take, renewed=not by_place, state=state)
        try:
            yield shared
        finally:
            shared.close()

    def _at(self, snapshot: str | None) -> Self:
        """Return the server at the node that has a snapshot."""
        if snapshot is None or "@" not in snapshot:
            return self
        copy = self.model_copy()
        copy._node = snapshot
        return copy

    def _preparation(self, extra: Mapping[str, str] = NOTHING) -> Sequence[str]:
        """The statements that set up a session, with settings besides those of every session."""
        waits = {"lock_timeout": lock_milliseconds("0")}
        policies = POLICIES if self._policies_apply else {}
        workers = self.limits.parallel_workers if self.limits else None
        bounded = {} if workers is None else {PARALLEL_WORKERS: str(workers)}
        return statements({**SESSION, **waits, **policies, **bounded, **extra})

    def _lent(self, extra: Mapping[str, str] = NOTHING) -> AbstractContextManager[PgConnection]:
        if self._gate is not None:
            extra = QUERIES  # one kind of session, so that few are opened
        key = "\n".join((conninfo(self.settings().for_pool), *self._preparation(extra)))
        return _pool.lent(key, partial(self._new_connection, extra), self._gate)

    @patiently
    def _new_connection(self, extra: Mapping[str, str] = NOTHING) -> PgConnection:
        settings = self.settings()
        try:
            # prepared statements would not survive a pooler on the way
            connection = PgConnection.connect(
                conninfo(settings), autocommit=True, prepare_threshold=None
            )
            try:
                owns = partial(has_own_session, settings, connection)
                with waits_on(settings):
                    if not settings.facts.latest(OWN_SESSION, False):
                        await_session(settings, connection)
                    connection.lent = not settings.facts.known(OWN_SESSION, owns)
                    connection.kept = not connection.lent or self._gate is not None
                    connection.execute("; ".join(self._preparation(extra)).encode())
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            raise connection_failed(settings, error) from error
        connection.add_notice_handler(_log_notice)
        return connection

    def _arrow_session(self) -> AbstractContextManager[ArrowSession]:
        key = "\n".join((conninfo(self.settings().for_pool), *self._preparation()))
        return arrow_session.pool.lent(key, self._new_arrow_session, self._gate)

    @contextmanager
    def _another_arrow_session(self) -> Iterator[ArrowSession]:
        """Open a session in place of a pooled one that was closed, and close it."""
        time.sleep(self._settling)
        with closing(self._new_arrow_session()) as session:
            yield session

    @patiently
    def _new_arrow_session(self) -> ArrowSession:
        settings, preparation = self.settings(), self._preparation()
        if not settings.facts.latest(OWN_SESSION, False):
            # ADBC waits for a pooler's session without a limit: this connection has one
            self._new_connection().close()
            time.sleep(self._settling)
        lent = not settings.facts.latest(OWN_SESSION, False)
        opened = partial(
            ArrowSession,
            preparation=preparation,
            settling=self._settling,
            lent=lent,
            kept=not lent or self._gate is not None,
        )
        try:
            with waits_on(settings):
                try:
                    return opened(conninfo(settings, AT_LOGIN))
                except adbc_driver_manager.Error as error:
                    if NO_OPTIONS not in str(error):
                        raise
                return opened(conninfo(settings))
        except adbc_driver_manager.Error as error:
            raise connection_failed(settings, error) from error
        except InputError as error:
            raise settings.failed(str(error)) from error

    @property
    def _settling(self) -> float:
        """How long to wait after a connection was closed, until it counts no more."""
        return SETTLE_SECONDS if self._gate else 0.0

    @contextmanager
    def _translated(self, snapshot: str | None = None) -> Iterator[None]:
        with waits_on(self.settings()):
            try:
                yield
            except (psycopg.Error, adbc_driver_manager.Error) as error:
                raise statement_failed(self.settings(), error, snapshot) from error

    def _batches(
        self, source: pa.RecordBatchReader, batch_rows: int, snapshot: str | None
    ) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = source.read_next_batch()
            except StopIteration:
                return
            except (OSError, pa.ArrowException) as error:
                # a server error in the middle of the stream arrives as a bare OSError
                raise statement_failed(self.settings(), error, snapshot) from error
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows)


def _answers(connection: PgConnection) -> bool:
    try:
        return connection.execute("SELECT 1").fetchone() is not None
    except psycopg.Error:
        return False


def _rollback(connection: PgConnection) -> None:
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()


def _close(connection: PgConnection) -> bool:
    """Close a connection; return whether the server is known to have ended its session.

    The kernel closes the server's end of the socket when the backend's process ends.
    """
    if connection.closed:
        return False
    try:
        descriptor = os.dup(connection.fileno())
    except (OSError, psycopg.Error):
        connection.close()
        return False
    with socket.socket(fileno=descriptor) as their_end:
        connection.close()
        their_end.settimeout(CLOSING_SECONDS)
        try:
            while their_end.recv(4096):
                pass
        except OSError as error:
            return isinstance(error, ConnectionResetError)
    return True


_pool: ConnectionPool[PgConnection] = ConnectionPool(
    _answers, lambda connection: connection.closed or not connection.kept, _close
)


def _begin(snapshot: str | None, *, lent: bool = False) -> tuple[str, ...]:
    if not may_write():
        assert snapshot is None, "a user's query reads what is committed"
        seconds = seconds_left() or 0
        return ("BEGIN READ ONLY", f"SET LOCAL statement_timeout = '{seconds}s'")
    if snapshot is None:
        # a pooler ends a session that it gets back in a transaction, as it does if reading fails
        return ("BEGIN",) if lent else ()
    return (
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        _import(snapshot),
    )


def _import(snapshot: str) -> str:
    return f"SET TRANSACTION SNAPSHOT {DIALECT.literal(snapshot.partition('@')[0])}"


def _log_notice(notice: psycopg.errors.Diagnostic) -> None:
    logger.debug("postgres %s: %s", notice.severity, notice.message_primary)
