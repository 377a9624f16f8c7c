"""Connections that stay open between small statements, each used by one thread at a time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Connection = TypeVar("Connection")

MOST_IDLE = 8
"""The most idle connections to keep for one server and login."""

IDLE_SECONDS = 60.0
"""A connection that was idle for longer is closed: servers and firewalls drop such ones, too."""

TRUSTED_SECONDS = 0.05
"""A connection that was idle for less is lent without a test: no server restarts within it."""


class ConnectionPool(Generic[Connection]):
    """The process's idle connections by their settings, for all threads.

    A connection is returned only by a block that ended without an error. The block has to leave the
    session as it was: no transaction, no lock, no changed setting.

    Args:
        answers: tests by a round trip whether a connection still works.
        closed: whether a borrower has closed it.
        close: closes a connection; never raises.
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
        """Lend an idle connection, or a new one.

        Args:
            settings: all that connections must have in common to be interchangeable.
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
        """Close all idle connections."""
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
            # the first has been idle for longest
            expired = sum(now - since > IDLE_SECONDS for since, _ in idle)
            surplus = max(expired, len(idle) - MOST_IDLE)
            dropped, idle[:surplus] = idle[:surplus], []
        for _, connection in dropped:
            self._close(connection)

    def _forget(self) -> None:
        """Make a forked child neither use nor close its parent's connections."""
        self._inherited.append(self._idle)
        self._idle, self._lock = {}, threading.Lock()
