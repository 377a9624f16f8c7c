"""Named points at which the crash tests kill the process. Off unless the variable is set."""

from __future__ import annotations

import os
import signal
import threading

CRASH_AT = "TABLEFERRY_CRASH_AT"
"""`point` or `point:n`: SIGKILL for the process when it reaches the point the nth time."""

_seen: dict[str, int] = {}
_lock = threading.Lock()


def reached(point: str) -> None:
    """Tell that execution is at a named point; a crash test may have asked to die here."""
    wanted = os.environ.get(CRASH_AT)
    if not wanted:
        return
    name, _, nth = wanted.partition(":")
    if name != point:
        return
    with _lock:
        _seen[point] = _seen.get(point, 0) + 1
        if _seen[point] == int(nth or 1):
            os.kill(os.getpid(), signal.SIGKILL)
