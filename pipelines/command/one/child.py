"""Processes that a command starts to move tables, and that end with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Collection
from multiprocessing.process import BaseProcess

SECONDS_TO_END = 60.0
"""How long a process that is told to end may take to bring its ranges to a safe state."""


def become_child() -> None:
    """Make this process end with its parent, and be interrupted by nobody else."""
    # Ctrl-C on the terminal reaches the parent only, which then ends its children
    os.setsid()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def end_children(processes: Collection[BaseProcess]) -> None:
    """Interrupt the processes that still run, and wait until all have ended."""
    for process in processes:
        if process.is_alive():
            process.terminate()
    for process in processes:
        process.join(SECONDS_TO_END)
        process.kill()


def _end_with_parent() -> None:
    """Interrupt this process when its parent dies, so that it does not move rows unattended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
