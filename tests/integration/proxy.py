"""A TCP proxy that cuts one connection at the worst moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class LosesAnswer:
    """A proxy that drops the answer to the first request that holds a marker, and hangs up.

    Args:
        url: of the server behind; what is sent must not be encrypted.
        marker: bytes of the request whose answer is lost.
        deliver: whether the server gets that request at all.
    """

    def __init__(self, url: str, marker: bytes, *, deliver: bool = True) -> None:
        parts = urlsplit(url)
        self._deliver = deliver
        self._behind = (parts.hostname, parts.port)
        self._marker = marker
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{port}")
        self.lost = 0

    def __enter__(self) -> LosesAnswer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(self._behind)
        losing = threading.Event()

        def answers() -> None:
            while data := _receive(server):
                if losing.is_set():
                    self.lost += 1
                    break
                client.sendall(data)
            _hang_up(client, server)

        threading.Thread(target=answers, daemon=True).start()
        while data := _receive(client):
            if self._marker in data and not self.lost:
                losing.set()
                if not self._deliver:
                    self.lost += 1
                    break
            server.sendall(data)
        _hang_up(client, server)


def _hang_up(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _receive(end: socket.socket) -> bytes:
    try:
        return end.recv(1 << 16)
    except OSError:
        return b""
