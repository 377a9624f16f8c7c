"""Alerts, and what sends them: Apprise, to the services that one environment variable names."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from tableferry.resources import errors, extras
from tableferry.resources.connecting import names, passwords

if TYPE_CHECKING:
    import dagster as dg

ALERTS = "TABLEFERRY_ALERTS"
"""URLs of Apprise, with blanks between: `mailtos://user:password@host?to=me@example.com`."""

DAGSTER_URL = "TABLEFERRY_DAGSTER_URL"
"""The base URL of Dagster's web UI, for links to runs."""

GONE = {
    "TABLEFERRY_ALERT_URL": "its URL with jsons:// for https:// (json:// for http://)",
    "TABLEFERRY_ALERT_SLACK_URL": "its URL as it is, https://hooks.slack.com/services/...",
    "TABLEFERRY_ALERT_EMAIL": "mailtos://user:password@host?mode=ssl&to=me@example.com "
    "(mode=starttls for smtp://)",
}
"""Variables of releases before, and what to write instead."""

TIMEOUT_SECONDS = 10
MOST_LINES = 20
"""Maximum lines of an alert's text; the run has all of them."""

Kind = Literal[
    "run_failed", "check_failed", "ranges_given_up", "tick_failed", "queue_grows", "table_stale"
]
LEVELS: dict[Kind, str] = {
    "run_failed": "failure",
    "check_failed": "warning",
    "ranges_given_up": "failure",
    "tick_failed": "failure",
    "queue_grows": "warning",
    "table_stale": "warning",
}
"""What Apprise calls the level of each kind."""


@dataclass(frozen=True)
class Alert:
    """An event that needs attention."""

    kind: Kind
    text: str
    """A one-line summary."""
    transfer: str
    """The transfer, or several, or the job of a run that concerns none."""
    run_id: str | None = None
    errors: list[str] = field(default_factory=list)

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


def is_configured() -> bool:
    """Whether the environment names a service, directly or by a file."""
    return bool(os.environ.get(ALERTS) or os.environ.get(ALERTS + passwords.SUFFIX))


def require_valid_variables(*, sends: bool) -> None:
    """Make sure that no variable names a service to which nothing would be sent.

    Args:
        sends: whether alerts are sent from here, so that what is named has to be usable.

    Raises:
        InputError: one does. The message shows no URL, which is a password.
    """
    for name in sorted(os.environ):
        if name.startswith("TABLEFERRY_ALERT_") and os.environ[name]:
            instead = GONE.get(name.removesuffix(passwords.SUFFIX), "a URL of Apprise")
            raise errors.InputError(
                f"{name} is no longer read, so that nobody would be alerted: unset it, and write "
                f"into {ALERTS} {instead}"
            )
    if sends:
        _services()


def send(alert: Alert) -> None:
    """Send an alert to all services.

    Raises:
        InputError: they are not named as they should be.
        ConnectionFailed: one did not take it; the others were tried too. It is transient if none
            took it. No message shows a URL.
    """
    title, lines = redacted(alert.text), alert.lines()
    failed, services = [], _services()
    for number, (url, service) in enumerate(services, start=1):
        result = service.notify(
            body="\n".join(lines) or title,
            title=errors.shortened(f"Tableferry: {title}"),
            notify_type=LEVELS[alert.kind],
            body_format="text",
        )
        if not result:
            said = [entry.message for entry in result.logs() if entry.level == "WARNING"]
            reason = _masked(" ".join(said) or "it gives no reason", url)
            which = f"service {number} ({url.partition('://')[0]})"
            failed.append(f"{ALERTS}: {which} does not take the alert: {reason}")
    if failed:
        raise errors.ConnectionFailed("; ".join(failed), transient=len(failed) == len(services))


def tell(context: dg.SensorEvaluationContext, alert: Alert) -> tuple[str, bool]:
    """Log an alert, and send it to all services.

    Returns:
        Its text, or why it was not sent; and whether to send it again, as no service took it.
    """
    context.log.error(alert.text)
    try:
        send(alert)
    except errors.TableferryError as error:
        return str(error), getattr(error, "transient", False)
    return alert.text, False


def _services() -> list[tuple[str, Any]]:
    """Return the URL of each service, and what sends to it."""
    urls = (passwords.from_environment(ALERTS) or "").split()
    if not urls:
        return []
    extras.require("alerts", ALERTS)
    apprise = import_module("apprise")
    # nothing is loaded from elsewhere, and nothing kept in files
    asset = apprise.AppriseAsset(
        app_id="Tableferry",
        app_desc="Tableferry",
        app_url="",
        image_url_mask="",
        image_url_logo="",
        storage_mode="memory",
        service_timeout=TIMEOUT_SECONDS,
    )
    services = []
    for number, url in enumerate(urls, start=1):
        service = apprise.Apprise(asset=asset)
        with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as said:
            known = "://" in url and service.add(url)
            # those that have a URL in them show parts of passwords
            lines = (line for line in said.getvalue().splitlines() if "://" not in line)
            reason = _masked(next(lines, ""), url)
        if not known:
            raise errors.InputError(
                f"{ALERTS}: URL {number} of {len(urls)} is none that Apprise can use, such as "
                "mailtos://user:password@host?to=me@example.com or jsons://host/path; blanks stand "
                f"between several, and within one they are %20{f' ({reason})' if reason else ''}"
            )
        services.append((url, service))
    return services


def _masked(text: str, url: str) -> str:
    """Strike out of a text whatever a URL holds behind its scheme."""
    parts = re.split(r"[/:@?&=,+]+", url.partition("://")[2])
    for part in sorted((*parts, *map(unquote, parts)), key=len, reverse=True):
        if len(part) > 3:
            text = text.replace(part, "***")
    return text


def redacted(text: str) -> str:
    """Return a text on one line, without the passwords of the configured servers."""
    for name in names.connection_names():
        try:
            if url := names.connection_url(name):
                server = names.system_of(name).resource(url=url)
                text = server.settings().redact(text)
        except errors.InputError:
            continue
    return " ".join(text.split())
