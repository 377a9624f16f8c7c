"""How one logs in to a SQL Server, and the settings of every session with it."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import InputError

DEFAULT, MANAGED = "ActiveDirectoryDefault", "ActiveDirectoryMSI"
PRINCIPAL, TOKEN = "ActiveDirectoryServicePrincipal", "ActiveDirectoryAccessToken"
METHODS = {name.lower(): name for name in (DEFAULT, MANAGED, PRINCIPAL, TOKEN)}
"""What `authentication` may be, by its small letters: the driver's names, but for the last one. The
driver's other ways ask a person."""

OPTIONS = ("authentication", "trusted_connection", "tenant")
SCOPE = "https://database.windows.net/.default"
"""What tokens are for: Azure SQL in the public cloud."""

TENANT = "AZURE_TENANT_ID"
"""Environment variable: the tenant of a service principal, as for Microsoft's own tools."""

KNOWN_AS = {
    DEFAULT: "a token of the identity that DefaultAzureCredential finds",
    MANAGED: "a token of the managed identity",
    PRINCIPAL: "a token of the service principal",
}


class Token(NamedTuple):
    """What the driver takes from a token provider."""

    token: str
    expires_on: float | None = None


@dataclass
class Login:
    """A way to log in.

    Args:
        settings: user, and password or whom to ask for it; those of the latest login.
        method: one of `METHODS`; empty for a password or Kerberos.
        kerberos: whether the ticket of this process is used.
        tenant: of a service principal.
    """

    settings: ConnectionSettings
    method: str = ""
    kerberos: bool = False
    tenant: str = ""

    def __str__(self) -> str:
        if self.kerberos:
            return "Kerberos"
        kind = "token" if self.method == TOKEN else "password"
        return KNOWN_AS.get(self.method, self.settings.secret(kind))

    @property
    def by_password(self) -> bool:
        """Whether a user and a password log in."""
        return not (self.kerberos or self.method)

    def parts(self) -> dict[str, str]:
        """Return the login's part of a connection string; a token is none."""
        if self.kerberos:
            return {"Trusted_Connection": "yes"}
        if self.method:
            return {}
        self.settings = replace(self.settings)
        return {"UID": self.settings.user or "", "PWD": self.settings.password or ""}

    @property
    def token_provider(self) -> Login | None:
        """What the driver asks for tokens, if it logs in with one.

        It asks for both of its connections, that for bulk copies as well. With a service principal
        that it was told of by name, its bulk copy freezes.
        https://github.com/microsoft/mssql-python/issues/662
        """
        return self if self.method else None

    def get_token(self, scope: str = SCOPE) -> Token:
        """Return a token for a login: a new one, or one that is good for some time yet.

        Raises:
            InputError: the program that prints it fails.
        """
        self.settings = settings = replace(self.settings)  # that has not asked for a password yet
        if self.method == TOKEN:
            return Token(settings.password or "")
        secret = settings.password if self.method == PRINCIPAL else None
        credential = _credential(self.method, settings.user, secret, self.tenant)
        return Token(credential.get_token(scope).token)

    @contextmanager
    def token_file(self, path: Path) -> Iterator[None]:
        """Have a token in a file of this user's for a program that reads it there."""
        if not self.method:
            yield
            return
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(self.get_token().token.encode("utf-16-le"))
            yield
        finally:
            path.unlink(missing_ok=True)


def login_of(settings: ConnectionSettings, declared: Mapping[str, str | None]) -> Login:
    """Read how to log in.

    Args:
        settings: the server's.
        declared: the values of `OPTIONS`.

    Raises:
        InputError: a value is not known, or what is declared contradicts itself.
    """
    named, trusted, tenant = (declared.get(name) or "" for name in OPTIONS)
    if trusted.lower() not in ("", "yes", "no"):
        raise InputError(f"sqlserver trusted_connection should be yes or no; found {trusted!r}")
    kerberos, method = trusted.lower() == "yes", METHODS.get(named.lower(), "")
    if named and not method:
        known = ", ".join(METHODS.values())
        raise InputError(f"sqlserver authentication should be one out of {known}; found {named!r}")
    secret = settings.has_password
    how = "trusted_connection=yes" if kerberos else f"authentication={method}"
    tenant = tenant or (os.environ.get(TENANT, "") if method == PRINCIPAL else "")
    if kerberos and method:
        raise InputError(f"sqlserver: {how} and authentication={method} are two ways to log in")
    if tenant and method != PRINCIPAL:
        raise InputError(f"sqlserver tenant is for authentication={PRINCIPAL} only")
    if (kerberos or method in (DEFAULT, MANAGED)) and secret:
        raise InputError(f"sqlserver {how} takes no password and no password_command")
    if (kerberos or method in (DEFAULT, TOKEN)) and settings.user:
        raise InputError(f"sqlserver {how} takes no user: that is found out from what logs in")
    if method == TOKEN and not secret:
        raise InputError(f"sqlserver {how} needs the token: a password_command that prints it")
    if method == PRINCIPAL and not (settings.user and secret and tenant):
        raise InputError(
            f"sqlserver {how} needs the application's id as user, its secret as password, and "
            f"tenant={{id}} or {TENANT}"
        )
    return Login(settings, method, kerberos, tenant)


@functools.lru_cache(8)
def _credential(method: str, user: str | None, secret: str | None, tenant: str) -> Any:
    """Return Microsoft's own source of tokens, which keeps each as long as it is good."""
    from azure import identity

    if method == PRINCIPAL:
        return identity.ClientSecretCredential(tenant, user or "", secret or "")
    if method == MANAGED:
        return identity.ManagedIdentityCredential(client_id=user)
    return identity.DefaultAzureCredential()


# its locks may be held by a thread of the parent
os.register_at_fork(after_in_child=_credential.cache_clear)


SESSION = {
    # a login's language decides whether '2024-02-01' is the first of February for a datetime; it
    # also sets DATEFORMAT, which Babelfish may refuse to set by itself
    "LANGUAGE": "us_english",
    "DATEFIRST": "7",
    "QUOTED_IDENTIFIER": "ON",
    "ANSI_NULLS": "ON",
    "ANSI_NULL_DFLT_ON": "ON",
    "ANSI_PADDING": "ON",
    # texts that are too long are refused, not cut
    "ANSI_WARNINGS": "ON",
    "ARITHABORT": "ON",
    "CONCAT_NULL_YIELDS_NULL": "ON",
    "NUMERIC_ROUNDABORT": "OFF",
    "IMPLICIT_TRANSACTIONS": "OFF",
    "CURSOR_CLOSE_ON_COMMIT": "OFF",
    # an error ends the whole transaction, not one statement
    "XACT_ABORT": "ON",
    # callers need the number of rows that a statement changed
    "NOCOUNT": "OFF",
    "ROWCOUNT": "0",
    "TEXTSIZE": "2147483647",
    "LOCK_TIMEOUT": "-1",  # of queries as `connecting.waiting` says
}
"""The isolation level stays at its default, READ COMMITTED, except where rows are read."""


def statements(settings: Mapping[str, str]) -> list[str]:
    """The statements that give a session its settings."""
    return [f"SET {name} {value}" for name, value in settings.items()]
