"""Snapshots: a consistent state of a source that all readers of a run share."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from tableferry.resources.errors import PlacesLost, SetLost, SnapshotLost, SourceMoved

logger = logging.getLogger(__name__)


class Snapshot(str):
    """The name of a snapshot, with checks of its validity."""

    __slots__ = ()

    @property
    def position(self) -> str | None:
        """Its place in the server's history, or a later one; None if the server has none."""
        return None

    def gone_back(self, before: str) -> str | None:
        """Say how a server has lost the position at which rows were committed; None if it has not.

        Args:
            before: the position.
        """
        return None

    def check(self) -> None:
        """Make sure that the snapshot can still be read.

        Raises:
            SnapshotLost: the snapshot is gone.
            SourceMoved: see `require_source_unchanged`.
        """

    def require_source_unchanged(self) -> None:
        """Make sure that all reads until now have seen the state of the snapshot.

        Raises:
            SourceMoved: they may not have.
        """


@dataclass(frozen=True)
class HeldSnapshot:
    """A snapshot that one connection holds, and that others join by its name."""

    name: str
    state: str | None = None
    """Names the state in which a set of tables is read; None for a single run's snapshot, after
    whose loss the run goes on in a later state."""
    position: str | None = None
    """See `Snapshot.position`."""


@dataclass(frozen=True)
class SetSnapshot:
    """The one state in which all tables of a set are read, for as long as it is held."""

    held: HeldSnapshot
    check: Callable[[], None]
    """Raises `SnapshotLost` if nobody can join it any more."""


class SharedSnapshot:
    """Shares a snapshot among all readers of a run, and replaces it when it is lost.

    A new snapshot is a later state of the database, and logged as such. No change is missed as long
    as fingerprints are not read later than the rows that they describe. If the table was rewritten
    meanwhile, whatever was read and not checked by `Snapshot.require_source_unchanged` is invalid.

    Args:
        take: takes a snapshot.
        renewed: whether it may be replaced; a table that is read by the places of its rows must
            be read in a single state.
        state: the state in which a set of tables is read, if it is one: `take` then joins the
            snapshot of that state whenever it is called.
    """

    def __init__(
        self,
        take: Callable[[], AbstractContextManager[Snapshot]],
        *,
        renewed: bool = True,
        state: str | None = None,
    ) -> None:
        self._take, self._renewed = take, renewed
        self.state = state
        """The state in which a set of tables is read, if it is one."""
        self._lock = threading.Lock()
        self._held = ExitStack()
        self._snapshot: Snapshot | None = None
        self.losses = 0
        """How many times the snapshot was lost, or not that of the table any more."""
        self.moves = 0
        """How many of these times the table had been rewritten."""
        self._taken = 0.0

    @property
    def age(self) -> float:
        """For how many seconds the present snapshot has been held; 0 if none is."""
        return time.monotonic() - self._taken if self._snapshot is not None else 0.0

    def renew(self) -> None:
        """End the snapshot, under which nobody reads: the next `name` takes a later one."""
        with self._lock:
            if self._snapshot is not None:
                self._release()

    def name(self) -> Snapshot:
        """Return the snapshot to read now; any thread may call it.

        Raises:
            ConnectionFailed: a new one is needed, and the server cannot be reached.
            PlacesLost: a new one is needed, and must not be taken.
            SetLost: the table cannot be read any more in the state of its set.
        """
        with self._lock:
            if self._snapshot is not None:
                try:
                    self._snapshot.check()
                except (SnapshotLost, SourceMoved) as error:
                    if self.state is not None:
                        if isinstance(error, SourceMoved):
                            raise self._set_lost(error) from error
                        self._release()
                        return self._join()
                    if not self._renewed:
                        raise PlacesLost(
                            f"{error}; ranges of blocks have to be read under one: run it again"
                        ) from error
                    logger.warning("%s; what is read from now on is a later state", error)
                    self._release()
                    self.losses += 1
                    self.moves += isinstance(error, SourceMoved)
                else:
                    return self._snapshot
            return self._join()

    def close(self) -> None:
        """End the snapshot."""
        with self._lock:
            self._release()

    def _join(self) -> Snapshot:
        self._taken = time.monotonic()
        try:
            self._snapshot = self._held.enter_context(self._take())
        except SnapshotLost as error:
            if self.state is None:
                raise
            raise self._set_lost(error) from error
        return self._snapshot

    def _set_lost(self, error: Exception) -> SetLost:
        return SetLost(
            f"{error}; it cannot be read as of snapshot {self.state}, as the other tables of the "
            "set are: run the set again"
        )

    def _release(self) -> None:
        self._snapshot = None
        self._held.close()
