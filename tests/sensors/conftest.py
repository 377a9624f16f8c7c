"""A web hook and a Dagster home for the sensors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import dagster as dg
import pytest

from tableferry.sensors.sending import ALERTS, DAGSTER_URL
from tests.integration.support import homes


@dataclass
class Listener:
    """A web hook: what it was sent, and what it answers."""

    url: str = ""
    status: int = 200
    bodies: list[dict[str, Any]] = field(default_factory=list)
    types: list[str] = field(default_factory=list)


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    heard = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.bodies.append(json.loads(body))
            heard.types.append(str(self.headers["Content-Type"]))
            self.send_response(heard.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        heard.url = f"json://127.0.0.1:{server.server_port}/hook"
        monkeypatch.setenv(ALERTS, heard.url)
        monkeypatch.setenv(DAGSTER_URL, "https://dagster.example.com/")
        yield heard
        server.shutdown()


@pytest.fixture
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    with homes.local_temp(tmp_path_factory.mktemp("dagster")) as made:
        yield made
