"""One PostgreSQL session."""

from __future__ import annotations

import math
import re
import select
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from tableferry.resources.connecting.waiting import watched
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.postgres.errors import NO_OWN_SESSION, NO_SESSION, statement_failed
from tableferry.resources.postgres.settings import AS_FOUND, connect_seconds, conninfo

PROCESS, VERSION = "SELECT pg_catalog.pg_backend_pid()", "SELECT pg_catalog.version()"

# who waits is told by name, as a pooler hides the number of its process, and ADBC its own; the rest
# of another login's session is shown to members of pg_read_all_stats only
BLOCKED_SQL = """
SELECT DISTINCT concat('waits for a lock of process ', b.pid, ' of ' || b.usename, ' (' || nullif(
    concat_ws(', ', nullif(b.application_name, ''), host(b.client_addr), b.state), '') || ')')
FROM pg_catalog.pg_stat_activity w
CROSS JOIN LATERAL unnest(pg_catalog.pg_blocking_pids(w.pid)) u(pid)
JOIN pg_catalog.pg_stat_activity b ON b.pid = u.pid
WHERE w.usename = current_user AND w.datname = pg_catalog.current_database()
    AND w.application_name = pg_catalog.current_setting('application_name')
"""

RELATIVES = {
    "CockroachDB": "it exports no snapshots, and has neither COPY in binary nor versions of rows",
    "-YB-|YugabyteDB": "it exports snapshots as a preview only, and its rows have no versions",
    "Redshift": "it has neither exported snapshots nor advisory locks nor versions of rows",
    "Greenplum|Cloudberry|Greengage|WarehousePG": "rows of different segments have the same places "
    "and versions, and a snapshot of the coordinator is not exported to others",
    "Materialize|RisingWave|CrateDB|QuestDB": "its transactions and catalog are not PostgreSQL's",
}
"""Why each is refused, by what its `version()` says; docs/routes.md tells more."""

LOOKS = 3
"""How often two clients of a pooler are compared. By default PgBouncer lends the session that was
returned last, and the first look tells; with server_round_robin, or beside other clients, the next
ones do."""

LOOK_SECONDS = 2.0
"""How long a second client may wait for a session: the first one may have the only one."""

OWN_SESSION = "own session"
"""The fact that connections have sessions of their own, which no pooler has lent them."""

POOL_SESSIONS = "sessions of a pool"
"""The fact that says how many sessions a pooler has lent this process at a time."""

MOST_SESSIONS = 10
"""As many as a run of the largest profile uses; a larger pool is not counted further."""


def refused_relative(version: str) -> str | None:
    """Say why a server is refused; None for PostgreSQL, whoever runs it.

    Args:
        version: what `version()` returns, which all of them have.
    """
    for name, why in RELATIVES.items():
        if found := re.search(name, version, re.IGNORECASE):
            return f"it is no PostgreSQL ({found[0].strip('-')}): {why}"
    return None


def has_own_session(
    settings: ConnectionSettings, connection: psycopg.Connection[tuple[Any, ...]]
) -> bool:
    """Whether a connection has a session of its own, or one that a pooler lends it until it ends.

    A pooler may lend a session for a transaction or a statement only. Settings then stay with it,
    for other clients, and snapshots and locks are lost. A pooler gives its clients a key to cancel
    by that is not the server's, which is how it is noticed; nothing is set yet, and nothing but the
    number of the server's process and its version is asked. How many sessions a pooler lends at a
    time is noted (`POOL_SESSIONS`), so that readers fit.

    Raises:
        ConnectionFailed: others get the session between two transactions, or the server is one that
            only speaks like PostgreSQL.
    """
    ((version,),) = connection.execute(VERSION.encode()).fetchall()
    if why := refused_relative(str(version)):
        raise settings.failed(why)
    own, others = {_asked(connection)}, set[int]()
    if own == {connection.info.backend_pid}:
        return True
    info = connection.info
    there = make_conninfo(
        conninfo(settings), host=info.host, hostaddr=info.hostaddr, port=info.port
    )
    with ExitStack() as opened:
        clients, full = [_client(there, opened)], False
        for _ in range(LOOKS):
            if (other := _asked_briefly(clients[0])) is None:
                full = True  # there is no session for it while the first connection has its own
                break
            others.add(other)
            # twice: asking by turns, each client would have one of two sessions that go round
            own.update((_asked(connection), _asked(connection)))
            if len(own) > 1 or own & others:
                raise settings.failed(NO_OWN_SESSION)
        while not full and 1 + len(clients) < MOST_SESSIONS:
            clients.append(_client(there, opened))
            full = _asked_briefly(clients[-1]) is None
        settings.facts.note(POOL_SESSIONS, 1 + len(clients) - full)
        for client in filter(None, clients):
            client.lent = True
    return False


def _client(conninfo: str, opened: ExitStack) -> PgConnection | None:
    """Open one more connection to a pooler; None if it lets in no more."""
    try:
        return opened.enter_context(closing(PgConnection.connect(conninfo, autocommit=True)))
    except psycopg.OperationalError:
        return None


def await_session(
    settings: ConnectionSettings, connection: psycopg.Connection[tuple[Any, ...]]
) -> None:
    """Wait for a session: a pooler lets clients in before it has one for them.

    Raises:
        ConnectionFailed: there is none for as long as a connection may take. Trying again may help,
            as other readers of this process come to their end.
    """
    seconds = connect_seconds(settings)
    connection.pgconn.send_query(b"SELECT 1")
    result = _answer(connection.pgconn, seconds)
    if result is None:
        raise settings.failed(f"no session within {seconds:g} s; {NO_SESSION}", transient=True)
    if result.status == ExecStatus.FATAL_ERROR:
        raise error_from_result(result, encoding=connection.info.encoding)


def _asked(connection: psycopg.Connection[tuple[Any, ...]]) -> int:
    return int(connection.execute(PROCESS.encode()).fetchall()[0][0])


def _asked_briefly(client: PgConnection | None) -> int | None:
    """Return the server's process; None if there is no answer for as long as a look may take."""
    if client is None:
        return None
    client.pgconn.send_query(PROCESS.encode())
    result = _answer(client.pgconn, LOOK_SECONDS)
    value = result.get_value(0, 0) if result is not None and result.ntuples else None
    return None if value is None else int(value)


def _answer(connection: PGconn, seconds: float) -> PGresult | None:
    """Return the answer to a query that was sent; None if there is none in time."""
    until = time.monotonic() + seconds
    poll = select.poll()
    poll.register(connection.socket, select.POLLIN)
    while connection.is_busy():
        left = max(0.0, until - time.monotonic())
        if not poll.poll(None if left == math.inf else left * 1000):
            return None
        connection.consume_input()
    result = connection.get_result()
    while connection.get_result() is not None:
        pass
    return result


def waits_on(settings: ConnectionSettings) -> AbstractContextManager[None]:
    """Tell if a statement of the block waits for long; see `connecting.waiting`."""
    return watched(settings.address, partial(_blocked, settings))


def _blocked(settings: ConnectionSettings) -> list[str]:
    with closing(PgConnection.connect(conninfo(settings), autocommit=True)) as connection:
        connection.lent = not settings.facts.latest(OWN_SESSION, True)
        return [str(row[0]) for row in connection.execute(BLOCKED_SQL.encode()).fetchall()]


class PgConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that leaves a session which a pooler has lent it as it found it.

    PgBouncer's `server_reset_query` may be empty. A session that comes back in a transaction is
    ended by the pooler.
    """

    lent = False
    kept = True
    """Whether it may be lent again: one of a pooler only within a budget, as others may wait."""

    def close(self) -> None:
        """Close the connection; harmless if it is already closed."""
        if self.lent and self.info.transaction_status is TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                self.pgconn.send_query(AS_FOUND.encode())
                _answer(self.pgconn, LOOK_SECONDS)
        super().close()


class PostgresSession:
    """A connection in autocommit mode: transactions are opened and ended in SQL.

    Args:
        settings: the server's, for messages.
        raw: the connection, which `close` closes.
    """

    def __init__(
        self, settings: ConnectionSettings, raw: psycopg.Connection[tuple[Any, ...]]
    ) -> None:
        self._settings, self.raw = settings, raw
        self.failed = False
        """Whether a statement has failed."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result.

        Raises:
            StatementFailed: the server refused the statement.
        """
        with self._translated():
            return self.raw.execute(sql.encode()).fetchall()

    def execute(self, sql: str) -> int:
        """Run a statement; return the number of rows that it changed, or -1.

        Raises:
            StatementFailed: see `query`.
        """
        with self._translated():
            return self.raw.execute(sql.encode()).rowcount

    def copy_in(self, sql: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Run a COPY ... FROM STDIN, which reads the chunks; an error in these ends it.

        Returns:
            The number of rows that the server accepted, and the bytes sent.

        Raises:
            StatementFailed: see `query`.
        """
        sent = 0
        with self._translated(), self.raw.cursor() as cursor:
            with cursor.copy(sql.encode()) as copy:
                for chunk in chunks:
                    copy.write(chunk)
                    sent += len(chunk)
            return cursor.rowcount, sent

    @contextmanager
    def _translated(self) -> Iterator[None]:
        with waits_on(self._settings):
            try:
                yield
            except psycopg.Error as error:
                self.failed = True
                raise statement_failed(self._settings, error) from error

    def close(self) -> None:
        """Close the connection; harmless if it is already closed."""
        self.raw.close()
