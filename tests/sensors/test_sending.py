"""Alerts by Apprise, to a web hook and a mail server: what is sent, and no secret in it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.pipelines.definitions import defs
from tableferry.resources import extras
from tableferry.resources.errors import ConnectionFailed, InputError, TableferryError
from tableferry.sensors.sending import (
    ALERTS,
    GONE,
    Alert,
    is_configured,
    require_valid_variables,
    send,
)
from tests.sensors.conftest import Listener

PASSWORD = "s3cr3t-w0rd"
FAILED = Alert(
    "run_failed",
    "orders failed",
    "orders",
    "0123",
    errors=[f"<orders> & postgresql://me:{PASSWORD}@db is gone", *(f"line {n}" for n in range(30))],
)


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    """The password of a server, which an error should not show but does."""
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", f"postgresql://me:{PASSWORD}@db/shop")
    monkeypatch.setenv("TABLEFERRY_DAGSTER_URL", "https://dagster.example.com/")
    return PASSWORD


def test_a_service_gets_a_text_a_level_and_no_secret(listener: Listener, secret: str) -> None:
    assert is_configured()
    send(FAILED)
    send(Alert("check_failed", "a check failed", "orders"))
    body, warning = listener.bodies
    assert (body["title"], body["type"]) == ("Tableferry: orders failed", "failure")
    lines = body["message"].splitlines()
    assert lines[0] == "<orders> & postgresql://me:***@db is gone"
    assert lines[-2:] == ["... and 11 lines more", "https://dagster.example.com/runs/0123"]
    assert secret not in str(body)
    assert warning["type"] == "warning"


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


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with socket.socket() as free:  # the controller wants to know its port
        free.bind(("127.0.0.1", 0))
        made = Post(free.getsockname()[1], tmp_path / "ca.pem")
    controller = Controller(
        made,
        hostname="127.0.0.1",
        port=made.port,
        authenticator=made.authenticate,
        tls_context=context,
    )
    controller.start()
    yield made
    controller.stop()


def test_a_mail_is_sent_with_a_login_by_tls(
    post: Post, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(post.authority))
    url = (
        f"mailtos://ferry:p%40ss%2Fword@127.0.0.1:{post.port}?mode=starttls"
        "&to=ops@example.com,me@example.com&from=ferry@example.com&format=text"
    )
    monkeypatch.setenv(ALERTS, url)
    send(FAILED)
    assert {mail["To"] for mail in post.mails} == {"ops@example.com", "me@example.com"}
    mail = post.mails[0]
    assert mail["Subject"] == "Tableferry: orders failed"
    assert "ferry@example.com" in mail["From"]
    text = mail.get_content()
    assert "<orders> & postgresql://me:***@db is gone" in text
    assert "https://dagster.example.com/runs/0123" in text
    assert secret not in str(mail)
    assert set(post.logins) == {("ferry", "p@ss/word")}
    monkeypatch.setenv(ALERTS, url.replace("p%40ss", "wrong"))
    with pytest.raises(ConnectionFailed) as refused:
        send(FAILED)
    assert f"{ALERTS}: service 1 (mailtos) does not take the alert: " in str(refused.value)
    assert "wrong" not in str(refused.value)


def test_one_service_that_fails_stops_no_other(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = "json://127.0.0.1:1/hidden-token"
    monkeypatch.setenv(ALERTS, f"{away} {listener.url}")
    with pytest.raises(ConnectionFailed, match=r"service 1 \(json\) does not take") as seen:
        send(FAILED)
    assert "hidden-token" not in str(seen.value)
    assert len(listener.bodies) == 1


@pytest.mark.parametrize("url", ["mail.example.com", "slak://a/b/c", "mailto://", "json://h nope"])
def test_what_apprise_does_not_know_is_refused_without_repeating_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALERTS, url)
    require_valid_variables(sends=False)
    with pytest.raises(InputError, match=f"{ALERTS}: URL . of . is none that Apprise") as refused:
        require_valid_variables(sends=True)
    assert url not in str(refused.value) and "nope" not in str(refused.value)
    with pytest.raises(InputError, match="is none that Apprise can use"):
        defs()


def test_a_token_is_not_shown_decoded_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALERTS, "slack://T1JJ%21T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ")
    with pytest.raises(InputError, match=r"Token \(\*\*\*\) was specified"):
        require_valid_variables(sends=True)


@pytest.mark.parametrize("suffix", ["", "_FILE"])
@pytest.mark.parametrize("name", [*GONE, "TABLEFERRY_ALERT_TEAMS_URL"])
def test_a_variable_of_before_is_refused_with_what_to_write(
    name: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name + suffix, "")
    require_valid_variables(sends=True)
    monkeypatch.setenv(name + suffix, "https://hooks.example.com/hidden-token")
    with pytest.raises(InputError) as refused:
        defs()
    assert str(refused.value).startswith(f"{name}{suffix} is no longer read")
    assert f"write into {ALERTS} {GONE.get(name, 'a URL of Apprise')}" in str(refused.value)
    assert "hidden-token" not in str(refused.value)
    ended = CliRunner().invoke(main, ["status"])
    assert ended.exit_code == 2 and f"{name}{suffix} is no longer read" in ended.stderr


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_is_installed", lambda module: False)
    require_valid_variables(sends=True)
    monkeypatch.setenv(ALERTS, "json://127.0.0.1:1/hook")
    with pytest.raises(TableferryError, match=r"pip install 'tableferry\[alerts\]'"):
        require_valid_variables(sends=True)
