"""Servers that cannot be reached: since when, and how long it is worth waiting for them.

All threads of a process share what is known, so that a server that is away is waited for once, and
not by each key range.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

from tableferry.resources.errors import ConnectionFailed, InputError

PATIENCE = "TABLEFERRY_PATIENCE_SECONDS"
"""The environment variable that says for how long a server may be away."""

USUAL_PATIENCE = 30.0
"""The restart of a database server."""

RECENT_SECONDS = 5.0
"""A failure to connect tells what the next attempt would find for so long."""


FORGOTTEN_SECONDS = 90.0
"""After which a failure to connect begins another outage: attempts are closer to each other."""


@dataclass
class _Outage:
    since: float
    last: float
    reason: str


_outages: dict[str, _Outage] = {}
_lock = threading.Lock()


def patience() -> float:
    """How many seconds a server may be away before what needs it fails.

    Raises:
        InputError: the environment gives no number.
    """
    given = os.environ.get(PATIENCE)
    try:
        seconds = float(given) if given else USUAL_PATIENCE
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise InputError(f"{PATIENCE} should be a number of seconds; it is {given!r}")
    return seconds


def seconds_away(error: ConnectionFailed) -> float | None:
    """Note that a server could not be reached.

    Returns:
        For how long it has been away; None if the error names no server.
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
    """Begin anew: what was found out before a run says nothing of it."""
    with _lock:
        _outages.clear()


def back(address: str) -> None:
    """Note that a server was reached."""
    with _lock:
        _outages.pop(address, None)


def require_reachable(address: str) -> None:
    """Fail at once where waiting for a server has just been given up.

    Args:
        address: as `ConnectionSettings.address` says it.

    Raises:
        ConnectionFailed: names the server, why it cannot be reached, and for how long.
    """
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
