"""The bounded pipe between source and sink."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tableferry.assets.running.moving import DEPTH, Prefetch


class Source:
    """Counts what was read of it, and whether it was closed."""

    def __init__(self, items: int, fail_at: int | None = None) -> None:
        self.items, self.fail_at = items, fail_at
        self.read, self.closed = 0, threading.Event()

    @contextmanager
    def open(self) -> Iterator[Iterator[int]]:
        try:
            yield self.numbers()
        finally:
            self.closed.set()

    def numbers(self) -> Iterator[int]:
        for number in range(self.items):
            if number == self.fail_at:
                raise ConnectionError("the source went away")
            self.read += 1
            yield number


def test_all_items_arrive_in_order_and_the_source_is_closed() -> None:
    source = Source(100)
    with Prefetch(source.open) as stream:
        assert list(stream) == list(range(100))
    assert source.closed.is_set()


def test_the_source_is_read_only_a_little_ahead() -> None:
    source = Source(1000)
    with Prefetch(source.open) as stream:
        iterator = iter(stream)
        next(iterator)
        source.closed.wait(0.3)
        # one handed over, DEPTH waiting, one in the reader's hand
        assert source.read <= 1 + DEPTH + 1
    assert source.closed.is_set()


def test_an_error_of_the_source_reaches_the_sink_after_the_items_before_it() -> None:
    source = Source(10, fail_at=3)
    seen = []
    with (
        pytest.raises(ConnectionError, match="went away"),
        Prefetch(source.open) as stream,
    ):
        seen.extend(stream)
    assert source.closed.is_set()


def test_leaving_early_stops_the_source() -> None:
    source = Source(1000)
    with Prefetch(source.open) as stream:
        for number in stream:
            if number == 2:
                break
    assert source.closed.is_set()
    assert source.read < 10


def test_the_end_of_the_source_is_told_once() -> None:
    ended = []
    with Prefetch(Source(3).open, lambda: ended.append(1)) as stream:
        list(stream)
    assert ended == [1]
