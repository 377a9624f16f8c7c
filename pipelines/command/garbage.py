"""Looks for garbage less often while a command imports: that makes many objects that stay."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

USUAL = (700, 10, 10)
"""Python's own thresholds."""
IMPORTING = (1_000_000, 10, 10)
"""Dagster and its dependencies are 200,000 objects."""


def look_seldom() -> None:
    """While modules are imported; a sixth of the time that it takes goes into looking.

    And not at all when the process ends, which frees all of its memory at once.
    """
    gc.set_threshold(*IMPORTING)
    atexit.register(gc.freeze)


def look_as_usual() -> None:
    """Look for garbage among what is made from now on, if it was looked for seldom."""
    if gc.get_threshold() == IMPORTING:
        gc.freeze()
        gc.set_threshold(*USUAL)


@contextmanager
def importing_dagster() -> Iterator[None]:
    """Look seldom in the block, if Dagster is still to be imported."""
    usual = gc.get_threshold()
    if "dagster" in sys.modules or usual != USUAL:
        yield
        return
    gc.set_threshold(*IMPORTING)
    try:
        yield
    finally:
        look_as_usual()
