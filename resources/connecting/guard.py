"""Slows readers of a source down: while something there is above its bound, and to a pace."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from tableferry.resources.connecting.waiting import TooSlow, only_reading
from tableferry.resources.contract.limits import SourceLimits
from tableferry.resources.errors import ConnectionFailed, InputError, TableferryError, describe

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


logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""How long what was seen holds."""

ANSWER_SECONDS = 10.0
"""How long a source may take to tell a signal; one that it does not tell in time is no lower."""

TOLD_SECONDS = 30.0
"""Between two messages of those that wait."""

Query = Callable[[str], list[tuple[Any, ...]]]
Waiting = Callable[[str], None]
"""Hears that a reader waits, by a sentence or ''."""


def unheard(sentence: str) -> None:
    """Hear nothing."""


class SourceBusy(TableferryError):
    """A signal of the source stayed above its bound for the longest wait."""


class BusyWait:
    """Looks at the signals of one source for all threads of this process.

    Args:
        connection: the name of the connection.
    """

    def __init__(self, connection: str) -> None:
        self.connection = connection
        self._looking, self._telling = threading.Lock(), threading.Lock()
        self._looked = self._told = -float("inf")
        self._above: tuple[str, str] | None = None
        """The signal that is above its bound, and a sentence that says so."""
        self._since = 0.0
        """When one of them was first seen above its bound, if one is."""

    def wait(
        self,
        limits: SourceLimits,
        signals: Mapping[str, str],
        query: Query,
        waiting: Waiting = unheard,
    ) -> dict[str, float]:
        """Wait until no signal is above its bound.

        Args:
            limits: the bounds.
            signals: the queries of the system's signals, by their names.
            query: asks the source; never called where the caller holds its last connection.
            waiting: called before each pause, with a sentence now and then.

        Returns:
            The seconds that were waited, by the signal that was waited for.

        Raises:
            SourceBusy: it took longer than the longest wait.
            InputError: a signal cannot be read, or is no number.
        """
        waited: dict[str, float] = {}
        require_going_on = going_on(self.connection)
        while limits.above and (above := self._look(limits, signals, query)):
            name, sentence = above
            seconds = time.monotonic() - self._since
            if seconds >= limits.longest_wait:
                raise SourceBusy(
                    f"{self.connection}: {sentence}: given up after {seconds:.0f} s, as "
                    "longest_wait of its source_limits says"
                )
            waiting(self._told_now(f"waiting as {sentence}", seconds))
            began = time.monotonic()
            until = began + min(LOOK_SECONDS, limits.longest_wait - seconds)
            while (rest := until - time.monotonic()) > 0:
                require_going_on()
                time.sleep(min(rest, SLICE_SECONDS))
            waited[name] = waited.get(name, 0.0) + time.monotonic() - began
        return waited

    def _look(
        self, limits: SourceLimits, signals: Mapping[str, str], query: Query
    ) -> tuple[str, str] | None:
        require_going_on = going_on(self.connection)
        while not self._looking.acquire(timeout=SLICE_SECONDS):
            require_going_on()
        try:
            age = time.monotonic() - self._looked
            if age < LOOK_SECONDS:
                return self._above
            # of what was seen long ago, nobody has waited for the end
            before, self._above = self._above if age < 3 * LOOK_SECONDS else None, None
            seconds = min(ANSWER_SECONDS, limits.longest_wait)
            for name, bound in limits.above.items():
                sql = signals.get(name, limits.probe)
                if (said := self._says(name, sql, bound, query, seconds)) is not None:
                    self._above = name, said
                    break
            self._looked = time.monotonic()
            if before is None:
                self._since = self._looked
            return self._above
        finally:
            self._looking.release()

    def _says(self, name: str, sql: str, bound: float, query: Query, seconds: float) -> str | None:
        """Say that a signal is above its bound, or that the source does not tell in time."""
        subject = f"{self.connection}: {name} of its source_limits"
        try:
            with only_reading(seconds):
                rows = query(sql)
        except TooSlow:
            return f"{name} was not told within {seconds:g} s"
        except TableferryError as error:
            if isinstance(error, ConnectionFailed) or getattr(error, "transient", False):
                raise
            raise InputError(f"{subject} cannot be read: {describe(error)}") from error
        value: Any = rows[0][0] if len(rows) == 1 and len(rows[0]) == 1 else rows
        number = not isinstance(value, bool) and isinstance(value, int | float | Decimal)
        if not number or value != value:
            hint = (
                ""
                if name == "probe"
                else " (the login should see the sessions of others: GRANT pg_read_all_stats)"
            )
            shown = "NULL" if value is None else repr(value)[:60]
            raise InputError(f"{subject} should be one number; it is {shown}{hint}")
        return f"{name} is {value:g}, above its bound of {bound:g}" if value > bound else None

    def _told_now(self, sentence: str, seconds: float) -> str:
        """Log a sentence and return it, unless one was told a moment ago."""
        with self._telling:
            if time.monotonic() - self._told < TOLD_SECONDS:
                return ""
            self._told = time.monotonic()
        logger.warning("%s: %s, for %.0f s by now", self.connection, sentence, seconds)
        return sentence


_guards: dict[tuple[str, str], BusyWait] = {}


def guard(connection: str, limits: SourceLimits) -> BusyWait:
    """Return the guard of a connection by some limits, which all threads of this process share."""
    signals = f"{limits.probe} {sorted(limits.above.items())} {limits.longest_wait}"
    return _guards.setdefault((connection, signals), BusyWait(connection))


os.register_at_fork(after_in_child=_guards.clear)
