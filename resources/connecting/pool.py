"""Connections that stay open between small statements, each used by one thread at a time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from tableferry.resources.connecting.gate import Gate

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
        close: closes a connection; never raises. Returns True if its session has ended on the
            server, too.
    """

    def __init__(
        self,
        answers: Callable[[Connection], bool],
        closed: Callable[[Connection], bool],
        close: Callable[[Connection], object],
    ) -> None:
        self._answers, self._closed, self._close = answers, closed, close
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, Gate | None], list[tuple[float, Connection]]] = {}
        self._inherited: list[object] = []
        os.register_at_fork(after_in_child=self._forget)

    @contextmanager
    def lent(
        self, settings: str, connect: Callable[[], Connection], gate: Gate | None = None
    ) -> Iterator[Connection]:
        """Lend an idle connection, or a new one.

        Args:
            settings: all that connections must have in common to be interchangeable.
            connect: makes a new one.
            gate: lets it be opened, and counts it until it is closed.
        """
        key = settings, gate
        connection = self._take(key)
        if connection is None:
            connection = connect() if gate is None else self._let_in(key, connect, gate)
        try:
            yield connection
        except BaseException:
            self._end(connection, gate)
            raise
        if self._closed(connection) or (gate is not None and not gate.keeps()):
            self._end(connection, gate)
        else:
            self._give(key, connection)

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for (_, gate), connections in idle.items():
            for _, connection in connections:
                self._end(connection, gate)

    def close_idle(
        self, gate: Gate | None, *, idle_seconds: float = 0.0, most: int | None = None
    ) -> int:
        """Close connections of a gate that have been idle for so long, and return their number.

        Args:
            gate: the gate.
            idle_seconds: for how long.
            most: the most connections to close; all of them, if not given.
        """
        before = time.monotonic() - idle_seconds
        expired: list[Connection] = []
        with self._lock:
            for (_, owner), idle in self._idle.items():
                while owner is gate and idle and idle[0][0] <= before:
                    if most is not None and len(expired) >= most:
                        break
                    expired.append(idle.pop(0)[1])
        for connection in expired:
            self._end(connection, gate)
        return len(expired)

    def idle(self, gate: Gate) -> int:
        """Return how many connections of a gate are idle."""
        with self._lock:
            return sum(len(idle) for (_, owner), idle in self._idle.items() if owner is gate)

    def _let_in(
        self, key: tuple[str, Gate | None], connect: Callable[[], Connection], gate: Gate
    ) -> Connection:
        """Return a new connection once there may be one more, or one that others return first."""
        taken: list[Connection] = []

        def reused() -> bool:
            connection = self._take(key)
            taken.extend(() if connection is None else (connection,))
            return bool(taken)

        gate.noticed(self)
        gate.acquire(reused)
        if taken:
            return taken[0]
        try:
            return connect()
        except BaseException:
            gate.release()
            raise

    def _end(self, connection: Connection, gate: Gate | None) -> None:
        ended = self._close(connection) is True
        if gate is not None:
            gate.release(ended=ended)

    def _take(self, key: tuple[str, Gate | None]) -> Connection | None:
        while True:
            with self._lock:
                idle = self._idle.get(key)
                if not idle:
                    return None
                since, connection = idle.pop()
            seconds = time.monotonic() - since
            if seconds < TRUSTED_SECONDS:
                return connection
            if seconds < IDLE_SECONDS and self._answers(connection):
                return connection
            self._end(connection, key[1])

    def _give(self, key: tuple[str, Gate | None], connection: Connection) -> None:
        now = time.monotonic()
        with self._lock:
            idle = self._idle.setdefault(key, [])
            idle.append((now, connection))
            # the first has been idle for longest
            expired = sum(now - since > IDLE_SECONDS for since, _ in idle)
            surplus = max(expired, len(idle) - MOST_IDLE)
            dropped, idle[:surplus] = idle[:surplus], []
        for _, connection in dropped:
            self._end(connection, key[1])
        if key[1] is not None:
            key[1].returned()

    def _forget(self) -> None:
        """Make a forked child neither use nor close its parent's connections."""
        self._inherited.append(self._idle)
        self._idle, self._lock = {}, threading.Lock()
