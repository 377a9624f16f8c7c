"""Looks at the certificate that a server shows, by a handshake of its own."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

SECONDS = 10


@dataclass(frozen=True)
class Certificate:
    """What came of verifying a server's certificate, whatever its connections are told to do."""

    problem: str = ""
    """Why it would not be accepted."""
    days: int | None = None
    """Until it expires."""


Start = Callable[[socket.socket], bool]
"""Asks a server for TLS, as its protocol wants it; False if it has none."""

Handshake = Callable[[socket.socket, ssl.SSLContext, str], "ssl.SSLSocket | ssl.SSLObject"]


def _at_once(plain: socket.socket) -> bool:
    return True


def _wrapped(plain: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    return context.wrap_socket(plain, server_hostname=host)


def look(
    host: str,
    port: int,
    *,
    authority: str | None = None,
    start: Start = _at_once,
    handshake: Handshake = _wrapped,
) -> Certificate | None:
    """Verify a server's certificate.

    Args:
        host: its name, which the certificate should have.
        port: TCP port.
        authority: file of another root certificate.
        start: what comes before the handshake.
        handshake: makes it.

    Returns:
        None if the server has no TLS, or did not answer as it should.
    """
    try:
        context = ssl.create_default_context(cafile=authority)
        with socket.create_connection((host, port), timeout=SECONDS) as plain:
            if not start(plain):
                return None
            secured = handshake(plain, context, host)
            shown = secured.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        return Certificate(problem=error.verify_message)
    except (OSError, ValueError):
        return None
    expires = shown.get("notAfter")
    if not isinstance(expires, str):
        return Certificate()
    return Certificate(days=int((ssl.cert_time_to_seconds(expires) - time.time()) // 86_400))
