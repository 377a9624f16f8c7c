"""TCP proxies that cut one connection at the worst moment, change what passes, or encrypt it."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from typing import Self
from urllib.parse import urlsplit

import trustme

TCP_REPAIR = 19
"""Of linux/tcp.h; setting it takes CAP_NET_ADMIN."""


class _Proxy:
    """Accepts connections, and serves each in a thread of its own.

    Args:
        url: of the server behind; what is sent must not be encrypted.
        host: the address to listen on.
        port: the port to listen on; by default a free one.
    """

    def __init__(self, url: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname, parts.port)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family)
        self.port = int(self._listener.getsockname()[1])
        listens = f"[{host}]" if ":" in host else host
        self.url = url.replace(f"{parts.hostname}:{parts.port}", f"{listens}:{self.port}")

    def __enter__(self) -> Self:
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
            server = socket.create_connection(self._behind())
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _behind(self) -> tuple[str | None, int | None]:
        """The address of the server behind, for the next connection."""
        return self._address

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on what comes, as `_to_client` and `_to_server` make it."""

        def answers() -> None:
            with contextlib.suppress(OSError):  # the client is gone
                while data := _receive(server):
                    client.sendall(self._to_client(data))
            _hang_up(client, server)

        threading.Thread(target=answers, daemon=True).start()
        while data := _receive(client):
            server.sendall(self._to_server(data))
        _hang_up(client, server)

    def _to_client(self, data: bytes) -> bytes:
        return data

    def _to_server(self, data: bytes) -> bytes:
        return data


class LosesAnswer(_Proxy):
    """A proxy that drops the answer to the first request that holds a marker, and hangs up.

    Args:
        url: of the server behind.
        marker: bytes of the request whose answer is lost.
        deliver: whether the server gets that request at all.
    """

    def __init__(self, url: str, marker: bytes, *, deliver: bool = True) -> None:
        super().__init__(url)
        self._marker, self._deliver = marker, deliver
        self.lost = 0

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
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


class Corrupts(_Proxy):
    """A proxy that changes bytes on their way to the server.

    Args:
        url: of the server behind.
        old: the bytes to look for; those that lie across two packets are missed.
        new: as many bytes in their place.
    """

    def __init__(self, url: str, old: bytes, new: bytes) -> None:
        super().__init__(url)
        assert len(old) == len(new), "lengths are part of what is sent"
        self._old, self._new = old, new
        self.changed = 0

    def _to_server(self, data: bytes) -> bytes:
        self.changed += data.count(self._old)
        return data.replace(self._old, self._new)


class Counts(_Proxy):
    """A proxy that counts what passes.

    Args:
        url: of the server behind.
        marker: bytes of the requests that count, which hold it once.
    """

    def __init__(self, url: str, marker: bytes) -> None:
        super().__init__(url)
        self._marker = marker
        self.requests = self.answered = 0
        """How many such requests there were, and the bytes of all answers."""

    def _to_client(self, data: bytes) -> bytes:
        self.answered += len(data)
        return data

    def _to_server(self, data: bytes) -> bytes:
        self.requests += data.count(self._marker)
        return data


class CutsAnswers(_Proxy):
    """A proxy that hangs up in the middle of the answers to requests that hold a marker.

    Args:
        url: of the server behind.
        marker: bytes of these requests.
        times: how many of them are cut; all, if not given.
    """

    def __init__(self, url: str, marker: bytes, times: float = float("inf")) -> None:
        super().__init__(url)
        self._marker, self.left = marker, times
        self.cut = 0

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        cutting = threading.Event()

        def answers() -> None:
            with contextlib.suppress(OSError):  # the client has gone meanwhile
                while data := _receive(server):
                    if cutting.is_set():
                        client.sendall(data[: len(data) // 2])
                        break
                    client.sendall(data)
            _hang_up(client, server)

        threading.Thread(target=answers, daemon=True).start()
        while data := _receive(client):
            if self._marker in data and self.cut < self.left:
                self.cut += 1
                cutting.set()
            server.sendall(data)
        _hang_up(client, server)


class Balances(_Proxy):
    """A balancer of HTTP servers that have one login: connections go to one after the other.

    Args:
        url: of the first.
        ports: of the others, on the same host.
        by_request: whether each request goes to another one, as balancers of HTTP do it.
    """

    def __init__(self, url: str, ports: Sequence[int], *, by_request: bool = True) -> None:
        super().__init__(url)
        host, port = self._address
        self.nodes = itertools.cycle([(host, port), *((host, other) for other in ports)])
        self._by_request = by_request

    def _behind(self) -> tuple[str | None, int | None]:
        return next(self.nodes)

    def _to_server(self, data: bytes) -> bytes:
        if not self._by_request:
            return data
        return data.replace(b" HTTP/1.1\r\n", b" HTTP/1.1\r\nConnection: close\r\n", 1)


class Passes(_Proxy):
    """A proxy that passes on what comes, until it hangs up on everybody."""

    def __init__(self, url: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(url, host=host, port=port)
        self._ends: list[socket.socket] = []
        self.connections = 0

    def hang_up(self) -> None:
        """End all connections."""
        _hang_up(*self._ends)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        self.connections += 1
        self._ends += (client, server)
        super()._serve(client, server)


class HangsUp(_Proxy):
    """A proxy that hangs up on the first clients, as one before a server that starts.

    Args:
        url: of the server behind.
        times: how many clients.
    """

    def __init__(self, url: str, times: int) -> None:
        super().__init__(url)
        self._left = itertools.count(times, -1)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        if next(self._left) > 0:
            _hang_up(client, server)
        else:
            super()._serve(client, server)


class ProxiesConnect(_Proxy):
    """A proxy of HTTP that opens ways by CONNECT (RFC 9110, 9.3.6), all of them to one server.

    Args:
        url: of that server.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked = set[str]()
        """Where clients wanted to go."""

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += _receive(client)
        method, place, _ = request.decode().split(" ", 2)
        assert method == "CONNECT"
        self.asked.add(place)
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        super()._serve(client, server)


class Forgets(_Proxy):
    """A firewall that forgets a connection while the answer to a request is awaited.

    Nobody is told: neither end gets a packet. It answers what comes later as one does that never
    heard of the connection, by a reset.

    Args:
        url: of the server behind.
        marker: a pattern of the request.
    """

    def __init__(self, url: str, marker: bytes) -> None:
        super().__init__(url)
        self._marker = re.compile(marker, re.DOTALL)
        self._servers: list[socket.socket] = []
        self.forgotten = 0

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        _hang_up(*self._servers)  # their sessions hold locks

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        self._servers.append(server)
        silent = threading.Event()

        def answers() -> None:
            while data := _receive(server):
                if not silent.is_set():
                    client.sendall(data)
            if not silent.is_set():
                _hang_up(client, server)

        threading.Thread(target=answers, daemon=True).start()
        while data := _receive(client):
            if not self.forgotten and self._marker.search(data):
                self.forgotten += 1
                silent.set()
                server.sendall(data)
                time.sleep(0.3)  # until the request is acknowledged, or it would be sent again
                # a socket that is closed while under repair sends no FIN
                client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
                os.close(client.detach())
                return
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


class Encrypts(_Proxy):
    """TLS in front of a server that has none, as PgBouncer, HAProxy or nginx put it there.

    Args:
        url: of the server behind.
        certificate: what it shows.
        starttls: PostgreSQL's way of asking for TLS first, not that of HTTPS.
    """

    def __init__(self, url: str, certificate: trustme.LeafCert, *, starttls: bool = False) -> None:
        super().__init__(url)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self._context)
        self._starttls = starttls
        self.sessions = 0

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client, server:
            if self._starttls:
                asked = client.recv(8)
                assert int.from_bytes(asked[4:], "big") == 80877103, "SSLRequest"
                client.sendall(b"S")
            with self._context.wrap_socket(client, server_side=True) as secured:
                self.sessions += 1
                self._relay(secured, server)

    def _relay(self, client: ssl.SSLSocket, server: socket.socket) -> None:
        other = {client: server, server: client}
        with selectors.DefaultSelector() as selector:  # select() takes no file above 1023
            for one in other:
                selector.register(one, selectors.EVENT_READ, one)
            while True:
                ready = [client] if client.pending() else [key.data for key, _ in selector.select()]
                for one in ready:
                    if not (data := one.recv(1 << 16)):
                        return
                    other[one].sendall(self.asked(client, data) if one is client else data)

    def asked(self, client: ssl.SSLSocket, data: bytes) -> bytes:
        """What the server gets of what a client has sent."""
        return data


class ComesLate(_Proxy):
    """A server that is away at first.

    Args:
        url: see `_Proxy`.
        seconds: it is away for so long.
        closes: whether connections are closed until then, as a balancer does that has no server to
            pass them on to; else they are refused.
    """

    def __init__(self, url: str, seconds: float, *, closes: bool) -> None:
        super().__init__(url)
        self._seconds, self._closes, self._begun = seconds, closes, time.monotonic()
        if not closes:
            self._listener.close()

    def _accept(self) -> None:
        if not self._closes:
            time.sleep(self._seconds)
            self._listener = socket.create_server(("127.0.0.1", self.port))
        super()._accept()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        if time.monotonic() - self._begun < self._seconds:
            _hang_up(client, server)
        else:
            super()._serve(client, server)
