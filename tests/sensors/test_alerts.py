"""The alert of a failed run, sent to a real HTTP listener."""

from __future__ import annotations

import json
import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pytest
import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.run_tags import (
    RANGE_END,
    RANGE_START,
)
from tableferry.assets.planning.resolve import Servers
from tableferry.resources.errors import TableferryError
from tableferry.resources.postgres.server import PostgresServer
from tableferry.sensors.alerts import alert_sensors, check_alert, failure_alert
from tableferry.sensors.channels import ALERT_URL, EMAIL, SLACK_URL, Alert, Mailbox, channels, send
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
        heard.url = f"http://127.0.0.1:{server.server_port}/hook"
        monkeypatch.setenv(ALERT_URL, heard.url)
        yield heard
        server.shutdown()


@pytest.fixture
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    with homes.local_temp(tmp_path_factory.mktemp("dagster")) as made:
        yield made


@dg.op
def failing() -> None:
    raise dg.Failure("orders: clickhouse://w.orders range 1..5: no such luck", allow_retries=False)


@dg.job
def move_orders() -> None:
    failing()


@dg.op
def checking(context) -> None:  # type: ignore[no-untyped-def]
    """As a run with a check that warns only: it failed at first, then once more for a range."""
    for name, passed in (("1..5", False), ("1..5", True), ("5..9", False), (None, False)):
        context.log_event(
            dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey(["clickhouse", "w", "orders"]),
                check_name="expectations",
                passed=passed,
                partition=name,
                severity=dg.AssetCheckSeverity.WARN,
                description=f"price < 0 in {name}",
            )
        )
    for missing in (2, 0):
        context.log_event(
            dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey(["clickhouse", "w", "orders"]),
                check_name="no_stray_rows" if missing else "total_rows",
                passed=False,
                severity=dg.AssetCheckSeverity.WARN,
                description="rows differ",
                metadata={"ranges_not_committed": missing},
            )
        )


@dg.job
def checked_orders() -> None:
    checking()


def failed_run(instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    return move_orders.execute_in_process(
        instance=instance,
        raise_on_error=False,
        tags={RANGE_START: "1..5", RANGE_END: "5..9"},
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )


class Ticks:
    """The sensor as the daemon evaluates it."""

    def __init__(
        self, instance: dg.DagsterInstance, sensor: dg.SensorDefinition = failure_alert
    ) -> None:
        self._instance, self._sensor, self.cursor = instance, sensor, None
        self._repository = dg.Definitions(
            jobs=[move_orders, checked_orders], sensors=[sensor]
        ).get_repository_def()

    def tick(self) -> Any:
        found = self._sensor.evaluate_tick(
            dg.build_sensor_context(
                self._instance,
                cursor=self.cursor,
                repository_def=self._repository,
                sensor_name=self._sensor.name,
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


def test_a_component_tells_of_its_own_transfers_and_of_no_password(
    instance: dg.DagsterInstance, listener: Listener
) -> None:
    def of(name: str) -> Transfer:
        hops = [f"clickhouse://w.{name}"]
        return Transfer(transfer=name, source="postgres://s.t", hops=hops, key="id")

    bound = Servers({"shop": PostgresServer(host="db", password="no such")})
    ours, _ = alert_sensors("ours_", [of("orders")], bound)
    others, checks = alert_sensors("others_", [of("others")])
    ticks = [Ticks(instance, one) for one in (ours, others, checks)]
    for one in ticks:
        one.tick()
    result = failed_run(instance)
    assert checked_orders.execute_in_process(instance=instance).success
    found = [one.tick().dagster_run_reactions for one in ticks]
    assert [[reaction.error for reaction in of_tick] for of_tick in found] == [[None], [], []]
    (alert,) = listener.bodies
    assert alert["run_id"] == result.run_id
    assert alert["errors"] == ["orders: clickhouse://w.orders range 1..5: *** luck"]


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


def test_a_check_that_does_not_block_is_told_too(
    instance: dg.DagsterInstance, listener: Listener
) -> None:
    ticks = Ticks(instance, check_alert)
    ticks.tick()
    assert checked_orders.execute_in_process(
        instance=instance,
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    ).success
    ticks.tick()
    (alert,) = listener.bodies
    assert (alert["kind"], alert["job"]) == ("check_failed", "checked_orders")
    assert alert["errors"] == [
        "clickhouse/w/orders 5..9: expectations failed: price < 0 in 5..9",
        "clickhouse/w/orders (whole table): total_rows failed: rows differ",
    ], "the last verdict of each range, and of tables that lack none; no summary"


PASSWORD = "s3cr3t-w0rd"
FAILED = Alert(
    "run_failed",
    "move_orders failed",
    "move_orders",
    "0123",
    errors=[f"<orders> & postgresql://me:{PASSWORD}@db is gone", *(f"line {n}" for n in range(30))],
)


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    """The password of a server, which an error should not show but does."""
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", f"postgresql://me:{PASSWORD}@db/shop")
    monkeypatch.setenv("TABLEFERRY_DAGSTER_URL", "https://dagster.example.com/")
    return PASSWORD


def test_slack_gets_a_text_without_secrets(
    listener: Listener, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALERT_URL)
    monkeypatch.setenv(SLACK_URL, listener.url)
    assert channels() == [SLACK_URL]
    send(FAILED)
    (body,) = listener.bodies
    assert list(body) == ["text"]
    lines = body["text"].splitlines()
    assert lines[0] == "*move_orders failed*"
    assert lines[1] == "> &lt;orders&gt; &amp; postgresql://me:***@db is gone"
    assert lines[-2:] == ["> ... and 11 lines more", "> https://dagster.example.com/runs/0123"]
    assert secret not in body["text"]


@dataclass
class Post:
    """A mail server: where it is, and what it was given."""

    port: int
    authority: Path
    mails: list[EmailMessage] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)

    async def handle_DATA(self, _: object, __: object, envelope: Envelope) -> str:
        found = message_from_bytes(bytes(envelope.content or b""), policy=policy.default)
        self.mails.append(cast(EmailMessage, found))
        return "250 OK"

    def authenticate(self, _: Any, __: Any, ___: Any, ____: str, data: Any) -> AuthResult:
        self.logins.append((data.login.decode(), data.password.decode()))
        # not handled: the server is to say whether it is right
        return AuthResult(success=data.password == b"p@ss/word", handled=False)


@pytest.fixture(params=["starttls", "plain"])
def post(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Post]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with socket.socket() as free:  # the controller wants to know its port
        free.bind(("127.0.0.1", 0))
        made = Post(free.getsockname()[1], tmp_path / "ca.pem")
    tls = {"tls_context": context} if request.param == "starttls" else {}
    controller = Controller(
        made,
        hostname="127.0.0.1",
        port=made.port,
        authenticator=made.authenticate,
        auth_require_tls=bool(tls),
        **tls,
    )
    controller.start()
    yield made
    controller.stop()


def test_a_mail_is_sent_with_a_login_by_tls_only(
    post: Post, secret: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALERT_URL, raising=False)
    url = (
        f"smtp://ferry:p%40ss%2Fword@127.0.0.1:{post.port}/?to=ops@example.com,me@example.com"
        f"&from=ferry@example.com&ca={post.authority}"
    )
    monkeypatch.setenv(EMAIL, url)
    if "plain" in request.node.name:
        with pytest.raises(TableferryError, match="would see the password in the clear") as seen:
            send(FAILED)
        assert "p@ss" not in str(seen.value)
        assert (post.logins, post.mails) == ([], [])
        return
    send(FAILED)
    (mail,) = post.mails
    assert mail["Subject"] == "Tableferry: move_orders failed"
    assert (mail["From"], mail["To"]) == ("ferry@example.com", "ops@example.com, me@example.com")
    text = mail.get_content()
    assert "<orders> & postgresql://me:***@db is gone" in text
    assert "https://dagster.example.com/runs/0123" in text
    assert secret not in str(mail)
    assert post.logins == [("ferry", "p@ss/word")]
    monkeypatch.setenv(EMAIL, url.replace("p%40ss", "wrong"))
    with pytest.raises(TableferryError) as refused:
        send(FAILED)
    assert f"{EMAIL}: 127.0.0.1:{post.port} does not take it: (535" in str(refused.value)
    assert "wrong" not in str(refused.value)


def test_one_channel_that_fails_stops_no_other(
    post: Post, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SLACK_URL, "http://127.0.0.1:1/hidden-token")
    monkeypatch.setenv(EMAIL, f"smtp://127.0.0.1:{post.port}/?to=a@b.c&ca={post.authority}")
    with pytest.raises(TableferryError, match=SLACK_URL) as seen:
        send(FAILED)
    assert "hidden-token" not in str(seen.value)
    assert [len(listener.bodies), len(post.mails)] == [1, 1]


@pytest.mark.parametrize(
    "url", ["", "mail.example.com", "smtp://host/", "http://h/?to=a@b.c", "smtp://h:x/?to=a@b.c"]
)
def test_what_is_no_mailbox_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(TableferryError, match="should look like smtps://") as refused:
        Mailbox.parse(url)
    assert not url or url not in str(refused.value)
    assert Mailbox.parse("smtps://h/?to=a@b.c").port == smtplib.SMTP_SSL_PORT
