"""Connections that stay open between small statements, each lent to one borrower at a time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Connection = TypeVar("Connection")

MOST_IDLE = 8
"""Idle connections that are kept for one server and login."""

IDLE_SECONDS = 60.0
"""A connection that was idle for longer is closed, not lent: servers and firewalls drop it too."""

TRUSTED_SECONDS = 0.05
"""A connection that was idle for less is lent without being asked whether it still stands: no
server ends and is back within it."""


class ConnectionPool(Generic[Connection]):
    """Idle connections of this process by their settings, for all threads.

    A connection comes back only from a block that ended without an error. The block has to leave
    its session as it found it: no transaction, no lock, no changed setting.

    Args:
        answers: asks a connection whether it still stands.
        closed: whether a borrower has ended it, without asking.
        close: ends a connection; never raises.
    """

    def __init__(
        self,
        answers: Callable[[Connection], bool],
        closed: Callable[[Connection], bool],
        close: Callable[[Connection], None],
    ) -> None:
        self._answers, self._closed, self._close = answers, closed, close
        self._lock = threading.Lock()
        self._idle: dict[str, list[tuple[float, Connection]]] = {}
        self._inherited: list[object] = []
        os.register_at_fork(after_in_child=self._forget)

    @contextmanager
    def lent(self, settings: str, connect: Callable[[], Connection]) -> Iterator[Connection]:
        """Lend an idle connection, or else a new one.

        Args:
            settings: all that two connections must have in common to replace each other.
            connect: makes a new one.
        """
        connection = self._take(settings)
        if connection is None:
            connection = connect()
        try:
            yield connection
        except BaseException:
            self._close(connection)
            raise
        if not self._closed(connection):
            self._give(settings, connection)

    def close(self) -> None:
        """Close all that are idle."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for _, connection in connections:
                self._close(connection)

    def _take(self, settings: str) -> Connection | None:
        while True:
            with self._lock:
                idle = self._idle.get(settings)
                if not idle:
                    return None
                since, connection = idle.pop()
            seconds = time.monotonic() - since
            if seconds < TRUSTED_SECONDS:
                return connection
            if seconds < IDLE_SECONDS and self._answers(connection):
                return connection
            self._close(connection)

    def _give(self, settings: str, connection: Connection) -> None:
        now = time.monotonic()
        with self._lock:
            idle = self._idle.setdefault(settings, [])
            idle.append((now, connection))
            # the longest idle is the first
            late = sum(now - since > IDLE_SECONDS for since, _ in idle)
            late = max(late, len(idle) - MOST_IDLE)
            ended, idle[:late] = idle[:late], []
        for _, one in ended:
            self._close(one)

    def _forget(self) -> None:
        """A forked child must neither use nor close what its parent uses."""
        self._inherited.append(self._idle)
        self._idle, self._lock = {}, threading.Lock()
