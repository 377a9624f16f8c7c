"""The balancer before the nodes: one address, over HTTP."""

from __future__ import annotations

import itertools
import threading
import zlib
from collections.abc import Mapping
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from tableferry_local import clickhouse
from tableferry_local.cluster.node import HOP_BY_HOP, Node
from tableferry_local.cluster.replication import Cluster
from tableferry_local.cluster.statements import CLUSTER
from tableferry_local.process import HOST

TAG = "X-ClickHouse-Replica-Tag"
"""The header by which ClickHouse Cloud keeps requests together."""

UNWANTED = ("query", "send_progress_in_http_headers", "http_headers_progress_interval_ms")
"""Parameters that are not passed on: the statement, and what would send headers again and again."""


class Balancer:
    """Passes requests on to the nodes of a cluster.

    Args:
        cluster: the nodes.
        sticky: whether the requests of one connection go to one node; otherwise each goes to the
            next one. Those of one session or replica tag go to one node in any case.
    """

    def __init__(self, cluster: Cluster, *, sticky: bool = False) -> None:
        self.cluster = cluster
        self._sticky = sticky
        self._connections, self._requests = itertools.count(), itertools.count()
        balancer = self

        class Handler(_Handler):
            def setup(self) -> None:
                super().setup()
                self.balancer, self.turn = balancer, next(balancer._connections)

        self._server = _Server((HOST, 0), Handler)

    @property
    def url(self) -> str:
        """The connection URL of the stack's database, with the cluster's name."""
        port = self._server.server_address[1]
        return f"{clickhouse.url(int(port), self.cluster.password)}?cluster={CLUSTER}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def node(self, turn: int, tag: str) -> Node:
        """The node for a request.

        Args:
            turn: the number of its connection.
            tag: its session or replica tag, if it has one.
        """
        if tag:
            turn = zlib.crc32(tag.encode())
        elif not self._sticky:
            turn = next(self._requests)
        nodes = self.cluster.nodes
        chosen = nodes[turn % len(nodes)]
        return chosen if chosen.running else nodes[(turn + 1) % len(nodes)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients that hang up are what tests are about."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    balancer: Balancer
    turn: int

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        url, body = urlsplit(self.path), self._body()
        settings = dict(parse_qsl(url.query, keep_blank_values=True))
        query = settings.get("query", "").encode()
        body = query + b"\n" + body if query and body else query or body
        tag = settings.get("session_id") or self.headers.get(TAG) or ""
        node = self.balancer.node(self.turn, tag)
        kept = {name: value for name, value in settings.items() if name not in UNWANTED}
        unwanted = {*HOP_BY_HOP, "content-encoding"}
        headers = {k: v for k, v in self.headers.items() if k.lower() not in unwanted}
        self._answer(node, body, kept, headers)

    def _answer(
        self, node: Node, body: bytes, settings: Mapping[str, str], headers: Mapping[str, str]
    ) -> None:
        try:
            answer = self.balancer.cluster.handle(node, body, settings, headers)
            self.send_response_only(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for block in answer.body:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block))
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        except (OSError, HTTPException):
            # one of both has hung up; the client sees that the answer has no end
            self.close_connection = True

    def _body(self) -> bytes:
        encoding = self.headers.get("Content-Encoding", "")
        body = self._received()
        if encoding == "lz4":
            import lz4.frame  # type: ignore[import-untyped]

            return bytes(lz4.frame.decompress(body))
        assert not encoding, f"bodies of {encoding} cannot be read"
        return body

    def _received(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := _size(self.rfile.readline()):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)


def _size(line: bytes) -> int:
    """The size of a chunk.

    Raises:
        ConnectionError: the client has hung up.
    """
    if not line:
        raise ConnectionResetError("no end of the body")
    return int(line.split(b";")[0], 16)
