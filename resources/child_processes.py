"""Programs that end when the process that started them does, however that ends."""

from __future__ import annotations

import shutil
import sys


def ending_with_us(name: str) -> list[str]:
    """What to put before a command so that the kernel ends it when we are killed.

    setpriv(1) of util-linux sets the signal of prctl(2), PR_SET_PDEATHSIG, and becomes the command.
    It is the thread that starts the command with which it ends. Nothing where there is no setpriv.

    Args:
        name: of the signal that the command gets, without SIG.
    """
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    return [setpriv, "--pdeathsig", name] if setpriv else []
