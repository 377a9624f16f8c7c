"""What goes on beside a test: a writer, a reader, a look at a server. It must not die unnoticed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def beside(step: Callable[[], object], pause: float = 0.01) -> Iterator[None]:
    """Do something again and again while a block runs, once at least.

    Args:
        step: what is done.
        pause: seconds between two of them.

    Raises:
        Exception: what a step has raised, after which none followed, when the block has ended.
    """
    ended = threading.Event()

    def again() -> None:
        step()
        while not ended.wait(pause):
            step()

    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(again)
        try:
            yield
        finally:
            ended.set()
        doing.result()
