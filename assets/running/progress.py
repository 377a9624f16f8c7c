"""How far the ranges are, for whoever watches a run, e.g. the progress bar of the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """`rows` more rows, or a new phase, of one range on its way to `target`.

    The phase `planned` comes first, with the `total` of ranges times hops.
    """

    transfer: str
    target: str
    range: str
    phase: str
    rows: int = 0
    total: int = 0


OnProgress = Callable[[Progress], None]
"""Is called from any thread."""


def unwatched(event: Progress) -> None:
    """Nobody watches."""
