"""Reads a source ahead of its sink, in bounded memory, and times both."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")

DEPTH = 2
"""Maximum number of items between source and sink. As one side is always the slower one, more
would only cost memory."""


class Prefetch(AbstractContextManager["Prefetch[Item]"], Generic[Item]):
    """Reads `source` in its own thread, at most `DEPTH` items ahead of the iteration.

    An error of the source is raised in place of its item. Leaving the context stops the thread,
    even before the end of the source, and waits until the source's connection is closed.

    Args:
        source: opens the stream; it is entered, read and left in the reading thread.
        on_done: called in that thread when the source has ended or failed.
    """

    def __init__(
        self,
        source: Callable[[], AbstractContextManager[Iterator[Item]]],
        on_done: Callable[[], None] = lambda: None,
    ) -> None:
        self._source, self._on_done = source, on_done
        self._items: queue.Queue[Item | None] = queue.Queue(DEPTH)
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="export", daemon=True)
        self.source_seconds = 0.0
        """Time spent in the source, not counting waits for the sink."""
        self.open_seconds = 0.0
        """How long the source was open, which includes waits for the sink."""
        self.waited_seconds = 0.0
        """Time that the sink has waited for the source."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def __iter__(self) -> Iterator[Item]:
        while True:
            started = time.perf_counter()
            item = self._items.get()
            self.waited_seconds += time.perf_counter() - started
            if item is None:
                break
            yield item
        if self._error is not None:
            raise self._error

    def _read(self) -> None:
        began = time.perf_counter()
        try:
            started = began
            with self._source() as items:
                for item in items:
                    self.source_seconds += time.perf_counter() - started
                    if not self._put(item):
                        return
                    started = time.perf_counter()
            self.source_seconds += time.perf_counter() - started
        except BaseException as error:
            self._error = error
        finally:
            self.open_seconds = time.perf_counter() - began
            self._on_done()
            self._put(None)

    def _put(self, item: Item | None) -> bool:
        while not self._stop.is_set():
            try:
                self._items.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
