"""Sends alerts to a web hook, a chat or a mailbox, each named by an environment variable."""

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
from html import escape
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from tableferry.resources.connecting import secret_files
from tableferry.resources.connecting.names import connection_names, connection_url, system_of
from tableferry.resources.contract.settings import without_password
from tableferry.resources.errors import ConnectionFailed, InputError, TableferryError

ALERT_URL = "TABLEFERRY_ALERT_URL"
"""A URL to which each alert is POSTed as a JSON document."""

SLACK_URL = "TABLEFERRY_ALERT_SLACK_URL"
"""An incoming web hook of Slack, or of a compatible chat: Mattermost, Rocket.Chat, Zulip."""

EMAIL = "TABLEFERRY_ALERT_EMAIL"
"""`smtp[s]://user:password@host:port/?to=a@b.c,d@e.f&from=g@h.i`."""

DAGSTER_URL = "TABLEFERRY_DAGSTER_URL"
"""The base URL of Dagster's web UI, for links to runs."""

TIMEOUT_SECONDS = 10
MOST_LINES = 20
"""Maximum lines of an alert's text; the run has all of them."""


Kind = Literal["run_failed", "check_failed", "ranges_given_up"]


@dataclass(frozen=True)
class Alert:
    """An event that needs attention."""

    kind: Kind
    text: str
    """A one-line summary."""
    transfer: str
    """The transfer, or several, or the job of a run that concerns none."""
    run_id: str | None = None
    first_range: str | None = None
    last_range: str | None = None
    errors: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the JSON form, with passwords redacted."""
        fields = asdict(self) | {"url": self.url, "text": redacted(self.text)}
        fields["errors"] = [redacted(line) for line in self.errors]
        return {
            name: value
            for name, value in fields.items()
            if value is not None or name not in ("run_id", "url")
        }

    @property
    def url(self) -> str | None:
        """The run's page in Dagster."""
        base = os.environ.get(DAGSTER_URL)
        return f"{base.rstrip('/')}/runs/{self.run_id}" if base and self.run_id else None

    def lines(self) -> list[str]:
        """Return the first lines of the errors, redacted, and the run's page."""
        lines = [redacted(line) for error in self.errors for line in str(error).splitlines()]
        more = len(lines) - MOST_LINES
        shown = lines[:MOST_LINES] + ([f"... and {more} lines more"] if more > 0 else [])
        return [*shown, *([self.url] if self.url else [])]


def channels() -> list[str]:
    """Return the channel variables that are set, directly or by a file."""
    return [
        name
        for name in (ALERT_URL, SLACK_URL, EMAIL)
        if os.environ.get(name) or os.environ.get(name + secret_files.SUFFIX)
    ]


def send(alert: Alert) -> None:
    """Send an alert to all channels.

    Raises:
        TableferryError: a channel failed; the others were tried too. No message shows a URL,
            which is a web hook's password.
    """
    errors = []
    for name in channels():
        try:
            url = secret_files.from_environment(name) or ""
            if name == EMAIL:
                _mail(url, alert)
            else:
                _post(url, _slack_message(alert) if name == SLACK_URL else alert.document(), name)
        except TableferryError as error:
            errors.append(str(error))
    if errors:
        raise ConnectionFailed("; ".join(errors))


def redacted(text: str) -> str:
    """Return a text on one line, without the passwords of the configured servers."""
    for name in connection_names():
        try:
            if url := connection_url(name):
                server = system_of(name).resource(url=url)
                text = server.settings().redact(text)
        except InputError:
            continue
    return " ".join(text.split())


def _slack_message(alert: Alert) -> dict[str, str]:
    """Format an alert by https://api.slack.com/reference/surfaces/formatting#escaping."""
    quoted = [f"> {escape(line, quote=False)}" for line in alert.lines()]
    return {"text": "\n".join([f"*{escape(redacted(alert.text), quote=False)}*", *quoted])}


def _post(url: str, document: Mapping[str, Any], variable: str) -> None:
    request = urllib.request.Request(
        url, json.dumps(document).encode(), {"Content-Type": "application/json"}
    )
    try:
        urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS).close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        # a ValueError quotes the URL
        reason = type(error).__name__ if isinstance(error, ValueError) else error
        raise ConnectionFailed(f"{variable} does not take the alert: {reason}") from None


@dataclass(frozen=True)
class Mailbox:
    """The recipients of mails, and the server that delivers them."""

    host: str
    port: int
    tls: bool
    """Whether the connection is encrypted from its first byte."""
    to: tuple[str, ...]
    sender: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    starttls: bool = True
    authority: str | None = None

    @classmethod
    def parse(cls, url: str) -> Mailbox:
        """Parse the value of `TABLEFERRY_ALERT_EMAIL`.

        Raises:
            InputError: the value is invalid. The message does not repeat it.
        """
        expected = f"{EMAIL} should look like smtps://user:password@host:465/?to=me@example.com"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise InputError(expected) from None
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        addresses = (address.strip() for address in options.get("to", "").split(","))
        to = tuple(address for address in addresses if address)
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
    """Send by RFC 5321 and 3207; without TLS no password is sent, unless `starttls=no` is given."""
    box = Mailbox.parse(url)
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
        reason = without_password(str(error), box.password)
        address = f"{box.host}:{box.port}"
        raise ConnectionFailed(f"{EMAIL}: {address} does not take it: {reason}") from None


def _connected(box: Mailbox, context: ssl.SSLContext) -> smtplib.SMTP:
    if box.tls:
        return smtplib.SMTP_SSL(box.host, box.port, timeout=TIMEOUT_SECONDS, context=context)
    server = smtplib.SMTP(box.host, box.port, timeout=TIMEOUT_SECONDS)
    server.ehlo()
    return server
