"""How one logs in to a ClickHouse: by a password, a token, or a certificate."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import InputError

OPTIONS = ("authentication", "client_cert", "client_key")


@dataclass(frozen=True)
class Credentials:
    """A way to log in.

    Args:
        token: whether the password is sent as a bearer token.
        certificate: the file of our own certificate; it logs in if there is no password.
        key: the file of its key, if that is not in the certificate's.
    """

    token: bool = False
    certificate: str = ""
    key: str = ""

    def arguments(self, settings: ConnectionSettings, user: str) -> dict[str, Any]:
        """Return what the driver is told."""
        return {
            "username": "" if self.token else user,
            "password": "" if self.token else settings.password or "",
            "access_token": settings.password if self.token else None,
            "client_cert": self.certificate or None,
            "client_cert_key": self.key or None,
            # with a password, the certificate is shown for TLS alone
            "tls_mode": "strict" if settings.has_password else None,
        }

    def written(self) -> tuple[float, ...]:
        """Return when the files of the certificate were written, as they are renewed.

        Raises:
            InputError: there is no such file.
        """
        try:
            return tuple(os.stat(one).st_mtime for one in (self.certificate, self.key) if one)
        except OSError as error:
            reason = (error.strerror or "").lower()
            raise InputError(f"clickhouse client_cert: {error.filename}: {reason}") from None


def login_of(
    settings: ConnectionSettings, declared: Mapping[str, str | None], *, secure: bool
) -> Credentials:
    """Read how to log in.

    Args:
        settings: the server's.
        declared: the values of `OPTIONS`.
        secure: whether the connection has TLS.

    Raises:
        InputError: a value is not known, or what is declared contradicts itself.
    """
    named, certificate, key = (declared.get(name) or "" for name in OPTIONS)
    if named not in ("", "password", "token"):
        raise InputError(f"clickhouse authentication should be password or token; found {named!r}")
    if key and not certificate:
        raise InputError("clickhouse client_key needs client_cert")
    if certificate and not secure:
        raise InputError("clickhouse client_cert needs https://")
    if named == "token" and not settings.has_password:
        raise InputError(
            "clickhouse authentication=token needs the token: a password_command that prints it"
        )
    if named == "token" and settings.user:
        raise InputError("clickhouse authentication=token takes no user: the token says who")
    return Credentials(named == "token", certificate, key)
