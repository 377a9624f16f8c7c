"""Alerts by web hook, chat and mail: what is sent, and no secret in it."""

from __future__ import annotations

import smtplib
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

from tableferry.resources.errors import TableferryError
from tableferry.sensors.channels import ALERT_URL, EMAIL, SLACK_URL, Alert, Mailbox, channels, send
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
    assert lines[0] == "*orders failed*"
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
    assert mail["Subject"] == "Tableferry: orders failed"
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
