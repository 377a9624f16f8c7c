"""Exported PostgreSQL snapshots that many connections read; positions in a cluster's history."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from dataclasses import dataclass, replace
from typing import Any, Self

import psycopg

from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.contract.snapshots import Snapshot
from tableferry.resources.digest.same_rows import Ask
from tableferry.resources.errors import SourceMoved, StatementFailed
from tableferry.resources.postgres.errors import snapshot_lost
from tableferry.resources.postgres.storage import StoredRelations, moved, storage
from tableferry.resources.tables import TableRef

POSITION_SQL = """
SELECT (SELECT system_identifier FROM pg_control_system())::text,
    CASE WHEN pg_is_in_recovery() THEN greatest((SELECT timeline_id FROM pg_control_checkpoint()),
        (SELECT min_recovery_end_timeline FROM pg_control_recovery()))
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int END,
    (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
    ELSE pg_current_wal_insert_lsn() END - '0/0')::text
"""
"""A standby knows a new timeline only after it has replayed the switch."""


@dataclass(frozen=True)
class Position:
    """A point in a cluster's history. A promoted standby begins a new timeline."""

    cluster: str
    timeline: int
    lsn: int

    def __str__(self) -> str:
        return f"{self.cluster}/{self.timeline}/{self.lsn:X}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`."""
        cluster, timeline, lsn = text.split("/")
        return cls(cluster, int(timeline), int(lsn, 16))

    @property
    def history(self) -> str:
        """The cluster and timeline in eight characters. Within one history, equal row versions and
        watermarks mean equal rows."""
        name = f"{self.cluster}/{self.timeline}".encode()
        return base64.urlsafe_b64encode(hashlib.blake2b(name, digest_size=6).digest()).decode()

    def compared_with(self, before: Position) -> str | None:
        """Why the source may lack what was read at `before`; None if it has only advanced."""
        if self.cluster != before.cluster:
            return (
                f"it is the cluster {self.cluster}, and what was committed last was read from "
                f"{before.cluster}"
            )
        if self.timeline != before.timeline:
            return (
                f"it is on timeline {self.timeline}, and what was committed last was read from "
                f"timeline {before.timeline}: a standby was promoted, or a backup restored, and "
                "changes may be missing"
            )
        if self.lsn < before.lsn:
            return (
                f"it is at {_lsn(self.lsn)}, and what was committed last was read at "
                f"{_lsn(before.lsn)}: a standby that is {before.lsn - self.lsn:,} bytes behind"
            )
        return None


def position(ask: Ask) -> Position | None:
    """The server's position now; None if the login may not read it."""
    try:
        ((cluster, timeline, lsn),) = ask(POSITION_SQL)
    except StatementFailed as error:
        if error.transient:
            raise
        return None
    return Position(str(cluster), int(timeline), int(lsn))


def _lsn(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def node_of(settings: ConnectionSettings, connection: psycopg.Connection[Any]) -> str:
    """Return what a snapshot's name says of the node that has it.

    Several hosts, or a host name whose address changes, may lead each connection to another node.
    That one does not know the snapshot, or knows another one by this name.

    Returns:
        The node of the connection; nothing if the settings lead to a single one.
    """
    info = connection.info
    if len(settings.hosts) == 1 and (_is_one_node(settings.host) or not info.hostaddr):
        return ""
    return f"@{info.host},{info.hostaddr},{info.port}"


def at_node(settings: ConnectionSettings, snapshot: str) -> ConnectionSettings:
    """Return the settings that lead to the node that has a snapshot; see `node_of`."""
    _, named, node = snapshot.partition("@")
    if not named:
        return settings
    host, address, port = node.rsplit(",", 2)
    options = {**settings.options, "hostaddr": address}
    return replace(settings, host=host, port=int(port), more_hosts=(), options=options)


def _is_one_node(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.startswith("/")
    return True


class ExportedSnapshot(Snapshot):
    """See `Snapshot`; a connection holds it."""

    __slots__ = ("_ask", "_connection", "_position", "_table", "_then")
    _connection: psycopg.Connection[Any]
    _table: TableRef | None
    _ask: Ask
    _then: StoredRelations
    _position: Position | None

    @classmethod
    def of(
        cls,
        connection: psycopg.Connection[Any],
        table: TableRef | None,
        ask: Ask,
        at: str | None = None,
        node: str = "",
    ) -> Self:
        """Export the snapshot of the transaction that is open on a connection.

        Args:
            connection: holds the snapshot.
            table: the table that is read under it.
            ask: runs a query on the same node, outside of the snapshot.
            at: its position, if that is known already.
            node: see `node_of`.
        """
        then: StoredRelations = {}
        if table is not None:
            # the connection sees the catalog as of the snapshot
            then = storage(lambda sql: connection.execute(sql.encode()).fetchall(), table)
        row = connection.execute("SELECT pg_catalog.pg_export_snapshot()").fetchone()
        snapshot = cls(f"{row[0] if row else ''}{node}")
        snapshot._connection, snapshot._table, snapshot._ask = connection, table, ask
        snapshot._then = then
        if at is not None:
            snapshot._position = Position.parse(at)
        else:
            snapshot._position = position(ask) if table else None
        return snapshot

    @property
    def position(self) -> str | None:
        """See `Snapshot.position`."""
        return str(self._position) if self._position else None

    def gone_back(self, before: str) -> str | None:
        """See `Snapshot.gone_back`."""
        return self._position.compared_with(Position.parse(before)) if self._position else None

    def check(self) -> None:
        """See `Snapshot.check`. The snapshot ends with its connection."""
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error as error:
            raise snapshot_lost(str(self)) from error
        self.require_source_unchanged()

    def require_source_unchanged(self) -> None:
        """Require that the table is stored as it was: otherwise a reader may have seen an empty
        table, another one, or rows that the snapshot does not have."""
        if self._table and (changed := moved(self._then, storage(self._ask, self._table))):
            raise SourceMoved(
                f"{changed} was truncated, rewritten, altered or replaced while it was read, which "
                "no snapshot shields from"
            )
