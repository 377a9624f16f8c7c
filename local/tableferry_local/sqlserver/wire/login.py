"""The beginning of a TDS connection: prelogin, TLS, LOGIN7 ([MS-TDS] 2.2.6.4 and 2.2.6.5).

Of federated logins it knows those that bring their token along.
"""

from __future__ import annotations

import hmac
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tableferry_local.sqlserver.types.sqltype import LIMITED
from tableferry_local.sqlserver.wire import federated, tokens
from tableferry_local.sqlserver.wire.packets import (
    DEFAULT_PACKET_SIZE,
    LOGIN7,
    MAX_ENCRYPTED_PACKET_SIZE,
    MAX_PACKET_SIZE,
    MIN_PACKET_SIZE,
    PRELOGIN,
    REPLY,
    Packets,
    ProtocolError,
    Transport,
)

_VERSION, _ENCRYPTION, _INSTANCE, _THREAD, _MARS, _FEDERATED, _END = 0, 1, 2, 3, 4, 6, 0xFF
_ENCRYPT_OFF, _ENCRYPT_ON, _ENCRYPT_NOT_SUPPORTED = 0, 1, 2
_TLS_HANDSHAKE = 0x16
_UTF8_SUPPORT, _FEDERATED_LOGIN = 0x0A, 0x02
_SECURITY_TOKEN = 1
"""The library of a federated login that brings its token along."""
# TDS 7.2 brought the 64-bit row counts and the headers that the rest of this server speaks.
_OLDEST, _TDS_8 = 0x72090002, 0x08000000
_SERVER_LOGIN_FAILED = 18456


@dataclass(frozen=True)
class Login:
    """What LOGIN7 asks for."""

    user: str
    password: str = field(repr=False)
    database: str
    language: str
    host: str
    application: str
    packet_size: int
    tds_version: int
    features: frozenset[int]
    token: str | None = field(default=None, repr=False)
    """Stands in the place of user and password."""


class LoginRefused(Exception):
    """The client was told so already."""


def greet(transport: Transport, packets: Packets, context: ssl.SSLContext) -> Login:
    """Take the connection up to the login's receipt.

    Raises:
        ProtocolError: the client does not speak TDS 7.2 or later.
        Disconnected: it left, or did not like the certificate.
    """
    strict = transport.peek(1)[0] == _TLS_HANDSHAKE
    if strict:
        transport.direct_handshake(context)
    message = packets.receive_message()
    if message.type != PRELOGIN:
        raise ProtocolError(f"a connection should begin with a prelogin; it is {message.type}")
    options = _options(message.payload)
    answer = _encryption(options.get(_ENCRYPTION, b"\x02")[0], strict)
    packets.send(REPLY, _prelogin(answer, options.get(_FEDERATED)))
    if not strict and answer != _ENCRYPT_NOT_SUPPORTED:
        transport.wrapped_handshake(context)
    message = packets.receive_message()
    if not strict and answer == _ENCRYPT_OFF:
        transport.end_tls()
    if message.type != LOGIN7:
        raise ProtocolError(f"a login should follow the prelogin; it is {message.type}")
    return read_login(message.payload)


def _encryption(wanted: int, strict: bool) -> int:
    """OFF on both sides encrypts the login alone."""
    if strict or wanted == _ENCRYPT_NOT_SUPPORTED:
        return _ENCRYPT_NOT_SUPPORTED
    return _ENCRYPT_OFF if wanted == _ENCRYPT_OFF else _ENCRYPT_ON


def _options(payload: bytes) -> dict[int, bytes]:
    options, at = {}, 0
    while at < len(payload) and payload[at] != _END:
        kind, start, length = struct.unpack_from(">BHH", payload, at)
        options[kind] = payload[start : start + length]
        at += 5
    return options


def _prelogin(encryption: int, federated: bytes | None = None) -> bytes:
    major, minor, build = tokens.VERSION
    options = {
        _VERSION: struct.pack(">BBHH", major, minor, build, 0),
        _ENCRYPTION: bytes((encryption,)),
        _INSTANCE: b"\0",
        _THREAD: b"",
        _MARS: b"\0",
    } | ({} if federated is None else {_FEDERATED: federated})
    head, body = b"", b""
    start = 5 * len(options) + 1
    for kind, value in options.items():
        head += struct.pack(">BHH", kind, start + len(body), len(value))
        body += value
    return head + bytes((_END,)) + body


def read_login(data: bytes) -> Login:
    """Read a LOGIN7 message."""

    def text(at: int) -> str:
        return raw(at).decode("utf-16-le")

    def raw(at: int) -> bytes:
        start, length = struct.unpack_from("<HH", data, at)
        return data[start : start + 2 * length]

    _, version, packet_size = struct.unpack_from("<III", data, 0)
    if version != _TDS_8 and version < _OLDEST:
        raise ProtocolError(f"TDS 7.2 or later is needed; the client has 0x{version:08X}")
    features = _features(data) if data[27] & 0x10 else {}
    # Each byte of the password has its halves exchanged and is combined with A5.
    hidden = bytes(((byte ^ 0xA5) << 4 | (byte ^ 0xA5) >> 4) & 0xFF for byte in raw(44))
    return Login(
        user=text(40),
        password=hidden.decode("utf-16-le", "replace"),
        database=text(68),
        language=text(64),
        host=text(36),
        application=text(48),
        packet_size=packet_size,
        tds_version=version,
        features=frozenset(features),
        token=_token(features[_FEDERATED_LOGIN]) if _FEDERATED_LOGIN in features else None,
    )


def _token(feature: bytes) -> str:
    if feature[0] >> 1 != _SECURITY_TOKEN:
        raise ProtocolError("a federated login should bring its token along")
    (length,) = struct.unpack_from("<I", feature, 1)
    return feature[5 : 5 + length].decode("utf-16-le", "replace")


def _features(data: bytes) -> Mapping[int, bytes]:
    (pointer,) = struct.unpack_from("<H", data, 56)
    (at,) = struct.unpack_from("<I", data, pointer)
    found = {}
    while at + 5 <= len(data) and data[at] != 0xFF:
        kind, length = struct.unpack_from("<BI", data, at)
        found[kind] = data[at + 5 : at + 5 + length]
        at += 5 + length
    return found


def accepted(login: Login, user: str, password: str) -> Login | None:
    """Return the login if it is the one that the server was started with, or its `LIMITED` one."""
    if login.token is not None:
        bearer = federated.user_of(login.token, password)
        return replace(login, user=bearer) if bearer and bearer.lower() == user.lower() else None
    same = hmac.compare_digest(login.password.encode(), password.encode())
    return login if same and login.user.lower() in (user.lower(), user.lower() + LIMITED) else None


def refusal(login: Login, server: str, *also: bytes) -> bytes:
    """The reply to a login that is refused; `also` are tokens that say why."""
    user = login.user if login.token is None else "<token-identified principal>"
    text = f"Login failed for user '{user}'."
    message = tokens.message(_SERVER_LOGIN_FAILED, text, severity=14, server=server)
    return b"".join(also) + message + tokens.done(status=tokens.ERROR)


def welcome(
    login: Login, database: str, server: str, *, encrypted: bool = False
) -> tuple[bytes, int]:
    """The reply to a login, and the packet size from then on."""
    size = login.packet_size or DEFAULT_PACKET_SIZE
    largest = MAX_ENCRYPTED_PACKET_SIZE if encrypted else MAX_PACKET_SIZE
    size = min(max(size, MIN_PACKET_SIZE), largest)
    language = "us_english"
    version = min(login.tds_version, tokens.TDS_74)
    parts = [
        tokens.database_changed(database, "master"),
        _info(5701, f"Changed database context to '{database}'.", server),
        tokens.collation_set(),
        tokens.language_changed(language, ""),
        _info(5703, f"Changed language setting to {language}.", server),
        tokens.login_ack(version),
        tokens.packet_size_changed(size, DEFAULT_PACKET_SIZE),
    ]
    if login.features:
        known = {_UTF8_SUPPORT: b"\x01", _FEDERATED_LOGIN: b""}
        answers = [(kind, data) for kind, data in known.items() if kind in login.features]
        parts.append(tokens.feature_ack(answers))
    parts.append(tokens.done())
    return b"".join(parts), size


def _info(number: int, text: str, server: str) -> bytes:
    return tokens.message(number, text, severity=0, server=server)
