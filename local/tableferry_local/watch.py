"""Takes a stack down when the process that it was made for is gone, even by `kill -9`.

Run as `python -m tableferry_local.watch FOLDER PID IDENTITY`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tableferry_local import process

INTERVAL_SECONDS = 0.5


def start(folder: Path, owner: int | None = None) -> int:
    """Start a process that removes the stack in this folder after its owner ended.

    Args:
        folder: the stack's folder.
        owner: pid of the process that the stack is for; by default the calling one.

    Returns:
        The pid of the watching process.
    """
    pid = owner or os.getpid()
    return process.spawn(
        [
            sys.executable,
            "-m",
            "tableferry_local.watch",
            str(folder),
            str(pid),
            process.identity(pid) or "",
        ],
        Path(os.devnull),
        cwd=Path(__file__).resolve().parent.parent,
    )


def main(folder: str, pid: str, wanted: str) -> None:
    """Wait, then remove the stack."""
    from tableferry_local.stack import Stack

    while process.identity(int(pid)) == wanted:
        time.sleep(INTERVAL_SECONDS)
    if Path(folder).exists():
        Stack(folder).remove()


if __name__ == "__main__":
    main(*sys.argv[1:])
