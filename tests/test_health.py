"""docker/health.py, asked by containers whether they serve, against what Dagster answers."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from dagster._grpc.__generated__ import dagster_api_pb2 as api
from dagster._grpc.__generated__.dagster_api_pb2_grpc import (
    DagsterApiServicer,
    add_DagsterApiServicer_to_server,
)
from dagster._grpc.types import ListRepositoriesResponse
from dagster._utils.error import SerializableErrorInfo
from dagster_shared.serdes import serialize_value

PROGRAM = Path(__file__).resolve().parents[1] / "docker" / "health.py"

LOADED = ListRepositoriesResponse(
    repository_symbols=[],
    executable_path=None,
    repository_code_pointer_dict={},
    entry_point=None,
    container_image=None,
    container_context=None,
    dagster_library_versions=None,
    defs_state_info=None,
)
BROKEN = SerializableErrorInfo(
    message='transfers/a.yaml:3: "key" is missing\nListRepositories failed', stack=[], cls_name=None
)


class Service(DagsterApiServicer):
    """A code server that has loaded something, or failed to."""

    def __init__(self, answer: Any) -> None:
        self.answer = serialize_value(answer)

    def ListRepositories(self, request: Any, context: Any) -> Any:
        return api.ListRepositoriesReply(serialized_list_repositories_response_or_error=self.answer)

    def GetServerId(self, request: Any, context: Any) -> Any:
        return api.GetServerIdReply(server_id="x")


@contextmanager
def serving(answer: Any) -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(1))
    add_DagsterApiServicer_to_server(Service(answer), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None)


def ask(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_code_server_is_well_when_its_definitions_are_loaded() -> None:
    with serving(LOADED) as port:
        for kind in ("definitions", "grpc"):
            done = ask(kind, port)
            assert (done.returncode, done.stderr) == (0, "")


def test_one_that_cannot_load_them_says_why() -> None:
    with serving(BROKEN) as port:
        done = ask("definitions", port)
        assert done.returncode == 1
        assert 'a.yaml:3: "key" is missing' in done.stderr
        assert ask("grpc", port).returncode == 0, "it answers"
    done = ask("grpc", port)
    assert done.returncode == 1
    assert "failed to connect" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("path", "code"), [("/server_info", 0), ("/elsewhere", 1)])
def test_the_webserver_is_asked_what_dagster_serves(path: str, code: int) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == path else 404)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert ask("web", server.server_port).returncode == code
        thread.join()


def test_it_costs_no_import_of_dagster() -> None:
    with serving(LOADED) as port:
        command = [sys.executable, "-X", "importtime", PROGRAM, "definitions", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "grpc" in done.stderr
    assert "dagster" not in done.stderr


def test_what_it_does_not_know_is_refused() -> None:
    assert ask("nonsense", 1).returncode == 2
    assert ask().returncode == 2
