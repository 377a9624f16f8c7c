"""Tells whoever watches this process how far the ranges are, e.g. the progress bar of the CLI."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


_listeners: list[Callable[[Progress], None]] = []


def emit(event: Progress) -> None:
    """Tell all listeners; called from the worker threads."""
    for listener in tuple(_listeners):
        listener(event)


@contextmanager
def listening(listener: Callable[[Progress], None]) -> Iterator[None]:
    """Call `listener`, from any thread, for every progress within the context."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
