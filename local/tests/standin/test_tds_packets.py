"""Messages in packets, and the login they begin with."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableferry_local.sqlserver.certificate import tls_context
from tableferry_local.sqlserver.wire import login, tokens
from tableferry_local.sqlserver.wire.packets import (
    PRELOGIN,
    REPLY,
    SQL_BATCH,
    Disconnected,
    Packets,
    ProtocolError,
    Transport,
)

_open: list[socket.socket] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _open:
        _open.pop().close()


def _pair() -> tuple[Packets, Packets]:
    ours, theirs = socket.socketpair()
    _open.extend((ours, theirs))
    return Packets(Transport(ours)), Packets(Transport(theirs))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=20_000), st.integers(512, 32767))
def test_a_message_arrives_whole_at_any_packet_size(payload: bytes, size: int) -> None:
    sender, receiver = _pair()
    sender.size = size
    thread = threading.Thread(target=sender.send, args=(SQL_BATCH, payload))
    thread.start()
    message = receiver.receive_message()
    thread.join()
    assert (message.type, message.payload) == (SQL_BATCH, payload)
    assert not receiver.transport.pending
    for end in (sender, receiver):
        end.transport.sock.close()


@pytest.mark.parametrize("size", [512, 4096, 32767])
def test_packets_are_full_but_for_the_last(size: int) -> None:
    sender, receiver = _pair()
    sender.size = size
    payload = bytes(range(256)) * 300
    full = sender.whole(len(payload))
    assert 0 < len(payload) - full <= size - 8

    def send() -> None:
        sender.send(REPLY, payload[:full], last=False)
        sender.send(REPLY, payload[full:])

    thread = threading.Thread(target=send)
    thread.start()
    sizes, last = [], False
    while not last:
        packet = receiver.receive()
        sizes.append(len(packet.payload) + 8)
        last = packet.last
    thread.join()
    assert set(sizes[:-1]) == {size}
    assert sum(sizes) - 8 * len(sizes) == len(payload)


def test_the_end_of_the_connection_is_told() -> None:
    sender, receiver = _pair()
    sender.transport.write(b"\x01\x01\x00")
    sender.transport.sock.close()
    with pytest.raises(Disconnected):
        receiver.receive()


def test_an_impossible_packet_length_is_refused() -> None:
    sender, receiver = _pair()
    sender.transport.write(struct.pack(">BBHHBB", SQL_BATCH, 1, 7, 0, 1, 0))
    with pytest.raises(ProtocolError, match="at least 8; it is 7"):
        receiver.receive()


def test_a_connection_that_is_not_tds_is_refused(tmp_path: Path) -> None:
    client, server = _pair()
    client.send(SQL_BATCH, b"GET / HTTP/1.1")
    with pytest.raises(ProtocolError, match="should begin with a prelogin"):
        login.greet(server.transport, server, tls_context(tmp_path))


def test_the_prelogin_answer_without_encryption(tmp_path: Path) -> None:
    client, server = _pair()
    not_supported = b"\x01\x00\x06\x00\x01\xff\x02"
    client.send(PRELOGIN, not_supported)
    client.send(16, _login7("sa", "Påss wörd{}", version=tokens.TDS_74))
    found = login.greet(server.transport, server, tls_context(tmp_path))
    assert (found.user, found.password, found.packet_size) == ("sa", "Påss wörd{}", 8000)
    assert "Påss" not in repr(found)
    # VERSION 15.0.4430, ENCRYPTION not supported, no instance, no thread, no MARS.
    answer = client.receive_message().payload
    assert answer[26:] == bytes([15, 0, 0x11, 0x4E, 0, 0, 2, 0, 0])


def test_a_client_from_before_tds_7_2_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"TDS 7\.2 or later"):
        login.read_login(_login7("sa", "x", version=0x71000001))


@pytest.mark.parametrize(
    ("wanted", "granted"),
    [(0, 4096), (1, 512), (512, 512), (513, 513), (32767, 32767), (32768, 32767), (65535, 32767)],
)
def test_the_packet_size_is_negotiated(wanted: int, granted: int) -> None:
    asked = login.read_login(_login7("sa", "x", version=tokens.TDS_74, size=wanted))
    answer, size = login.welcome(asked, "tableferry", "SERVER")
    assert size == granted
    assert tokens.packet_size_changed(granted, 4096) in answer


def test_the_key_of_the_certificate_is_private_and_kept(tmp_path: Path) -> None:
    tls_context(tmp_path)
    key = tmp_path / "server.key"
    assert key.stat().st_mode & 0o777 == 0o600
    before = (tmp_path / "server.pem").read_bytes(), key.read_bytes()
    context = tls_context(tmp_path)
    assert before == ((tmp_path / "server.pem").read_bytes(), key.read_bytes())
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2


def _login7(user: str, password: str, *, version: int, size: int = 8000) -> bytes:
    """LOGIN7 with a user and a password, laid out as [MS-TDS] 2.2.6.4 says."""
    hidden = bytes(((byte << 4 | byte >> 4) & 255) ^ 0xA5 for byte in password.encode("utf-16-le"))
    fields = [b"", user.encode("utf-16-le"), hidden, *[b""] * 6]
    start, places, data = 94, b"", b""
    for value in fields:
        places += struct.pack("<HH", start + len(data), len(value) // 2)
        data += value
    places += bytes(6) + struct.pack("<HH", start + len(data), 0) * 3 + bytes(4)
    head = struct.pack("<IIIIIIBBBBiI", 94 + len(data), version, size, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    return head + places + data
