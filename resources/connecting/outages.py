"""Servers that cannot be reached: since when, and how long to wait for them.

All threads share this knowledge, so that the process waits for a server once, not once per range.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

from tableferry.resources.connecting.bounds import may_wait
from tableferry.resources.errors import ConnectionFailed, InputError

PATIENCE = "TABLEFERRY_PATIENCE_SECONDS"
"""The environment variable for the seconds that a server may be away."""

DEFAULT_PATIENCE = 30.0
"""Long enough for a database server to restart."""

RECENT_SECONDS = 5.0
"""How long a failure to connect predicts the outcome of the next attempt."""

FORGOTTEN_SECONDS = 90.0
"""A failure to connect this long after the last one begins another outage."""


@dataclass
class _Outage:
    since: float
    last: float
    reason: str


_outages: dict[str, _Outage] = {}
_lock = threading.Lock()


def patience() -> float:
    """The seconds that a server may be away before the work that needs it fails.

    Raises:
        InputError: the environment variable is not a number of seconds.
    """
    if not may_wait():
        return 0.0
    text = os.environ.get(PATIENCE)
    try:
        seconds = float(text) if text else DEFAULT_PATIENCE
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise InputError(f"{PATIENCE} should be a number of seconds; it is {text!r}")
    return seconds


def note_failure(error: ConnectionFailed) -> float | None:
    """Note that a server could not be reached, and return for how many seconds it has been away.

    None if the error names no server.
    """
    if error.address is None:
        return None
    now = time.monotonic()
    with _lock:
        outage = _outages.get(error.address)
        if outage is None or now - outage.last > FORGOTTEN_SECONDS:
            outage = _outages[error.address] = _Outage(now, now, str(error))
        outage.last, outage.reason = now, str(error)
        return now - outage.since


def forget() -> None:
    """Forget all outages: those before a run say nothing about it."""
    with _lock:
        _outages.clear()


def note_reached(address: str) -> None:
    """Note that a server was reached."""
    with _lock:
        _outages.pop(address, None)


def require_reachable(address: str) -> None:
    """Raise `ConnectionFailed` if waiting for the server at an address has just been given up."""
    now = time.monotonic()
    with _lock:
        outage = _outages.get(address)
    if outage is None or now - outage.last > RECENT_SECONDS:
        return
    away = outage.last - outage.since
    if away >= patience():
        raise ConnectionFailed(
            f"{outage.reason}; it has been away for {away:.0f} s, longer than {PATIENCE} allows"
        )
