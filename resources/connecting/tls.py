"""Verifies the certificate that a server presents, by a handshake of its own."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

SECONDS = 10


@dataclass(frozen=True)
class Certificate:
    """The result of verifying a server's certificate, even if its connections do not verify it."""

    problem: str = ""
    """Why it would be rejected; empty if it would not."""
    days: int | None = None
    """Days until it expires."""


Start = Callable[[socket.socket], bool]
"""Requests TLS by the server's protocol; False if the server has none."""

Handshake = Callable[[socket.socket, ssl.SSLContext, str], "ssl.SSLSocket | ssl.SSLObject"]


def _handshake(plain: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    return context.wrap_socket(plain, server_hostname=host)


def examine(
    host: str,
    port: int,
    *,
    authority: str | None = None,
    start: Start = lambda plain: True,
    handshake: Handshake = _handshake,
) -> Certificate | None:
    """Verify a server's certificate.

    Args:
        host: the server's name, which the certificate should be for.
        port: its TCP port.
        authority: the file of another root certificate.
        start: comes before the handshake.
        handshake: makes the handshake.

    Returns:
        None if the server has no TLS, or did not answer as it should.
    """
    try:
        context = ssl.create_default_context(cafile=authority)
        with socket.create_connection((host, port), timeout=SECONDS) as plain:
            if not start(plain):
                return None
            secured = handshake(plain, context, host)
            certificate = secured.getpeercert() or {}
            if isinstance(secured, ssl.SSLSocket):  # it has taken the connection over
                secured.close()
    except ssl.SSLCertVerificationError as error:
        return Certificate(problem=error.verify_message)
    except (OSError, ValueError):
        return None
    expires = certificate.get("notAfter")
    if not isinstance(expires, str):
        return Certificate()
    return Certificate(days=int((ssl.cert_time_to_seconds(expires) - time.time()) // 86_400))
