"""A way to a server that breaks: it cuts the first connections that have passed some bytes."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Self
from urllib.parse import urlsplit

from tableferry.resources.connecting.names import connection_url, set_variable
from tableferry.resources.errors import InputError

HERE = "127.0.0.1"


class Cutting:
    """Passes on what comes, and hangs up on the first connections that have passed enough.

    Args:
        connection: the connection whose server is behind.
        enough: bytes that a connection passes in both directions before it is cut.
        times: how many connections are cut, once `armed`.

    Raises:
        InputError: the server's address is not a URL of one host.
    """

    def __init__(self, connection: str, enough: int, times: int) -> None:
        url, self.variable = connection_url(connection) or "", set_variable(connection) or ""
        parts = urlsplit(url)
        login, at, address = parts.netloc.rpartition("@")
        if not parts.hostname or "," in address or self.variable.endswith("_FILE"):
            raise InputError("its address is not a URL of one host")
        if not parts.port:
            raise InputError("its URL names no port")
        self._address = (parts.hostname, parts.port)
        self._enough, self._left = enough, times
        self.cut, self.armed = 0, False
        self._lock = threading.Lock()
        cutting = self

        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                cutting._serve(self.request)

        self._server = ThreadingTCPServer((HERE, 0), Handler)
        self._server.daemon_threads = True
        port = self._server.server_address[1]
        self.url = parts._replace(netloc=f"{login}{at}{HERE}:{port}").geturl()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, client: socket.socket) -> None:
        """Pass on what one connection has to say, either way, until an end hangs up."""
        passed = [0]
        with suppress(OSError), socket.create_connection(self._address) as server:
            back = threading.Thread(target=self._pass, args=(server, client, passed), daemon=True)
            back.start()
            self._pass(client, server, passed)
            back.join()

    def _pass(self, from_: socket.socket, to: socket.socket, passed: list[int]) -> None:
        with suppress(OSError):
            while data := from_.recv(1 << 16):
                passed[0] += len(data)
                if self._cuts(passed[0]):
                    break
                to.sendall(data)
        for end in (from_, to):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _cuts(self, passed: int) -> bool:
        with self._lock:
            cuts = self.armed and passed >= self._enough and self._left > 0
            self._left -= cuts
            self.cut += cuts
        return cuts
