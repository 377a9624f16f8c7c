"""What reading may do to a source: how much of it at once, how long, how old, and when to wait."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tableferry.resources.errors import InputError
from tableferry.resources.words import counted

Value = float | str | None
"""A bound, a probe, or None for no bound."""

DEFAULTS: Mapping[str, Value] = {
    "longest_statement": 3.0,
    "oldest_snapshot": 900.0,
    "parallel_workers": 1.0,
    "longest_wait": 1800.0,
}
"""The limits that hold unless others are declared. Statements of three seconds are below what most
servers log as slow. Snapshots of a quarter of an hour are below what monitors of old transactions
warn of. With one worker each, statements keep a server of two cores as busy as with two, and others
wait for a core half as long. What else goes on there is to be bounded by somebody who knows the
server: a guess of ours would stop
runs."""

SIGNALS = ("active_sessions", "replica_lag", "oldest_xmin", "probe")
"""What readers wait for while it is above its bound."""

DURATIONS = ("longest_statement", "oldest_snapshot", "replica_lag", "longest_wait")
COUNTS = ("active_sessions", "oldest_xmin", "parallel_workers")
NAMES = (*DURATIONS, *COUNTS, "probe", "probe_above")

LEAST: Mapping[str, float] = {
    "longest_statement": 0.1,
    "oldest_snapshot": 1,
    "longest_wait": 1,
    "parallel_workers": 0,
}
"""Shorter durations, in seconds, would have a run do nothing but begin anew."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")
_SECONDS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class SourceLimits:
    """What holds for one source. Durations are in seconds; None is no bound."""

    longest_statement: float | None
    oldest_snapshot: float | None
    parallel_workers: int | None
    longest_wait: float
    above: Mapping[str, float] = field(default_factory=dict)
    """The bounds of the signals that are looked at."""
    probe: str = ""
    """The query of the signal `probe`."""
    declared: frozenset[str] = frozenset()
    """The names of the limits that are not the defaults."""

    @classmethod
    def of(cls, *declared: Mapping[str, Value]) -> SourceLimits:
        """Return the strictest of several declarations; the defaults, where there is none.

        Args:
            declared: by name, as `read` returns them. The first that has a probe gives it.
        """
        values = dict(DEFAULTS)
        for name in {name for each in declared for name in each}:
            given = [each[name] for each in declared if name in each]
            if name.startswith("probe"):
                values[name] = given[0]
            else:
                bounds = [bound for bound in given if isinstance(bound, float)]
                values[name] = min(bounds, default=None)
        above = {name: values.get(name) for name in SIGNALS[:-1]}
        above["probe"] = values.get("probe_above")
        statement, snapshot = values["longest_statement"], values["oldest_snapshot"]
        workers, wait = values["parallel_workers"], values["longest_wait"]
        assert not isinstance(statement, str) and not isinstance(snapshot, str)
        return cls(
            statement,
            snapshot,
            int(workers) if isinstance(workers, float) else None,
            wait if isinstance(wait, float) else math.inf,
            {name: bound for name, bound in above.items() if isinstance(bound, float)},
            str(values.get("probe") or ""),
            frozenset(name for each in declared for name in each),
        )


def read(name: str, value: object) -> Value:
    """Read the value of one limit.

    Args:
        name: one of `NAMES`.
        value: a number, of seconds where it is a duration, or a text such as `3s`, `15m` or `none`.

    Raises:
        ValueError: it is no such value; says what it should be.
    """
    text = str(value).strip()
    if name == "probe":
        if not text or value is None:
            raise ValueError("should be a query that returns one number")
        return text.rstrip(";")
    if (value is None or text == "none") and name not in ("longest_wait", "probe_above"):
        return None
    number = None if isinstance(value, bool) else _number(name, text)
    least = LEAST.get(name, 1.0 if name in COUNTS else 0.001)
    if number is None or (number < least and name != "probe_above"):
        expected = f"a whole number of at least {least:g}, or none; it is {text!r}"
        if name in DURATIONS:
            none = "" if name == "longest_wait" else ", or none"
            expected = f"a duration of at least {least:g} s, e.g. 3s, 15m{none}; it is {text!r}"
        elif name == "probe_above":
            expected = f"a number; it is {text!r}"
        raise ValueError(f"should be {expected}")
    return number


def _number(name: str, text: str) -> float | None:
    if name in DURATIONS:
        match = _DURATION.fullmatch(text)
        number = float(match[1]) * _SECONDS[match[2]] if match else math.inf
    else:
        try:
            number = float(int(text) if name in COUNTS else float(text))
        except (ValueError, OverflowError):
            return None
    return number if math.isfinite(number) else None


def require_together(names: Mapping[str, object]) -> None:
    """Require a probe to have a bound, and the reverse.

    Raises:
        ValueError: one of them is missing.
    """
    if ("probe" in names) != ("probe_above" in names):
        raise ValueError(
            "probe and probe_above go together: the query, and the bound of its number"
        )


def parse(text: str, named: str) -> dict[str, Value]:
    """Read the limits of a connection, e.g. `longest_statement=2s; active_sessions=50`.

    Args:
        text: pairs separated by semicolons.
        named: what it was given as, for the errors.

    Raises:
        InputError: names what it was given as, the limit and its value.
    """
    values: dict[str, Value] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, equals, value = (each.strip() for each in part.partition("="))
        if name not in NAMES or not equals or name in values:
            raise InputError(
                f"{named} should be name=value pairs, separated by semicolons, of each of "
                f"{', '.join(NAMES)} at most one; {part!r} is not"
            )
        try:
            values[name] = read(name, value)
        except ValueError as error:
            raise InputError(f"{named}: {name} {error}") from None
    try:
        require_together(values)
    except ValueError as error:
        raise InputError(f"{named}: {error}") from None
    return values


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
