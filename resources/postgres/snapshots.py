"""Exported PostgreSQL snapshots: one consistent state that many connections read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import psycopg

from resources.errors import PlacesLost, SnapshotLost
from resources.postgres.errors import snapshot_lost

logger = logging.getLogger(__name__)


class Snapshot(str):
    """The name of an exported snapshot, and a way to ask whether it still stands."""

    __slots__ = ("_connection", "_storage", "_stored")
    _connection: psycopg.Connection[Any]
    _storage: Callable[[], object]
    _stored: object

    @classmethod
    def of(
        cls, connection: psycopg.Connection[Any], storage: Callable[[], object] = lambda: None
    ) -> Snapshot:
        """Export the snapshot of the transaction that is open on `connection`.

        Args:
            connection: holds the snapshot.
            storage: finds what must not change while it stands, over another connection: this one
                may take the catalog for what it was.
        """
        row = connection.execute("SELECT pg_catalog.pg_export_snapshot()").fetchone()
        snapshot = cls(row[0] if row else "")
        snapshot._connection, snapshot._storage = connection, storage
        snapshot._stored = storage()
        return snapshot

    def check(self) -> None:
        """Ask the server, over the connection that holds the snapshot.

        Raises:
            SnapshotLost: that connection is gone, and the snapshot with it.
            PlacesLost: the table that is read by places was rewritten.
        """
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error as error:
            raise snapshot_lost(str(self)) from error
        if self._storage() != self._stored:
            raise PlacesLost(
                "the table was rewritten (VACUUM FULL, CLUSTER, TRUNCATE, ALTER TABLE) while its "
                "blocks were read; run it again"
            )


class SharedSnapshot:
    """Hands the same snapshot to all readers of a run, and a new one after it was lost.

    A lost snapshot cannot be had back: what is read afterwards is a later state of the database.
    That is said in the log. It loses no change, as long as fingerprints are not taken later than
    the rows that they stand for.

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
        """How many times the snapshot was lost and replaced."""

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
                except SnapshotLost as error:
                    if not self._renewed:
                        raise PlacesLost(
                            f"{error}; ranges of blocks have to be read under one: run it again"
                        ) from error
                    logger.warning("%s; what is read from now on is a later state", error)
                    self._release()
                    self.renewals += 1
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
