"""What goes on beside a test: a writer, a reader, a look at a server. It must not die unnoticed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


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


def until(what: str, ask: Callable[[], Any], seconds: float = 400, log: Path | None = None) -> Any:
    """Return the first truthy answer; what never comes fails the test by its name.

    Args:
        what: the name of what is waited for.
        ask: what answers, asked up to ten times a second.
        seconds: how long to wait.
        log: a file whose end tells why it did not come.
    """
    deadline = time.monotonic() + seconds
    pause = 0.1
    while time.monotonic() < deadline:
        if answer := ask():
            return answer
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)
    told = f":\n{log.read_text()[-9000:]}" if log else ""
    pytest.fail(f"{what} did not come within {seconds:g} s{told}")
