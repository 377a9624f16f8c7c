"""A server's address and login."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol
from urllib.parse import quote

from tableferry.resources.contract.facts import Facts, facts_of
from tableferry.resources.errors import ConnectionFailed

URL_HINT = (
    "; in a URL, the special characters of a password are to be percent-encoded: % as %25, "
    "@ as %40, # as %23"
)

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
    """What is asked for a password when somebody logs in, and again after it was refused."""

    @property
    def key(self) -> str:
        """What only this source has; no secret."""

    def password(self) -> str:
        """Return the password, which may be one that was given before."""

    def forget(self, refused: str) -> bool:
        """Forget a refused password; return whether the next one may be let in."""

    def given(self) -> Sequence[str]:
        """Return the latest passwords, without asking."""


@dataclass(frozen=True)
class ConnectionSettings:
    """How to reach a server. Its printed form shows neither user nor password."""

    system: str
    host: str
    port: int
    database: str
    user: str | None = field(default=None, repr=False)
    given_password: str | None = field(default=None, repr=False)
    """The password, if none has to be asked for it."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The URL's query parameters, and its scheme's options (for ClickHouse `secure: yes|no`)."""
    more_hosts: tuple[tuple[str, int], ...] = ()
    """Further hosts and ports, which the driver tries after the first."""
    password_source: PasswordSource | None = field(default=None, repr=False)
    """Whom to ask for the password otherwise."""
    variable: str | None = field(default=None, repr=False, compare=False)
    """The environment variable that says where the server is, if one does."""

    @cached_property
    def password(self) -> str | None:
        """The password for a login.

        Raises:
            InputError: the source gives none.
        """
        source = self.password_source
        return self.given_password if source is None else source.password()

    def secret(self, kind: str = "password") -> str:
        """Say for people where the password comes from, or what else takes its place."""
        if self.password_source is not None:
            return f"a {kind} of {self.password_source}"
        return f"no {kind}" if self.given_password is None else f"a {kind}"

    @property
    def has_password(self) -> bool:
        """Whether there is a password, or somebody to ask for it."""
        return self.password_source is not None or self.given_password is not None

    @property
    def for_pool(self) -> ConnectionSettings:
        """What sessions have in common: those of one source's passwords are alike."""
        if self.password_source is None:
            return self
        return replace(self, given_password=self.password_source.key, password_source=None)

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
        source = self.password_source
        for password in (self.given_password,) if source is None else source.given():
            text = without_password(text, password)
        return " ".join(text.split())

    def failed(
        self, reason: str, *, transient: bool = False, refused: bool = False
    ) -> ConnectionFailed:
        """Return the error that says why this server cannot be used.

        Args:
            reason: says why.
            transient: whether it may work later.
            refused: whether the login was refused. A password that was kept is forgotten then, so
                that trying again asks for a new one.
        """
        source = self.password_source
        # nobody is asked for a password to forget it
        used = vars(self).get("password")
        outdated = refused and source is not None and used is not None and source.forget(used)
        given = self.given_password or ""
        hint = URL_HINT if refused and source is None and quote(given, safe="") != given else ""
        named = f" ({self.variable})" if self.variable else ""
        error = ConnectionFailed(
            f"cannot connect to {self.address}{named}: {self.redact(reason)}{hint}",
            transient=transient or outdated,
            address=None if outdated else self.address,  # it is not away
        )
        error.outdated_password = outdated
        return error
