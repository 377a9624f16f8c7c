"""Named points at which crash tests kill the process; inactive unless a variable is set."""

from __future__ import annotations

import os
import signal
import threading

CRASH_AT = "TABLEFERRY_CRASH_AT"
"""`point` or `point:n`: the process gets SIGKILL when it reaches the point for the nth time."""

_times: dict[str, int] = {}
_lock = threading.Lock()


def reached(point: str) -> None:
    """Kill the process if a crash test has chosen this point."""
    name, _, nth = os.environ.get(CRASH_AT, "").partition(":")
    if name != point:
        return
    with _lock:
        _times[point] = _times.get(point, 0) + 1
        if _times[point] == int(nth or 1):
            os.kill(os.getpid(), signal.SIGKILL)
