"""What a server's certificate is found to be, by real handshakes."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from tableferry.resources.connecting.health import Certificate, examine

Serve = Callable[[trustme.LeafCert], int]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def root(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a TLS server with a certificate; returns its port."""
    opened: list[socket.socket] = []

    def start(certificate: trustme.LeafCert) -> int:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        listening = socket.create_server(("127.0.0.1", 0))
        opened.append(listening)

        def answer() -> None:
            with suppress(OSError):
                while True:
                    plain, _ = listening.accept()
                    with suppress(OSError), context.wrap_socket(plain, server_side=True) as one:
                        one.recv(1)

        threading.Thread(target=answer, daemon=True).start()
        return int(listening.getsockname()[1])

    yield start
    for one in opened:
        one.close()


def test_a_good_certificate_tells_its_days(serve: Serve, authority: trustme.CA, root: str) -> None:
    ends = dt.datetime.now(dt.UTC) + dt.timedelta(days=20, hours=1)
    port = serve(authority.issue_cert("127.0.0.1", not_after=ends))
    assert examine("127.0.0.1", port, authority=root) == Certificate(days=20)


@pytest.mark.parametrize(
    ("name", "days", "trusted", "problem"),
    [
        ("127.0.0.1", -1, True, "certificate has expired"),
        ("elsewhere.test", 9, True, "not valid for '127.0.0.1'"),
        ("127.0.0.1", 9, False, "unable to get local issuer certificate"),
    ],
    ids=["expired", "another name", "unknown authority"],
)
def test_a_bad_certificate_tells_why(
    serve: Serve,
    authority: trustme.CA,
    root: str,
    name: str,
    days: int,
    trusted: bool,
    problem: str,
) -> None:
    ends = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    port = serve(authority.issue_cert(name, not_after=ends))
    found = examine("127.0.0.1", port, authority=root if trusted else None)
    assert found is not None
    assert problem in found.problem


def test_no_answer_is_no_finding() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert examine("127.0.0.1", taken.getsockname()[1]) is None
