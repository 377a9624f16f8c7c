"""Where alerts go: a web hook, a chat, a mailbox, each by one variable of the environment."""

from __future__ import annotations

import http.client
import json
import os
import smtplib
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from email.message import EmailMessage
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from tableferry.resources.connecting import secret_files
from tableferry.resources.connecting.names import connection_names, connection_url, system_of
from tableferry.resources.errors import ConnectionFailed, InputError, TableferryError
from tableferry.resources.registry import system

ALERT_URL = "TABLEFERRY_ALERT_URL"
"""Where each alert is POSTed as a JSON document."""

SLACK_URL = "TABLEFERRY_ALERT_SLACK_URL"
"""An incoming web hook of Slack, or of what takes the same: Mattermost, Rocket.Chat, Zulip."""

EMAIL = "TABLEFERRY_ALERT_EMAIL"
"""`smtp[s]://user:password@host:port/?to=a@b.c,d@e.f&from=g@h.i`."""

DAGSTER_URL = "TABLEFERRY_DAGSTER_URL"
"""Dagster's web UI, to which runs are linked."""

SECONDS = 10
MOST_LINES = 20
"""Of an alert's text; the run has them all."""


Kind = Literal["run_failed", "check_failed", "ranges_given_up"]


@dataclass(frozen=True)
class Alert:
    """Something that somebody should see."""

    kind: Kind
    text: str
    """One line."""
    job: str
    run_id: str | None = None
    first_range: str | None = None
    last_range: str | None = None
    errors: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """As JSON has it, without the passwords of any server."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        url = self.url
        return {
            "first_range": None,
            "last_range": None,
            **found,
            "text": redacted(self.text),
            "errors": [redacted(line) for line in self.errors],
            **({"url": url} if url else {}),
        }

    @property
    def url(self) -> str | None:
        """The run's page."""
        base = os.environ.get(DAGSTER_URL)
        return f"{base.rstrip('/')}/runs/{self.run_id}" if base and self.run_id else None

    def lines(self) -> list[str]:
        """What is the matter, in some lines without secrets."""
        every = [redacted(line) for error in self.errors for line in str(error).splitlines()]
        more = len(every) - MOST_LINES
        found = every[:MOST_LINES] + ([f"... and {more} lines more"] if more > 0 else [])
        return [*found, *([self.url] if self.url else [])]


def channels() -> list[str]:
    """The variables that say where alerts go, each by itself or by its file."""
    named = (ALERT_URL, SLACK_URL, EMAIL)
    return [
        name for name in named if os.environ.get(name) or os.environ.get(name + secret_files.SUFFIX)
    ]


def send(alert: Alert) -> None:
    """Send an alert everywhere.

    Raises:
        TableferryError: it was not taken by all; those that came after were tried, too. No message
            shows a URL, in which web hooks have their password.
    """
    senders = {ALERT_URL: _post_document, SLACK_URL: _post_to_slack, EMAIL: _mail}
    failed = []
    for name in channels():
        try:
            senders[name](secret_files.from_environment(name) or "", alert)
        except TableferryError as error:
            failed.append(str(error))
    if failed:
        raise ConnectionFailed("; ".join(failed))


def redacted(text: str) -> str:
    """A text without the passwords of the servers that the environment names, on one line."""
    for name in connection_names():
        try:
            if url := connection_url(name):
                server = system(system_of(name)).resource(url=url)
                text = server.settings().redact(text)
        except InputError:
            continue
    return " ".join(text.split())


def _post_document(url: str, alert: Alert) -> None:
    _post(url, alert.document(), ALERT_URL)


def _post_to_slack(url: str, alert: Alert) -> None:
    """See https://api.slack.com/reference/surfaces/formatting#escaping"""
    quoted = [f"> {_escaped(line)}" for line in alert.lines()]
    _post(url, {"text": "\n".join([f"*{_escaped(redacted(alert.text))}*", *quoted])}, SLACK_URL)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _post(url: str, document: Mapping[str, Any], variable: str) -> None:
    request = urllib.request.Request(
        url, json.dumps(document).encode(), {"Content-Type": "application/json"}
    )
    try:
        urllib.request.urlopen(request, timeout=SECONDS).close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        # a wrong URL is quoted in the error
        why = type(error).__name__ if isinstance(error, ValueError) else error
        raise ConnectionFailed(f"{variable} does not take the alert: {why}") from None


@dataclass(frozen=True)
class Mailbox:
    """Where mails go, and by which server."""

    host: str
    port: int
    tls: bool
    """From the first byte."""
    to: tuple[str, ...]
    sender: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    starttls: bool = True
    authority: str | None = None

    @classmethod
    def read(cls, url: str) -> Mailbox:
        """Read the value of `TABLEFERRY_ALERT_EMAIL`.

        Raises:
            InputError: it is none. The message does not repeat it.
        """
        expected = f"{EMAIL} should look like smtps://user:password@host:465/?to=me@example.com"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise InputError(expected) from None
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        to = tuple(one.strip() for one in options.get("to", "").split(",") if one.strip())
        if parts.scheme not in ("smtp", "smtps") or not parts.hostname or not to:
            raise InputError(expected)
        unknown = options.keys() - {"to", "from", "starttls", "ca"}
        if unknown:
            raise InputError(f"{EMAIL} cannot have the option {', '.join(sorted(unknown))}")
        tls = parts.scheme == "smtps"
        return cls(
            parts.hostname,
            port or (465 if tls else 587),
            tls,
            to,
            options.get("from", to[0]),
            None if parts.username is None else unquote(parts.username),
            None if parts.password is None else unquote(parts.password),
            options.get("starttls", "yes") != "no",
            options.get("ca"),
        )


def _mail(url: str, alert: Alert) -> None:
    """RFC 5321 and 3207; a password travels encrypted only, unless `starttls=no` says otherwise."""
    box = Mailbox.read(url)
    message = EmailMessage()
    message["Subject"] = f"Tableferry: {redacted(alert.text)}"[:200]
    message["From"], message["To"] = box.sender, ", ".join(box.to)
    message.set_content("\n".join([redacted(alert.text), "", *alert.lines(), ""]))
    try:
        context = ssl.create_default_context(cafile=box.authority)
        with _connected(box, context) as server:
            if not box.tls and box.starttls and server.has_extn("starttls"):
                server.starttls(context=context)
            elif not box.tls and box.starttls and box.user is not None:
                raise ConnectionFailed(
                    f"{EMAIL}: {box.host} offers no TLS, and would see the password in the clear; "
                    "use smtps://, or add &starttls=no"
                )
            if box.user is not None:
                server.login(box.user, box.password or "")
            server.send_message(message)
    except (OSError, smtplib.SMTPException) as error:
        why = str(error).replace(box.password, "***") if box.password else str(error)
        raise ConnectionFailed(f"{EMAIL}: {box.host}:{box.port} does not take it: {why}") from None


def _connected(box: Mailbox, context: ssl.SSLContext) -> smtplib.SMTP:
    if box.tls:
        return smtplib.SMTP_SSL(box.host, box.port, timeout=SECONDS, context=context)
    server = smtplib.SMTP(box.host, box.port, timeout=SECONDS)
    server.ehlo()
    return server
