"""Programs that end with the process that started them, however that ends."""

from __future__ import annotations

import shutil
import sys


def ending_with_us(name: str) -> list[str]:
    """Return a prefix for a command, by which the kernel signals it when its parent ends.

    It is setpriv(1) of util-linux, which sets PR_SET_PDEATHSIG, see prctl(2), and then executes the
    command. The parent is the thread that starts it. Without setpriv the prefix is empty. The name
    of the signal is without SIG.
    """
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    return [setpriv, "--pdeathsig", name] if setpriv else []
