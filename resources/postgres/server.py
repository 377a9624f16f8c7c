"""A PostgreSQL database: catalog, control SQL, Arrow and text streams, exported snapshots."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any, ClassVar

import adbc_driver_manager
import psycopg
import pyarrow as pa
from psycopg.conninfo import make_conninfo

from tableferry.resources.connecting.address import Server
from tableferry.resources.connecting.pool import ConnectionPool
from tableferry.resources.contract.endpoint import BATCH_ROWS
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.contract.snapshots import SharedSnapshot, Snapshot
from tableferry.resources.errors import InputError, TableMissing
from tableferry.resources.postgres import arrow_session
from tableferry.resources.postgres.arrow_session import ArrowSession
from tableferry.resources.postgres.columns import COLUMNS_SQL
from tableferry.resources.postgres.copy_out import copy_out
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.postgres.errors import connection_failed, statement_failed
from tableferry.resources.postgres.position import position
from tableferry.resources.postgres.session import PostgresSession
from tableferry.resources.postgres.settings import (
    AT_LOGIN,
    NO_OPTIONS,
    NOTHING_MISREAD,
    POLICIES,
    QUERIES,
    SESSION,
    statements,
)
from tableferry.resources.postgres.snapshots import ExportedSnapshot
from tableferry.resources.postgres.storage import storage
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.wires.counted import CountedBytes

logger = logging.getLogger(__name__)

PgConnection = psycopg.Connection[tuple[Any, ...]]

NOTHING: Mapping[str, str] = {}

CONNECT_DEFAULTS = {
    "connect_timeout": "10",
    "application_name": "tableferry",
    # a silently dropped connection is noticed within two minutes, not after the system's two hours
    "keepalives_idle": "60",
    "keepalives_interval": "15",
    "keepalives_count": "4",
}


class PostgresServer(Server):
    """A PostgreSQL database (14 or later).

    Every connection has its session settings fixed, so that text and times come out the same
    whatever the server's, the database's and the role's defaults are. Query parameters of the URL
    are passed to libpq, for example `sslmode=verify-full`.

    Examples:
        >>> PostgresServer(url="postgresql://me:secret@localhost/shop").columns(
        ...     TableRef.parse("postgres://public.orders")
        ... )
    """

    system_name: ClassVar[str] = "postgres"

    def ping(self) -> str:
        """The server's version, for example `18.6`.

        Raises:
            ConnectionFailed: the server is down, or refuses the login or the database.
        """
        return str(self.query("SHOW server_version")[0][0])

    def identity(self) -> str:
        """The database's name and its cluster's number, which a standby has, too."""
        cluster = "SELECT system_identifier::text FROM pg_catalog.pg_control_system()"
        return str(self.query(f"SELECT concat_ws('/', ({cluster}), current_database())")[0][0])

    def columns(self, table: TableRef) -> list[Column]:
        """The columns of a table or view in catalog order.

        Types are `format_type`'s words, for example `numeric(38,10)` or `timestamp with time zone`.
        A domain shows as the type that it is based on, an enum as `enum`, a row type as
        `composite`, an extension's type without its schema.

        Raises:
            TableMissing: there is no such table, or it has no columns.
        """
        rows = self._fetch(COLUMNS_SQL, (table.schema, table.name))
        if not rows:
            raise TableMissing(f"{table} does not exist")
        return [Column(*row) for row in rows]

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of a small result.

        Dates outside of 0001-9999 and infinite ones have no Python value: select them as text.

        Args:
            sql: A single statement.
            snapshot: As of `read_arrow`.

        Raises:
            StatementFailed: the server refused the statement.
            SnapshotLost: the snapshot does not stand any more.
        """
        return self._fetch(sql, snapshot=snapshot)

    def execute(self, sql: str) -> None:
        """Run one or several statements, separated by semicolons, in one transaction.

        Raises:
            StatementFailed: the server refused a statement; none of them took effect.
        """
        with closing(self._new_connection()) as connection, self._translated():
            connection.execute(sql.encode())

    @contextmanager
    def read_arrow(
        self, sql: str, *, batch_rows: int = BATCH_ROWS, snapshot: str | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        """Stream a query's result as Arrow batches, by ADBC's binary COPY.

        Memory is bounded by one batch of about `arrow_session.BATCH_BYTES`. `numeric` arrives as
        an opaque string, so cast it in the query.

        Args:
            sql: A single SELECT.
            batch_rows: Most rows of a batch.
            snapshot: A snapshot exported by `snapshot()`; None reads what is committed now.

        Raises:
            StatementFailed: also while the batches are read.
            SnapshotLost: the snapshot does not stand any more.
        """
        with ExitStack() as opened:
            session = opened.enter_context(self._arrow_session())
            with self._translated(snapshot):
                source = session.select(sql, *_begin(snapshot))
                if not session.knows(source.schema):
                    source.close()
                    session.close()
                    session = opened.enter_context(closing(self._new_arrow_session()))
                    source = session.select(sql, *_begin(snapshot))
            ended = False

            def batches() -> Iterator[pa.RecordBatch]:
                nonlocal ended
                yield from self._batches(source, batch_rows, snapshot)
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
                    session.rest(in_transaction=snapshot is not None)
                else:
                    session.close()

    def write_arrow(self, table: TableRef, reader: pa.RecordBatchReader) -> int:
        """Append batches to a table, all or none, by ADBC's binary COPY.

        Args:
            table: has columns of the batches' names, of types that the binary forms of their Arrow
                types are read as.
            reader: the batches.

        Returns:
            The rows that the server has taken.

        Raises:
            StatementFailed: the server refused a row; or the reader failed.
        """
        with self._arrow_session() as session, self._translated():
            return session.append(table.schema, table.name, reader)

    @contextmanager
    def read_text(
        self, sql: str, *, snapshot: str | None = None, binary: bool = False
    ) -> Iterator[Iterator[CountedBytes]]:
        r"""Stream a query's result in the text format of COPY: tabs, newlines, `\N` for NULL.

        The chunks are about 1 MiB long and end at row ends.

        Args:
            sql: A single SELECT.
            snapshot: As of `read_arrow`.
            binary: In COPY's binary format instead.

        Raises:
            StatementFailed: also while the chunks are read.
            SnapshotLost: the snapshot does not stand any more.
        """
        with self._lent() as connection:
            finished = False

            def chunks() -> Iterator[CountedBytes]:
                nonlocal finished
                with self._translated(snapshot):
                    yield from copy_out(connection, sql, binary=binary)
                finished = True

            with self._translated(snapshot):
                for statement in _begin(snapshot):
                    connection.execute(statement.encode())
            try:
                yield chunks()
            finally:
                if finished:
                    _end(connection)
                else:
                    with suppress(psycopg.Error):
                        connection.cancel_safe(timeout=5)
                    connection.close()

    def open_session(self) -> PostgresSession:
        """A session of its own, in autocommit mode; to be closed.

        Raises:
            ConnectionFailed: see `ping`.
        """
        return PostgresSession(self.settings(), self._new_connection(QUERIES))

    @contextmanager
    def session(self) -> Iterator[PostgresSession]:
        """A session that others had before and may have after, in autocommit mode.

        The borrower has to end its transactions and give back its locks. After a statement that
        failed the session is closed.

        Raises:
            ConnectionFailed: see `ping`.
        """
        with self._lent(QUERIES) as connection:
            session = PostgresSession(self.settings(), connection)
            yield session
            if session.failed:
                session.close()

    @contextmanager
    def snapshot(
        self, table: TableRef | None = None, joined: str | None = None
    ) -> Iterator[Snapshot]:
        """Hold one consistent state of the database, which any number of readers can share.

        A connection holds it open; as for every long transaction, VACUUM keeps the dead rows of
        the whole time. When that connection dies (a server restart, a terminated backend),
        readers raise `SnapshotLost`, and so does `Snapshot.check()`.

        Args:
            table: what is read under it: `check` also sees whether that is stored otherwise since.
            joined: hold the state of this snapshot, which another process has exported and holds.

        Yields:
            The name to pass as `snapshot=`.
        """
        with self._lent(QUERIES) as connection:
            with self._translated():
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                if joined is not None:
                    name = DIALECT.literal(joined)
                    connection.execute(f"SET TRANSACTION SNAPSHOT {name}")
                if table is None:
                    snapshot = ExportedSnapshot.of(connection)
                else:
                    # what the one connection sees of the catalog is as of the snapshot
                    then = storage(lambda sql: connection.execute(sql.encode()).fetchall(), table)
                    snapshot = ExportedSnapshot.of(
                        connection,
                        then,
                        lambda: storage(self.query, table),
                        lambda: position(self.query),
                    )
            yield snapshot
            _end(connection)

    @contextmanager
    def shared_snapshot(
        self, table: TableRef | None = None, joined: str | None = None, *, placed: bool = False
    ) -> Iterator[SharedSnapshot]:
        """A snapshot for a long run, which is replaced by a new one if it is lost.

        Args:
            table: as for `snapshot`.
            joined: as for `snapshot`, of the first one.
            placed: see `Source.shared_snapshot`.

        Yields:
            Its `name()` is what to pass as `snapshot=`, asked for anew for each reader.
        """
        states = itertools.chain([joined], itertools.repeat(None))
        shared = SharedSnapshot(lambda: self.snapshot(table, next(states)), renewed=not placed)
        try:
            yield shared
        finally:
            shared.close()

    def _fetch(
        self, sql: str, params: tuple[object, ...] | None = None, *, snapshot: str | None = None
    ) -> list[tuple[Any, ...]]:
        with self._lent(QUERIES) as connection, self._translated(snapshot):
            for statement in _begin(snapshot):
                connection.execute(statement.encode())
            cursor = connection.execute(sql.encode(), params)
            rows = cursor.fetchall() if cursor.description else []
            connection.rollback()  # the snapshot's transaction
            return rows

    def _prepared(self, more: Mapping[str, str]) -> Sequence[str]:
        """The statements that a session begins with."""
        return statements({**SESSION, **(POLICIES if self._policies_apply else {}), **more})

    def _lent(self, more: Mapping[str, str] = NOTHING) -> AbstractContextManager[PgConnection]:
        """A connection that others had before and may have after.

        Args:
            more: settings besides those of every session.
        """
        key = "\n".join((_conninfo(self.settings()), *self._prepared(more)))
        return _pool.lent(key, partial(self._new_connection, more))

    def _new_connection(self, more: Mapping[str, str] = NOTHING) -> PgConnection:
        settings = self.settings()
        try:
            # prepared statements would not survive a pooler between us and the server
            connection = psycopg.connect(
                _conninfo(settings), autocommit=True, prepare_threshold=None
            )
            connection.execute("; ".join(self._prepared(more)).encode())
        except psycopg.Error as error:
            raise connection_failed(settings, error) from error
        connection.add_notice_handler(_log_notice)
        return connection

    def _arrow_session(self) -> AbstractContextManager[ArrowSession]:
        key = "\n".join((_conninfo(self.settings()), *self._prepared(NOTHING)))
        return arrow_session.pool.lent(key, self._new_arrow_session)

    def _new_arrow_session(self) -> ArrowSession:
        settings, prepared = self.settings(), self._prepared(NOTHING)
        try:
            try:
                return ArrowSession(_conninfo(settings, AT_LOGIN), prepared)
            except adbc_driver_manager.Error as error:
                if NO_OPTIONS not in str(error):
                    raise
            return ArrowSession(_conninfo(settings), (*prepared, NOTHING_MISREAD))
        except adbc_driver_manager.Error as error:
            raise connection_failed(settings, error) from error

    @contextmanager
    def _translated(self, snapshot: str | None = None) -> Iterator[None]:
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
                # an error of the server in the middle of the stream arrives as a bare OSError
                raise statement_failed(self.settings(), error, snapshot) from error
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows)


def _answers(connection: PgConnection) -> bool:
    try:
        return connection.execute("SELECT 1").fetchone() is not None
    except psycopg.Error:
        return False


def _end(connection: PgConnection) -> None:
    """End the transaction of a borrower, if it is in one."""
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()


_pool: ConnectionPool[PgConnection] = ConnectionPool(
    _answers, lambda connection: connection.closed, PgConnection.close
)


def _conninfo(settings: ConnectionSettings, options: str = "") -> str:
    """libpq's connection string.

    Args:
        settings: of the server.
        options: for the server, besides those of the URL or the environment.
    """
    before = settings.options.get("options", os.environ.get("PGOPTIONS", ""))
    given = {
        **({"options": f"{before} {options}".strip()} if options else {}),
        "host": settings.host,
        "port": str(settings.port),
        "dbname": settings.database,
        "user": settings.user,
        "password": settings.password,
        "client_encoding": "UTF8",
    }
    try:
        return make_conninfo(
            "", **dict[str, Any]({**CONNECT_DEFAULTS, **settings.options, **given})
        )
    except psycopg.ProgrammingError as error:
        raise InputError(f"{settings.address}: {settings.redact(str(error))}") from None


def _begin(snapshot: str | None) -> tuple[str, ...]:
    if snapshot is None:
        return ()
    return (
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        f"SET TRANSACTION SNAPSHOT {DIALECT.literal(str(snapshot))}",
    )


def _log_notice(notice: psycopg.errors.Diagnostic) -> None:
    logger.debug("postgres %s: %s", notice.severity, notice.message_primary)
