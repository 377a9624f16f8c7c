"""The connections that this process may open to a source: never more than it has slots for.

All processes share the slots of a connection's budget. A process asks for them when it opens
connections, and gives them back when it closes these; idle connections are soon closed.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from tableferry.resources.connecting.guard import Pace, going_on
from tableferry.resources.connecting.waiting import LIMIT, limit
from tableferry.resources.contract.limits import Budget, Sharing, Slots, Unshared, unshared
from tableferry.resources.errors import InputError, TableferryError, describe
from tableferry.resources.words import counted

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

POLL_SECONDS = 0.2
"""Between two looks at whether another process has given back a slot."""

PATIENT_SECONDS = 0.5
"""How long a reader waits for a connection of its kind before an idle one of another is closed."""

LINGER_SECONDS = 2.0
"""How long a connection, or a slot, is kept that nobody uses."""

SETTLE_SECONDS = 0.2
"""How long a server may take to end the session of a connection that was closed."""

TICK_SECONDS = 0.5
"""Between two looks at what to give back, and at how the rate is shared."""

TOLD_SECONDS = 10.0
"""How long a reader waits before it says so."""

SET_CONNECTIONS = 4
"""The holder of a set's snapshot, what it asks the server, and a process that reads: a holder of
its own and a reader."""

MEGABYTE = 1_000_000


class Gate:
    """Lets this process open connections to one source within a budget.

    A snapshot's holder always leaves a slot for a reader: what is read under a snapshot never waits
    for another process. A reader never waits for a second connection while it has one.

    Args:
        connection: the name of the connection.
        budget: what all processes may use together.
    """

    def __init__(self, connection: str, budget: Budget) -> None:
        self.connection, self.budget = connection, budget
        self.sharing: Sharing = unshared
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._slots: Slots = Unshared()
        self._slots_of = 0
        """The slots of the budget for which these were made."""
        self._open = self._claimed = self._waiting = 0
        self._holders = self._readers = 0
        """The snapshots that are held, and how many of them this process reads under."""
        self._ending: list[float] = []
        """When the closed connections that still count will have ended on the server."""
        self._claiming = False
        self._queued = False
        """Whether a request for slots was not granted yet."""
        self._granted_at = 0.0
        self._wanted = False
        """Whether other processes wait for a slot."""
        self._part = 1.0
        """The part of the rate that this process may take."""
        self._surplus_since: float | None = None
        self._keeper: threading.Thread | None = None
        self._pace = Pace()
        self._pools: set[_Pool] = set()

    def acquire(self, reused: Callable[[], bool] = lambda: False) -> None:
        """Wait until one more connection may be opened; `release` when it is closed.

        Args:
            reused: takes an idle connection instead, if there is one.

        Raises:
            TableferryError: the reader should end, see `stop_waiting`, or has waited for as long as
                `waiting.limit` lets it.
        """
        started = time.monotonic()

        def take() -> None:
            self._open += 1

        def free() -> bool:
            # another kind of connection is in use: one of the wanted kind may be returned soon
            waited = time.monotonic() - started
            return (waited > PATIENT_SECONDS or not self._busy()) and self._close_idle()

        self._take(lambda: self._sessions() + 1, take, reused, free)

    def returned(self) -> None:
        """Note that a connection is idle now."""
        with self._changed:
            self._changed.notify_all()

    def release(self, *, ended: bool = False) -> None:
        """Note that a connection was closed.

        Args:
            ended: whether its session on the server is known to have ended.
        """
        with self._changed:
            self._ending.append(time.monotonic() + SETTLE_SECONDS * (not ended))
            self._changed.notify_all()

    @contextmanager
    def permit(self, *, ended: bool = False) -> Iterator[None]:
        """Hold the right to one connection, which is closed at the end; see `release`."""
        self.acquire()
        try:
            yield
        finally:
            self.release(ended=ended)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold a snapshot: its connection, and another one that reads under it, may be open.

        Raises:
            InputError: the budget is a single connection.
        """
        if not self.budget.has_snapshots:
            raise InputError(
                f"{self.connection} may have one connection only; a snapshot needs a second one, "
                "which reads under it"
            )
        with self._hold(1, 1):
            yield

    @contextmanager
    def holding_set(self) -> Iterator[None]:
        """Hold a snapshot under which other processes read: its connection may be open.

        One process does so at a time: with more, none might get the slots to read by.

        Raises:
            InputError: the budget leaves no connections for a process that reads.
        """
        if self.budget.slots < SET_CONNECTIONS:
            raise InputError(
                f"{self.connection} may have {counted(self.budget.slots, 'connection')}; to read "
                f"several tables under one snapshot takes {SET_CONNECTIONS}"
            )
        alone = gate(f"{self.connection}/set", Budget(1), self.sharing)
        with alone.permit(ended=True), self._hold(1, 0):
            yield

    @contextmanager
    def _hold(self, holders: int, readers: int) -> Iterator[None]:
        def take() -> None:
            self._holders += holders
            self._readers += readers

        def needed() -> int:
            one_reads = min(1, self._readers + readers)
            return max(self._holders + holders + one_reads, self._sessions())

        self._take(needed, take)
        try:
            yield
        finally:
            with self._changed:
                self._holders -= holders
                self._readers -= readers
                self._changed.notify_all()

    def keeps(self) -> bool:
        """Whether a connection that is returned may stay open for the next reader."""
        return not self._yields or self._claimed <= self._reserved

    @property
    def _yields(self) -> bool:
        """Whether other processes wait, and this one has had its turn."""
        return self._wanted and time.monotonic() - self._granted_at > LINGER_SECONDS

    @property
    def _reserved(self) -> int:
        """The slots that are kept as long as snapshots are held."""
        return self._holders + min(1, self._readers)

    def noticed(self, pool: _Pool) -> None:
        """Remember a pool that keeps idle connections of this gate."""
        with self._changed:
            self._pools.add(pool)

    def paced(self, items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[Item]:
        """Pass on what is read at the pace of the budget."""
        for item in items:
            self.keep_pace(size(item))
            yield item

    def keep_pace(self, size: int) -> None:
        """Wait for as long as bytes that were read should have taken."""
        if self.budget.rate is not None:
            rate = self.budget.rate * MEGABYTE * self._part
            self._pace.keep(size, rate, going_on(self.connection))

    def _pause(self) -> float:
        """Return how long to wait until a closed connection may have ended; under the lock."""
        until = min(self._ending, default=math.inf) - time.monotonic()
        return max(0.0, min(until, POLL_SECONDS))

    def _sessions(self) -> int:
        """Return how many sessions the server may have; called under the lock."""
        now = time.monotonic()
        self._open -= sum(until <= now for until in self._ending)
        self._ending = [until for until in self._ending if until > now]
        return self._open

    def _take(
        self,
        needed: Callable[[], int],
        take: Callable[[], None],
        reused: Callable[[], bool] = lambda: False,
        free: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wait for a number of slots.

        Args:
            needed: the number of slots that this process needs in all; called under the lock.
            take: called under the lock once there are so many.
            reused: see `acquire`.
            free: closes an idle connection, if that helps.
        """
        began = told = time.monotonic()
        most, require_going_on = limit(), going_on(self.connection)
        with self._changed:
            self._waiting += 1
        try:
            while not reused():
                with self._changed:
                    if needed() <= self._claimed:
                        take()
                        return
                if free():
                    continue
                require_going_on()
                if not self._claim(needed):
                    with self._changed:
                        if needed() > self._claimed:
                            self._changed.wait(self._pause())
                        if self._sessions():
                            # others of this process go on, and end
                            began = time.monotonic()
                    if time.monotonic() - began > most:
                        raise TableferryError(
                            f"{self.connection}: none of the {self.budget.slots} connections of "
                            f"its budget came free: given up after {most:g} s, as {LIMIT} says"
                        )
                    told = self._tell(told)
        finally:
            with self._changed:
                self._waiting -= 1
                last = not self._waiting and not self._claiming
            if last and self._queued:
                self._queued = False
                self._slots.withdraw()

    def _claim(self, needed: Callable[[], int]) -> bool:
        """Ask for the missing slots; one thread does so at a time."""
        with self._changed:
            missing = needed() - self._claimed
            if self._claiming or missing <= 0 or needed() > self.budget.slots:
                return False
            self._claiming = True
            number = self.budget.shared_slots
            unused = self._keeper is None and not self._queued
            fresh = not self._claimed and (unused or self._slots_of != number)
        granted = False
        try:
            if fresh:
                # a request for more slots than the budget had before would never be granted
                if self._queued:
                    self._slots.withdraw()
                self._slots, self._slots_of = self.sharing(self.connection, number), number
            slots, self._queued = self._slots, True
            granted = slots.request(missing)
            self._queued = not granted
            if granted and self.budget.rate is not None:
                self._part = _part(self._claimed + missing, slots.shared()[0])
                if self._part < 1:
                    # until the others have noticed, and read more slowly
                    self._pace.pause(2 * TICK_SECONDS)
        finally:
            with self._changed:
                self._claiming = False
                if granted:
                    self._claimed += missing
                    self._granted_at = time.monotonic()
                    if self._keeper is None:
                        self._keeper = threading.Thread(
                            target=self._keep, name="source slots", daemon=True
                        )
                        self._keeper.start()
                self._changed.notify_all()
        return granted

    def _tell(self, since: float) -> float:
        now = time.monotonic()
        if now - since < TOLD_SECONDS:
            return since
        logger.warning(
            "%s: waiting for one of its %d connections, which other readers use",
            self.connection,
            self.budget.slots,
        )
        return now

    def _busy(self) -> bool:
        """Whether a connection is read from now."""
        idle = sum(pool.idle(self) for pool in tuple(self._pools))
        return self._open - len(self._ending) - idle > self._holders

    def _close_idle(self) -> bool:
        return any(pool.close_idle(self, most=1) for pool in tuple(self._pools))

    def _keep(self) -> None:
        """Give back what nobody uses, until nothing is left."""
        while True:
            time.sleep(TICK_SECONDS)
            for pool in tuple(self._pools):
                pool.close_idle(self, idle_seconds=0.0 if not self.keeps() else LINGER_SECONDS)
            with self._changed:
                slots, surplus = self._slots, self._surplus()
                self._claimed -= surplus
                if not self._claimed and not self._claiming:
                    self._keeper, self._wanted, self._part = None, False, 1.0
            try:
                if surplus:
                    slots.release(surplus)
                if self._keeper is not threading.current_thread():
                    return
                total, self._wanted = slots.shared()
                self._part = _part(self._claimed, total)
            except Exception as error:
                # a closed instance: its slots are given back once this process has ended
                logger.debug("%s: %s", self.connection, describe(error))

    def _surplus(self) -> int:
        """Return how many slots have not been used for a while."""
        used = self._used()
        now = time.monotonic()
        if self._claimed <= used:
            self._surplus_since = None
        elif self._surplus_since is None:
            self._surplus_since = now
        if self._surplus_since is None:
            return 0
        patience = 0.0 if self._yields else LINGER_SECONDS
        return self._claimed - used if now - self._surplus_since >= patience else 0

    def close(self) -> None:
        """Close idle connections, and give back all slots that nobody uses."""
        for pool in tuple(self._pools):
            pool.close_idle(self)
        with self._changed:
            slots, surplus = self._slots, max(0, self._claimed - self._used())
            self._claimed -= surplus
        if surplus:
            with suppress(Exception):  # a closed instance, see `_keep`
                slots.release(surplus)

    def _used(self) -> int:
        return max(self._sessions(), self._reserved)


class _Pool(Protocol):
    """A pool that keeps idle connections, see `ConnectionPool`."""

    def close_idle(
        self, gate: Any, *, idle_seconds: float = 0.0, most: int | None = None
    ) -> int: ...

    def idle(self, gate: Any) -> int: ...


def _part(held: int, total: int) -> float:
    return held / total if total > held > 0 else 1.0


_gates: dict[str, Gate] = {}
_lock = threading.Lock()


def gate(connection: str, budget: Budget, sharing: Sharing | None = None) -> Gate:
    """Return the gate of a connection, which all threads of this process share."""
    with _lock:
        known = _gates.get(connection)
        if known is None:
            known = _gates[connection] = Gate(connection, budget)
        known.budget = budget
        if sharing is not None:
            known.sharing = sharing
        return known


@atexit.register
def close_gates() -> None:
    """Close connections that nobody uses, as a pooler's have to be put in order, and give back
    their slots."""
    for each in tuple(_gates.values()):
        each.close()


def _forget() -> None:
    """Make a forked child forget what its parent holds."""
    for each in _gates.values():
        each._reset()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forget)
