"""ClickHouse's HTTP interface before an engine that cannot listen: those of `chdb` before 26.6.

It runs in the engine's own environment, as `python engine_front.py FOLDER PORT`, and does one
statement after the other. It knows what `clickhouse_connect` asks for: statements with their data,
settings and parameters in the URL, formats, and errors with their number.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from chdb import _chdb

OURS = {
    "query", "database", "default_format", "query_id", "session_id", "session_timeout", "user",
    "password", "role", "compress", "decompress", "client_protocol_version", "wait_end_of_query",
    "buffer_size", "enable_http_compression", "send_progress_in_http_headers", "quota_key",
    "http_headers_progress_interval_ms", "cancel_http_readonly_queries_on_client_close",
}  # fmt: skip
"""Parameters of a request that are no settings."""

CODE = re.compile(r"Code: (\d+)")
INSERT = re.compile(rb"(INSERT INTO .*?) (FORMAT \w+)\n", re.DOTALL)
"""An INSERT whose rows follow."""


class Engine:
    """The engine, which has one session."""

    def __init__(self, folder: str) -> None:
        self._connection, self._rows = _chdb.connect(folder), f"{folder}.rows"
        self._lock = threading.Lock()
        self._ask("SELECT 1")

    def _ask(self, sql: str | bytes, fmt: str = "TabSeparated") -> bytes:
        answer = self._connection.query(sql, fmt)
        if answer.has_error():
            raise RuntimeError(answer.error_message())
        return bytes(answer.bytes())

    def run(self, sql: bytes, settings: dict[str, str], database: str, fmt: str) -> bytes:
        """Run a statement with settings of its own."""
        with self._lock:
            done: list[str] = []
            try:
                if database:
                    self._ask(f"USE `{database}`")
                for name, value in settings.items():
                    text = value.replace("\\", "\\\\").replace("'", "\\'")
                    self._ask(f"SET {name} = '{text}'")
                    done.append(name)
                if insert := INSERT.match(sql):
                    # older ones take a statement up to its first zero byte
                    with open(self._rows, "wb") as rows:
                        rows.write(sql[insert.end() :])
                    sql = b"%s FROM INFILE '%s' %s" % (insert[1], self._rows.encode(), insert[2])
                # the session holds on to tables that it has used, so that it would wait for itself
                return self._ask(sql.removesuffix(b" SYNC"), fmt)
            finally:
                for name in done:
                    if not name.startswith("param_"):
                        self._ask(f"SET {name} = DEFAULT")

    def close(self) -> None:
        """Stop the engine, when no statement runs."""
        with self._lock:
            self._connection.close()


class Front(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    engine: Engine

    def do_GET(self) -> None:
        """Answer `/ping`, and statements in the URL."""
        self.do_POST()

    def do_POST(self) -> None:
        """Run the statement that the URL begins and the body ends."""
        url = urlsplit(self.path)
        asked = dict(parse_qsl(url.query, keep_blank_values=True))
        body = self._body()
        if url.path == "/ping":
            self._answer(200, b"Ok.\n")
            return
        sql = asked["query"].encode() + b"\n" + body if "query" in asked else body
        settings = {name: value for name, value in asked.items() if name not in OURS}
        try:
            answer = self.engine.run(
                sql.rstrip() if b"FORMAT" not in sql else sql,
                settings,
                asked.get("database") or self.headers.get("X-ClickHouse-Database", ""),
                asked.get("default_format", "TabSeparated"),
            )
        except Exception as error:
            code = CODE.search(str(error))
            number = code[1] if code else "1000"
            self._answer(500, f"{error}\n".encode(), {"X-ClickHouse-Exception-Code": number})
        else:
            self._answer(200, answer, {"X-ClickHouse-Query-Id": asked.get("query_id", "")})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"X-ClickHouse-Timezone": "UTC", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    """Serve until SIGTERM, then stop the engine as its own server would."""
    Front.engine = Engine(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Front)
    server.daemon_threads = True
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stopping.wait()
    Front.engine.close()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
