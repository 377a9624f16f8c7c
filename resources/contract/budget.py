"""What reading from a connection may cost its server: connections, and megabytes per second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tableferry.resources.words import counted

USUAL_CONNECTIONS = 64
"""The most connections where only their rate is bounded: those that share it have to be known."""


@dataclass(frozen=True)
class Budget:
    """The bounds for all that reads from one connection, over all runs."""

    connections: int | None = None
    rate: float | None = None
    """Megabytes (10^6 bytes) per second."""
    lent: int | None = None
    """How many connections a small pooler between lends to this process."""

    @property
    def shared_slots(self) -> int:
        """The number of connections that all processes may have open at a time."""
        return self.connections or USUAL_CONNECTIONS

    @property
    def slots(self) -> int:
        """The number of connections that this process may have open at a time."""
        return min(self.shared_slots, self.lent or self.shared_slots)

    @property
    def of_pooler(self) -> bool:
        """Whether a pooler lends fewer connections than are declared."""
        return self.slots < self.shared_slots

    @property
    def has_snapshots(self) -> bool:
        """Whether one connection can hold a snapshot while another reads under it."""
        return self.slots > 1

    @property
    def rule(self) -> str:
        """A sentence that says who reads within it."""
        if self.of_pooler:
            alone = "" if self.has_snapshots else ", and are read each in a state of its own"
            pool = counted(self.slots, "connection")
            declared = f"; all runs together read by at most {self}" if str(self) else ""
            return f"a pooler between lends {pool}, so that ranges take turns{alone}{declared}"
        return f"all runs together read by at most {self}"

    def __str__(self) -> str:
        parts = []
        if self.connections is not None:
            parts.append(counted(self.connections, "connection"))
        if self.rate is not None:
            parts.append(f"{self.rate:g} MB/s")
        return " and ".join(parts)


class Slots(Protocol):
    """The slots of a connection's budget, which processes share."""

    def request(self, count: int) -> bool:
        """Ask for more slots: all of them, or none yet; the request stays in the queue."""

    def withdraw(self) -> None:
        """Leave the queue."""

    def release(self, count: int) -> None:
        """Give slots back."""

    def shared(self) -> tuple[int, bool]:
        """Return how many slots all processes hold, and whether others wait for one."""


Sharing = Callable[[str, int], Slots]
"""Gives the slots of a connection, by its name and their number."""


class Unshared:
    """Slots of this process alone: where there is no Dagster instance to share them by."""

    def request(self, count: int) -> bool:
        """See `Slots.request`."""
        return True

    def withdraw(self) -> None:
        """See `Slots.withdraw`."""

    def release(self, count: int) -> None:
        """See `Slots.release`."""

    def shared(self) -> tuple[int, bool]:
        """See `Slots.shared`."""
        return 0, False


def unshared(connection: str, number: int) -> Slots:
    """Share a budget among the threads of this process only."""
    return Unshared()
