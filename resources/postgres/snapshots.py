"""Exported PostgreSQL snapshots: one consistent state that many connections read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import psycopg

from tableferry.resources.contract.snapshots import Snapshot
from tableferry.resources.errors import SourceMoved
from tableferry.resources.postgres.errors import snapshot_lost
from tableferry.resources.postgres.position import Position
from tableferry.resources.postgres.storage import Storage, moved


class ExportedSnapshot(Snapshot):
    """See `Snapshot`; a connection holds it."""

    __slots__ = ("_connection", "_now", "_position", "_then")
    _connection: psycopg.Connection[Any]
    _position: Position | None
    _then: Storage
    _now: Callable[[], Storage]

    @classmethod
    def of(
        cls,
        connection: psycopg.Connection[Any],
        then: Storage | None = None,
        now: Callable[[], Storage] = dict,
        where: Callable[[], Position | None] = lambda: None,
    ) -> Self:
        """Export the snapshot of the transaction that is open on `connection`.

        Args:
            connection: holds the snapshot.
            then: how the table that is read under it is stored, as the snapshot has it.
            now: asks how it is stored, outside of the snapshot.
            where: asks where the server is in its history.
        """
        row = connection.execute("SELECT pg_catalog.pg_export_snapshot()").fetchone()
        snapshot = cls(row[0] if row else "")
        snapshot._connection, snapshot._then, snapshot._now = connection, then or {}, now
        snapshot._position = where()
        return snapshot

    @property
    def position(self) -> str | None:
        """See `Snapshot.position`."""
        return str(self._position) if self._position else None

    def gone_back(self, before: str) -> str | None:
        """See `Snapshot.gone_back`."""
        return self._position.compared_with(Position.parse(before)) if self._position else None

    def check(self) -> None:
        """Ask over the connection that holds the snapshot, which is gone with it."""
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error as error:
            raise snapshot_lost(str(self)) from error
        self.require_unmoved()

    def require_unmoved(self) -> None:
        """See that the table is stored as it was: a reader may else have seen an empty table,
        another one, or rows that the snapshot does not have."""
        if changed := moved(self._then, self._now()):
            raise SourceMoved(
                f"{changed} was truncated, rewritten, altered or replaced while it was read, which "
                "no snapshot shields from"
            )
