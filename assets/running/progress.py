"""Progress events of a run, e.g. for the progress bar of the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """More rows, or a new phase, of one range on its way to `target`.

    The phase `planned` comes first; its `total` is the number of ranges times hops.
    """

    transfer: str
    target: str
    range: str
    phase: str
    rows: int = 0
    total: int = 0


OnProgress = Callable[[Progress], None]
"""Called from any thread."""


def ignore_progress(event: Progress) -> None:
    """Ignore the event."""
