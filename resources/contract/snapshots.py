"""Snapshots: one consistent state of a source that all readers of a run share."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from tableferry.resources.errors import PlacesLost, SnapshotLost, SourceMoved

logger = logging.getLogger(__name__)


class Snapshot(str):
    """The name of a snapshot, and ways to ask whether it may still be read."""

    __slots__ = ()

    @property
    def position(self) -> str | None:
        """Where in its server's history it is, or a moment later, if the server tells."""
        return None

    def gone_back(self, before: str) -> str | None:
        """What to say of a server that was at the position `before` when its rows were committed;
        None if it has only gone on since."""
        return None

    def check(self) -> None:
        """Ask the server.

        Raises:
            SnapshotLost: the snapshot is gone.
            SourceMoved: see `require_unmoved`.
        """

    def require_unmoved(self) -> None:
        """Make sure that what was read under the snapshot until now is what it shows.

        Raises:
            SourceMoved: it may not be.
        """


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
