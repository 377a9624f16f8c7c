"""What can be the matter with a server, as its system finds it out, and with its certificate."""

from __future__ import annotations

import ipaddress
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tableferry.resources.contract.catalog import Finding
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import TableferryError
from tableferry.resources.words import counted

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


MOST_SKEW = 5.0
"""Seconds between two clocks that do no harm; a run's times and a schedule's go by both."""

EXPIRES_SOON = 30
"""Days."""

LEAST_FREE = 0.1
"""The share of a disk; staging tables soon fill a tenth of it."""


Check = Callable[[], Iterable[Finding]]


def asked(checks: Sequence[tuple[str, Check]]) -> Iterator[Finding]:
    """Make checks one after the other; one that the server refuses to answer stops no other.

    Args:
        checks: by subject.
    """
    for subject, check in checks:
        try:
            yield from check()
        except TableferryError as error:
            yield Finding(subject, "note", f"the server does not say: {error}")


def clock(endpoint: Endpoint, seconds: str) -> Iterator[Finding]:
    """Whether the server's clock agrees with this machine's.

    Args:
        endpoint: the server.
        seconds: a query of its time, in seconds since 1970 in UTC.
    """
    endpoint.query(seconds)  # logging in is not to count
    before = time.time()
    server = float(endpoint.query(seconds)[0][0])
    after = time.time()
    off = server - (before + after) / 2
    if abs(off) <= MOST_SKEW + (after - before) / 2:
        yield Finding("clock", "ok", "agrees with this machine's")
        return
    which = "ahead of" if off > 0 else "behind"
    yield Finding(
        "clock",
        "warning",
        f"{abs(off):,.0f} s {which} this machine's",
        ("Let NTP keep the time on both.",),
    )


def disk(name: str, free: int, total: int) -> Finding:
    """How full a disk is.

    Args:
        name: of the disk.
        free: bytes.
        total: bytes.
    """
    says = f"{name}: {free / 2**30:,.1f} of {total / 2**30:,.1f} GiB are free"
    if total and free < LEAST_FREE * total:
        do = ("A range is there twice until it is published: make room, or cut smaller ranges.",)
        return Finding("disk", "warning", says, do)
    return Finding("disk", "ok", says)


def disk_of(folder: Path, name: str | None = None) -> Finding:
    """How full the disk is that a folder is on, or will be.

    Args:
        folder: which need not be there yet.
        name: of the disk; the folder, or what is there of its path, if not given.
    """
    there = next(one for one in (folder, *folder.parents) if one.is_dir())
    room = shutil.disk_usage(there)
    return disk(name or str(there), room.free, room.total)


def local(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("/")


def encryption(
    host: str, encrypted: str | None, *, verified: bool, certificate: Certificate | None, do: str
) -> Iterator[Finding]:
    """What keeps the connection's contents from others, and others from posing as the server.

    Args:
        host: of the server.
        encrypted: by what, e.g. `TLSv1.3`; None if the connection is in the clear.
        verified: the connection was refused if the certificate were not the server's.
        certificate: what the server shows; None if that was not found out.
        do: how to have it verified.
    """
    here = local(host)
    if encrypted is None:
        says = "the connection is not encrypted"
        if here:
            yield Finding("TLS", "ok", f"{says}, and does not leave this machine")
        else:
            yield Finding("TLS", "warning", f"{says}: passwords and rows can be read", (do,))
        return
    if verified:
        yield Finding("TLS", "ok", f"{encrypted}, and the certificate is verified")
    else:
        says = f"{encrypted}, but the certificate is not verified: anybody could pose as the server"
        yield Finding("TLS", "note" if here else "warning", says, (do,))
    if certificate is not None:
        yield from _certificate(certificate)


def _certificate(found: Certificate) -> Iterator[Finding]:
    if found.problem:
        says = f"would not be accepted: {found.problem}"
        yield Finding("certificate", "note", says)
    elif found.days is not None:
        soon = found.days < EXPIRES_SOON
        yield Finding(
            "certificate",
            "warning" if soon else "ok",
            f"is valid for {found.days} days more",
            ("Renew it.",) if soon else (),
        )


def login(user: str, how: str) -> Finding:
    """Who one is logged in as.

    Args:
        user: as the server says.
        how: by what kind of secret; never the secret.
    """
    return Finding("login", "ok", f"{user}, by {how}")


def privileges(user: str, missing: Sequence[str], looked_at: int) -> Iterator[Finding]:
    """What a login lacks.

    Args:
        user: the login.
        missing: the statements that would grant it.
        looked_at: how many tables were looked at.
    """
    tables = counted(looked_at, "table")
    if missing:
        says = f"{user} lacks what the transfers of {tables} need; as an administrator:"
        yield Finding("privileges", "problem", says, tuple(missing))
    elif looked_at:
        yield Finding("privileges", "ok", f"{user} has what the transfers of {tables} need")
    else:
        yield Finding("privileges", "note", f"{user}: no transfer uses this server yet")
