"""A server's address and login."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol
from urllib.parse import quote

from tableferry.resources.contract.facts import Facts, facts_of
from tableferry.resources.errors import ConnectionFailed

SHORTEST_IN_PROSE = 4
"""Characters of a password that is removed wherever a text has it."""
_BEFORE_PASSWORD = (
    r"(?i:pass(?:word|wd|phrase)?|pwd)[\"']?\s*(?:[:=]|is|for)?\s*[\"'{]?|://[^/\s@:]*:"
)


def without_password(text: str, password: str | None) -> str:
    """Remove a password, plain or percent-encoded, from a text.

    One that is too short to be told from prose is removed where passwords stand.
    """
    if not password:
        return text
    forms = {password, quote(password, safe=""), quote(password)}
    for secret in sorted(forms, key=len, reverse=True):
        if len(password) >= SHORTEST_IN_PROSE:
            text = text.replace(secret, "***")
        else:
            place = rf"({_BEFORE_PASSWORD}){re.escape(secret)}(?!\w)"
            text = re.sub(place, r"\1***", text)
    return text


DigestsBy = Literal["auto", "server", "client"]
"""Who computes row digests; for `auto` see `digest.placement`."""


@dataclass(frozen=True)
class Scheme:
    """What a URL's scheme implies: a default port, and options."""

    port: int
    options: Mapping[str, str] = field(default_factory=dict)


class PasswordSource(Protocol):
    """What is asked for a password again after it was refused."""

    def forget(self, refused: str | None) -> bool:
        """Forget a refused password; return whether the next one may be let in."""


@dataclass(frozen=True)
class ConnectionSettings:
    """How to reach a server. Its printed form shows neither user nor password."""

    system: str
    host: str
    port: int
    database: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The URL's query parameters, and its scheme's options (for ClickHouse `secure: yes|no`)."""
    more_hosts: tuple[tuple[str, int], ...] = ()
    """Further hosts and ports, which the driver tries after the first."""
    password_command: PasswordSource | None = field(default=None, repr=False, compare=False)
    """Where the password comes from, if a program prints it."""

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        """All hosts and their ports, in the order in which they are tried."""
        return ((self.host, self.port), *self.more_hosts)

    @property
    def address(self) -> str:
        """`system at host:port`, for errors and logs; files have no port."""
        if not self.port:
            return f"{self.system} at {self.host}"
        written = (
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts
        )
        return f"{self.system} at {','.join(written)}"

    def __str__(self) -> str:
        return self.address

    @property
    def facts(self) -> Facts:
        """What this process has learned about the connection."""
        options = tuple(sorted(self.options.items()))
        return facts_of((self.address, self.database, self.user, options))

    def redact(self, text: str) -> str:
        """Remove the password, see `without_password`, and join lines."""
        return " ".join(without_password(text, self.password).split())

    def failed(self, reason: str, *, transient: bool = False) -> ConnectionFailed:
        """Return the error that says why this server cannot be used.

        A password that was kept is forgotten: trying again asks for a new one.
        """
        command, outdated = self.password_command, False
        if command is not None:
            outdated = command.forget(self.password)
        error = ConnectionFailed(
            f"cannot connect to {self.address}: {self.redact(reason)}",
            transient=transient or outdated,
            address=self.address,
        )
        error.outdated_password = outdated
        return error
