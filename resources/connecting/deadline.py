"""A bound for work that nobody waits for any longer afterwards, as that of a tick of Dagster's.

Statements for small results are ended by their server when it has passed, and so are retries.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tableferry.resources.errors import TableferryError

_until: ContextVar[float | None] = ContextVar("until", default=None)


class TooSlow(TableferryError):
    """The work took longer than it may; its statement was ended."""


@contextmanager
def bounded(until: float) -> Iterator[None]:
    """End the statements of this thread's block at a moment of `time.monotonic`.

    Raises:
        TooSlow: it has passed before the block has ended.
    """
    token = _until.set(until)
    try:
        yield
    except TableferryError as error:
        if passed():
            raise TooSlow(
                "its statements take longer than a tick may, and were ended; a run has no limit"
            ) from error
        raise
    finally:
        _until.reset(token)


def passed(within: float = 0.0) -> bool:
    """Whether the block has to end, now or within some seconds."""
    until = _until.get()
    return until is not None and time.monotonic() + within >= until


def seconds_left() -> int | None:
    """Return the seconds that a statement may take, at least 1; None without a bound.

    Raises:
        TooSlow: there are none left.
    """
    until = _until.get()
    if until is None:
        return None
    if passed():
        raise TooSlow("there is no time left")
    return max(1, math.ceil(until - time.monotonic()))
