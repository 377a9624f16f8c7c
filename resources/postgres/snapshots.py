"""Exported PostgreSQL snapshots: one consistent state that many connections read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import psycopg

from tableferry.resources.errors import PlacesLost, SnapshotLost, SourceMoved
from tableferry.resources.postgres.errors import snapshot_lost
from tableferry.resources.postgres.position import Position
from tableferry.resources.postgres.storage import Storage, moved

logger = logging.getLogger(__name__)


class Snapshot(str):
    """The name of an exported snapshot, and ways to ask whether it may still be read."""

    __slots__ = ("_connection", "_now", "_then", "position")
    position: Position | None
    """Where in its cluster's history it is, or a moment later."""
    _connection: psycopg.Connection[Any]
    _then: Storage
    _now: Callable[[], Storage]

    @classmethod
    def of(
        cls,
        connection: psycopg.Connection[Any],
        then: Storage | None = None,
        now: Callable[[], Storage] = dict,
        where: Callable[[], Position | None] = lambda: None,
    ) -> Snapshot:
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
        snapshot.position = where()
        return snapshot

    def check(self) -> None:
        """Ask the server, over the connection that holds the snapshot.

        Raises:
            SnapshotLost: that connection is gone, and the snapshot with it.
            SourceMoved: see `require_unmoved`.
        """
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error as error:
            raise snapshot_lost(str(self)) from error
        self.require_unmoved()

    def require_unmoved(self) -> None:
        """Make sure that what was read under the snapshot until now is what it shows.

        Raises:
            SourceMoved: the table is stored otherwise now. A reader may have seen an empty table,
                another one, or rows that the snapshot does not have.
        """
        if changed := moved(self._then, self._now()):
            raise SourceMoved(
                f"{changed} was truncated, rewritten, altered or replaced while it was read, which "
                "no snapshot shields from"
            )


class SharedSnapshot:
    """Hands the same snapshot to all readers of a run, and a new one when it is of no use.

    A lost snapshot cannot be had back: what is read afterwards is a later state of the database.
    That is said in the log. It loses no change, as long as fingerprints are not taken later than
    the rows that they stand for. Where the table was stored otherwise meanwhile, nothing that was
    read and not yet checked by `Snapshot.require_unmoved` is of use.

    Args:
        take: takes a snapshot.
        renewed: whether there may be a new one; a table that is read by the places of its rows
            has to be read in one state.
    """

    def __init__(
        self, take: Callable[[], AbstractContextManager[Snapshot]], *, renewed: bool = True
    ) -> None:
        self._take, self._renewed = take, renewed
        self._lock = threading.Lock()
        self._held = ExitStack()
        self._snapshot: Snapshot | None = None
        self.renewals = 0
        """How many times the snapshot was replaced."""
        self.moves = 0
        """How many times because the table was stored otherwise."""

    def name(self) -> Snapshot:
        """The snapshot to read under now; may be called from any thread.

        Raises:
            ConnectionFailed: a new one is needed, and the server is not back.
            PlacesLost: a new one is needed, and of no use.
        """
        with self._lock:
            if self._snapshot is not None:
                try:
                    self._snapshot.check()
                except (SnapshotLost, SourceMoved) as error:
                    if not self._renewed:
                        raise PlacesLost(
                            f"{error}; ranges of blocks have to be read under one: run it again"
                        ) from error
                    logger.warning("%s; what is read from now on is a later state", error)
                    self._release()
                    self.renewals += 1
                    self.moves += isinstance(error, SourceMoved)
                else:
                    return self._snapshot
            self._snapshot = self._held.enter_context(self._take())
            return self._snapshot

    def close(self) -> None:
        """End the snapshot."""
        with self._lock:
            self._release()

    def _release(self) -> None:
        self._snapshot = None
        self._held.close()
