"""TDS messages cut into packets, over a socket that may turn to TLS and back ([MS-TDS] 2.2.3)."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass

SQL_BATCH, RPC, REPLY, ATTENTION, BULK_LOAD = 1, 3, 4, 6, 7
TRANSACTION, LOGIN7, PRELOGIN = 14, 16, 18

END_OF_MESSAGE, IGNORE, RESET_CONNECTION, RESET_SKIP_TRANSACTION = 0x01, 0x02, 0x08, 0x10

DEFAULT_PACKET_SIZE = 4096
MIN_PACKET_SIZE, MAX_PACKET_SIZE = 512, 32767
# No packet may be longer than one TLS record. ODBC Driver 18 refuses to encrypt packets of more
# than 16356 bytes, measured: "Packet size too large for SSL Encrypt/Decrypt operations".
MAX_ENCRYPTED_PACKET_SIZE = 16355

_HEADER = struct.Struct(">BBHHBB")
_RECEIVE = 1 << 18


class Disconnected(Exception):
    """The client is gone."""


class ProtocolError(Exception):
    """The client sent what TDS does not allow here."""


@dataclass(frozen=True)
class Packet:
    """One packet: its type, its status bits, and its payload without the header."""

    type: int
    status: int
    payload: bytes

    @property
    def last(self) -> bool:
        return bool(self.status & END_OF_MESSAGE)


@dataclass(frozen=True)
class Message:
    """A whole message; `status` holds the first packet's bits (the reset bits are only there)."""

    type: int
    status: int
    payload: bytes


class Transport:
    """Bytes to and from one client, in the clear or inside TLS.

    TLS runs on memory BIOs, because TDS wraps the handshake in prelogin packets and, when only the
    login is encrypted, returns to clear text afterwards.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()
        self._tls: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()

    @property
    def pending(self) -> bool:
        """Whether received bytes wait to be read."""
        return bool(self._buffer) or bool(self._tls and self._incoming.pending)

    def peek(self, count: int) -> bytes:
        """The next bytes, left in place."""
        self._fill(count)
        return bytes(self._buffer[:count])

    def read(self, count: int) -> bytes:
        """Exactly `count` bytes."""
        self._fill(count)
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def write(self, data: bytes) -> None:
        """Send all of `data`."""
        try:
            if self._tls is None:
                self.sock.sendall(data)
                return
            self._tls.write(data)
            self.sock.sendall(self._outgoing.read())
        except OSError as error:
            raise Disconnected(str(error)) from error

    def wrapped_handshake(self, context: ssl.SSLContext) -> None:
        """TLS handshake inside prelogin packets, as TDS 7.x does it."""
        tls = self._start(context)
        packets = Packets(self)
        while not self._step(tls):
            if answer := self._outgoing.read():
                packets.send(PRELOGIN, answer)
            self._incoming.write(packets.receive().payload)
        if answer := self._outgoing.read():
            packets.send(PRELOGIN, answer)
        self._adopt(tls)

    def direct_handshake(self, context: ssl.SSLContext) -> None:
        """TLS handshake right on the connection, as TDS 8 (`encrypt=strict`) does it."""
        tls = self._start(context)
        while True:
            finished = self._step(tls)
            if answer := self._outgoing.read():
                self.sock.sendall(answer)
            if finished:
                break
            if self._buffer:
                self._incoming.write(bytes(self._buffer))
                self._buffer.clear()
            else:
                self._incoming.write(self._receive())
        self._adopt(tls)

    @property
    def encrypted(self) -> bool:
        """Whether what follows goes through TLS."""
        return self._tls is not None

    def end_tls(self) -> None:
        """Return to clear text: what the client sends after its login is not encrypted."""
        self._buffer += self._incoming.read()
        self._tls = None

    def _start(self, context: ssl.SSLContext) -> ssl.SSLObject:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        return context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def _step(self, tls: ssl.SSLObject) -> bool:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise Disconnected(f"TLS handshake: {error.reason}") from error
        return True

    def _adopt(self, tls: ssl.SSLObject) -> None:
        # Bytes read past the handshake are TLS records already.
        if self._buffer:
            self._incoming.write(bytes(self._buffer))
            self._buffer.clear()
        self._tls = tls

    def _receive(self) -> bytes:
        try:
            data = self.sock.recv(_RECEIVE)
        except OSError as error:
            raise Disconnected(str(error)) from error
        if not data:
            raise Disconnected("closed by the client")
        return data

    def _fill(self, count: int) -> None:
        while len(self._buffer) < count:
            if self._tls is None:
                self._buffer += self._receive()
                continue
            try:
                data = self._tls.read(_RECEIVE)
            except ssl.SSLWantReadError:
                self._incoming.write(self._receive())
                continue
            except ssl.SSLError as error:
                raise Disconnected(f"TLS: {error.reason}") from error
            if not data:
                raise Disconnected("closed by the client")
            self._buffer += data


class Packets:
    """Messages over a transport, in packets of the negotiated size."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.size = DEFAULT_PACKET_SIZE
        self._number = 1

    def receive(self) -> Packet:
        """The next packet of any message."""
        kind, status, length, *_ = _HEADER.unpack(self.transport.read(_HEADER.size))
        if length < _HEADER.size:
            raise ProtocolError(f"packet length should be at least 8; it is {length}")
        return Packet(kind, status, self.transport.read(length - _HEADER.size))

    def receive_message(self) -> Message:
        """The next whole message."""
        first = self.receive()
        if first.last:
            return Message(first.type, first.status, first.payload)
        return Message(first.type, first.status, b"".join(self._rest(first)))

    def _rest(self, first: Packet) -> Iterator[bytes]:
        packet = first
        while True:
            yield packet.payload
            if packet.last:
                return
            packet = self.receive()

    def send(self, kind: int, payload: bytes, *, last: bool = True) -> None:
        """Send a payload; with `last`, the message ends with it.

        Without `last` the payload must fill its packets, see `whole`.
        """
        room = self.size - _HEADER.size
        parts: list[bytes | memoryview] = []
        view = memoryview(payload)
        total = len(view)
        for start in range(0, total or 1, room):
            chunk = view[start : start + room]
            status = END_OF_MESSAGE if last and start + room >= total else 0
            parts.append(
                _HEADER.pack(kind, status, len(chunk) + _HEADER.size, 0, self._number & 255, 0)
            )
            parts.append(chunk)
            self._number += 1
        self.transport.write(b"".join(parts))
        if last:
            self._number = 1

    def whole(self, count: int) -> int:
        """How many of `count` bytes fill packets completely while leaving some for the last one."""
        room = self.size - _HEADER.size
        return max(count - 1, 0) // room * room
