"""Exported PostgreSQL snapshots: one consistent state that many connections read."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Any, Self

import psycopg

from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.contract.snapshots import Snapshot
from tableferry.resources.digest.same_rows import Ask
from tableferry.resources.errors import SourceMoved
from tableferry.resources.postgres.errors import snapshot_lost
from tableferry.resources.postgres.position import Position, position
from tableferry.resources.postgres.storage import StoredRelations, moved, storage
from tableferry.resources.tables import TableRef


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
