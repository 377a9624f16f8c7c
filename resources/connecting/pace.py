"""The pace at which rows are read: how long to wait for the bytes that were just read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tableferry.resources.errors import TableferryError

CREDIT_SECONDS = 0.5
"""The time that the next bytes may make up for: receiving them takes some of it."""

SLICE_SECONDS = 0.2
"""The longest sleep, so that an interruption is noticed."""


class Pace:
    """Delays all readers of a process together, so that they stay below a rate.

    Whatever the rate was meanwhile, a stream of n bytes takes at least the time of n bytes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paid_until = -float("inf")

    def pause(self, seconds: float) -> None:
        """Have all readers wait before they take anything more."""
        with self._lock:
            self._paid_until = max(self._paid_until, time.monotonic() + seconds)

    def keep(self, size: int, rate: float, require_going_on: Callable[[], None]) -> None:
        """Wait for as long as these bytes should have taken.

        Args:
            size: the number of bytes.
            rate: bytes per second.
            require_going_on: raises an error if the reader should end.
        """
        with self._lock:
            now = time.monotonic()
            late = now - self._paid_until
            start = self._paid_until if late < CREDIT_SECONDS else now
            self._paid_until = until = start + size / rate
        while (rest := until - time.monotonic()) > 0:
            require_going_on()
            time.sleep(min(rest, SLICE_SECONDS))


_interruptions: list[float] = []
"""When `stop_waiting` was called."""


def stop_waiting() -> None:
    """Have every thread that waits at a gate, or reads at a pace, end with an error."""
    _interruptions.append(time.monotonic())


def going_on(connection: str) -> Callable[[], None]:
    """Return what raises an error if readers of a connection have been stopped meanwhile."""
    before = len(_interruptions)

    def require() -> None:
        if len(_interruptions) != before:
            raise TableferryError(f"{connection}: interrupted while it waited for its budget")

    return require
