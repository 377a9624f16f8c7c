"""Notices, while a statement runs, that the client wants it to stop or has gone."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Watch:
    """Calls `cancel` when bytes arrive from the client in the middle of its request's execution.

    Only an attention may come then, or the end of the connection. The bytes are left for the main
    thread to read, so that no two threads share the transport.
    """

    def __init__(self, sock: socket.socket, cancel: Callable[[], None]) -> None:
        self._sock, self._cancel = sock, cancel
        self._wake_read, self._wake_write = os.pipe()
        self._armed = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self.interrupted = self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watch no more."""
        self._ended = True
        self._armed.set()
        self._thread.join()
        os.close(self._wake_read)
        os.close(self._wake_write)

    @contextmanager
    def watching(self, *, already: bool) -> Iterator[None]:
        """Watch for the time of the block; `already` tells that bytes have arrived before it."""
        self.interrupted = already
        self._idle.clear()
        self._armed.set()
        try:
            yield
        finally:
            os.write(self._wake_write, b"x")
            self._idle.wait()

    def _run(self) -> None:
        while True:
            self._armed.wait()
            if self._ended:
                return
            self._armed.clear()
            poll = select.poll()
            poll.register(self._wake_read, select.POLLIN)
            poll.register(self._sock, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._sock.fileno() in ready:
                self.interrupted = True
                if self._wake_read not in ready:
                    self._stop()
            os.read(self._wake_read, 1)
            self._idle.set()

    def _stop(self) -> None:
        """Cancel until the statement ends: the first time may be before it reaches the server."""
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        wait = 20
        while True:
            self._cancel()
            if poll.poll(wait):
                return
            wait = min(2 * wait, 1000)
