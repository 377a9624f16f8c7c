"""One server of the cluster, and what it has yet to do."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tableferry_local import clickhouse
from tableferry_local.cluster.statements import CLUSTER, VIEWS
from tableferry_local.process import HOST

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
"""Headers that are of one connection (RFC 9110, 7.6.1), or that the next one has of its own."""

BLOCK = 1 << 16


@dataclass
class Answer:
    """An answer over HTTP, whose body may still be on its way."""

    status: int
    headers: list[tuple[str, str]]
    body: Iterator[bytes]


class NodeError(Exception):
    """A node has refused a statement."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status

    @property
    def answer(self) -> Answer:
        """What a client gets."""
        headers = [("Content-Type", "text/plain; charset=UTF-8")]
        if code := str(self).partition("Code: ")[2].partition(".")[0]:
            headers.append(("X-ClickHouse-Exception-Code", code))
        return Answer(self.status, headers, iter([str(self).encode()]))


class Queue:
    """What a node does when it is due, in order, and as soon as it runs."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._worker = ThreadPoolExecutor(1)
        self._closed = False

    def add(self, delay: float, act: Callable[[], object]) -> Future[object]:
        """Have something done after a delay, in seconds."""
        due = time.monotonic() + delay

        def when_due() -> object:
            while (not self._node.running or time.monotonic() < due) and not self._closed:
                time.sleep(min(0.02, max(0.001, due - time.monotonic())))
            return None if self._closed else act()

        return self._worker.submit(when_due)

    def wait(self) -> None:
        """Wait until all is done that was added before."""
        self._worker.submit(lambda: None).result()

    def close(self) -> None:
        """Give up what is not done."""
        self._closed = True
        self._worker.shutdown(cancel_futures=True)


class Node:
    """A server of the cluster.

    Args:
        folder: for its files.
        ports: of all nodes, for HTTP.
        number: of this one among them.
        password: of the stack's user.
    """

    def __init__(self, folder: Path, ports: list[int], number: int, password: str) -> None:
        self.folder, self.port, self._ports = folder, ports[number], ports
        self._password = password
        self._pid: int | None = None
        self.definitions, self.rows = Queue(self), Queue(self)
        """DDL, and what is written to replicated tables."""

    @property
    def running(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._pid is not None

    def start(self) -> None:
        """Start the server and show it the catalog of a cluster."""
        self.folder.mkdir(exist_ok=True)
        pid = clickhouse.start(self.folder, self.port, self._password, {CLUSTER: self._ports})
        clickhouse.wait_ready(self.folder, pid, self.port, self._password)
        for statement in VIEWS:
            clickhouse.ask(self.port, self._password, statement)
        self._pid = pid

    def stop(self) -> None:
        """Stop the server."""
        pid, self._pid = self._pid, None
        if pid is not None:
            clickhouse.stop(pid)

    def close(self) -> None:
        """Stop the server for good."""
        self.definitions.close()
        self.rows.close()
        self.stop()

    def send(
        self, body: bytes, settings: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a statement; the answer is read as it comes."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=3600)
        login = {"X-ClickHouse-User": clickhouse.USER, "X-ClickHouse-Key": self._password}
        path = f"/?{urlencode(settings)}"
        connection.request("POST", path, body, dict(headers) if headers is not None else login)
        response = connection.getresponse()
        kept = [(k, v) for k, v in response.getheaders() if k.lower() not in HOP_BY_HOP]

        def blocks() -> Iterator[bytes]:
            try:
                while block := response.read1(BLOCK):
                    yield block
            finally:
                connection.close()

        return Answer(response.status, kept, blocks())

    def run(
        self, body: bytes, settings: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Run a statement to its end.

        Raises:
            NodeError: the server refuses it.
        """
        answer = self.send(body, settings, headers)
        content = b"".join(answer.body)
        if answer.status != 200:
            raise NodeError(answer.status, content.decode("utf-8", "replace"))
        return Answer(answer.status, answer.headers, iter([content]))

    def ask(self, sql: str, **settings: str) -> bytes:
        """Run a statement of the stand-in's own, and return the answer.

        Raises:
            NodeError: the server refuses it.
        """
        return b"".join(self.run(sql.encode("latin-1"), settings).body)
