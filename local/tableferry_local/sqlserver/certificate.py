"""The certificate of the SQL Server stand-in, of an authority that nobody else uses."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import trustme


def tls_context(folder: Path) -> ssl.SSLContext:
    """The server's side of TLS, with a certificate that is made in `folder` on first use.

    TLS 1.2 at most: in TDS 7.x the handshake travels inside of prelogin packets, where the tickets
    that TLS 1.3 sends after it have no place.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["tds/8.0"])
    certificate, key = folder / "server.pem", folder / "server.key"
    if not (certificate.exists() and key.exists()):
        folder.mkdir(parents=True, exist_ok=True)
        made = trustme.CA().issue_cert("localhost", "127.0.0.1", common_name="localhost")
        descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(made.private_key_pem.bytes())
        made.cert_chain_pems[0].write_to_path(certificate)
    context.load_cert_chain(certificate, key)
    return context
