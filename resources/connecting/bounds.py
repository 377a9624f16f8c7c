"""Bounds of what a thread asks of servers: until when, whether it waits for one that is away, and
whether it may write."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from tableferry.resources.errors import StatementFailed, TableferryError


@dataclass(frozen=True)
class _Bounds:
    until: float = math.inf
    """When all is ended, by `time.monotonic`."""
    seconds: float = math.inf
    """How long a statement may take."""
    waits: bool = True
    writes: bool = True


_FREE = _Bounds()
_bounds: ContextVar[_Bounds] = ContextVar("bounds", default=_FREE)


class TooSlow(TableferryError):
    """The work took longer than it may; its statement was ended."""


@contextmanager
def bounded(until: float = math.inf) -> Iterator[None]:
    """Wait in this thread's block for no server that is away, and end its statements at a moment.

    It is for work that nobody waits for afterwards, or that comes again, as a tick of Dagster's,
    and for who asks whether a server is there.

    Raises:
        TooSlow: the moment has passed before the block has ended.
    """
    token = _bounds.set(_Bounds(until, waits=False))
    try:
        yield
    except TableferryError as error:
        if passed():
            raise TooSlow(
                "its statements take longer than a tick may, and were ended; a run has no limit"
            ) from error
        raise
    finally:
        _bounds.reset(token)


@contextmanager
def only_reading(seconds: float) -> Iterator[None]:
    """Have the server refuse, or take back, what a user's query writes, and end it after a time.

    Raises:
        TooSlow: the query took longer.
    """
    began = time.monotonic()
    token = _bounds.set(replace(_bounds.get(), seconds=seconds, writes=False))
    try:
        yield
    except StatementFailed as error:
        if time.monotonic() - began >= seconds:
            raise TooSlow(f"it has not answered within {seconds:g} s: {error}") from error
        raise
    finally:
        _bounds.reset(token)


def passed(within: float = 0.0) -> bool:
    """Whether the block has to end, now or within some seconds."""
    return time.monotonic() + within >= _bounds.get().until


def seconds_left() -> int | None:
    """Return the seconds that a statement may take, at least 1; None without a bound.

    Raises:
        TooSlow: there are none left.
    """
    if passed():
        raise TooSlow("there is no time left")
    bounds = _bounds.get()
    seconds = min(bounds.until - time.monotonic(), bounds.seconds)
    return None if seconds == math.inf else max(1, math.ceil(seconds))


def may_wait() -> bool:
    """Whether a server that is away is waited for."""
    return _bounds.get().waits


def may_write() -> bool:
    """Whether statements may write."""
    return _bounds.get().writes
