"""The alert of a failed run, sent to a real HTTP listener."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import dagster as dg
import pytest

from assets.running.runs import RANGE_END, RANGE_START
from sensors.alerts import ALERT_URL, failure_alert


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
        threading.Thread(target=server.serve_forever, daemon=True).start()
        heard.url = f"http://127.0.0.1:{server.server_port}/hook"
        monkeypatch.setenv(ALERT_URL, heard.url)
        yield heard
        server.shutdown()


@pytest.fixture
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("dagster"))) as made:
        yield made


@dg.op
def failing() -> None:
    raise dg.Failure("orders: clickhouse://w.orders range 1..5: no such luck", allow_retries=False)


@dg.job
def move_orders() -> None:
    failing()


def failed_run(instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    return move_orders.execute_in_process(
        instance=instance,
        raise_on_error=False,
        tags={RANGE_START: "1..5", RANGE_END: "5..9"},
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )


class Ticks:
    """The sensor as the daemon evaluates it."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance, self.cursor = instance, None
        self._repository = dg.Definitions(
            jobs=[move_orders], sensors=[failure_alert]
        ).get_repository_def()

    def tick(self) -> Any:
        found = failure_alert.evaluate_tick(
            dg.build_sensor_context(
                self._instance,
                cursor=self.cursor,
                repository_def=self._repository,
                sensor_name="failure_alert",
            )
        )
        self.cursor = found.cursor
        return found


def test_a_failed_run_is_told_once_with_what_and_why(
    instance: dg.DagsterInstance, listener: Listener
) -> None:
    ticks = Ticks(instance)
    ticks.tick()
    assert listener.bodies == [], "nothing failed yet"
    result = failed_run(instance)
    ticks.tick()
    ticks.tick()
    (alert,) = listener.bodies
    assert alert["job"] == "move_orders"
    assert alert["run_id"] == result.run_id
    assert (alert["first_range"], alert["last_range"]) == ("1..5", "5..9")
    assert alert["errors"] == ["orders: clickhouse://w.orders range 1..5: no such luck"]
    assert "move_orders failed" in alert["text"]
    assert listener.types == ["application/json"]


def test_a_hook_that_answers_with_an_error_is_seen_and_stops_no_later_alert(
    instance: dg.DagsterInstance, listener: Listener
) -> None:
    ticks = Ticks(instance)
    ticks.tick()
    listener.status = 500
    failed_run(instance)
    found = ticks.tick()
    assert listener.bodies, "it was tried"
    reactions = found.dagster_run_reactions
    assert [bool(one.error) for one in reactions] == [True]
    assert ALERT_URL in str(reactions[0].error)
    assert "500" in str(reactions[0].error)
    tried = len(listener.bodies)
    listener.status = 204
    second = failed_run(instance)
    ticks.tick()
    assert [one["run_id"] for one in listener.bodies[tried:]] == [second.run_id]


def test_a_hook_that_is_not_there_is_an_error_without_its_url(
    instance: dg.DagsterInstance, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALERT_URL, "http://127.0.0.1:1/secret-token")
    ticks = Ticks(instance)
    ticks.tick()
    failed_run(instance)
    (reaction,) = ticks.tick().dagster_run_reactions
    assert ALERT_URL in str(reaction.error)
    assert "secret-token" not in str(reaction.error)


def test_without_a_hook_the_failure_is_logged_only(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALERT_URL, raising=False)
    ticks = Ticks(instance)
    ticks.tick()
    failed_run(instance)
    (reaction,) = ticks.tick().dagster_run_reactions
    assert reaction.error is None
