"""One client's session: from its login to its end."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import ssl
import struct
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tableferry_local.sqlserver.errors import SqlError, unsupported
from tableferry_local.sqlserver.tsql.execution.engine import BulkInsert, Engine
from tableferry_local.sqlserver.types.sqltype import MISREADS
from tableferry_local.sqlserver.wire import login as logins
from tableferry_local.sqlserver.wire import packets as tds
from tableferry_local.sqlserver.wire import tokens
from tableferry_local.sqlserver.wire.attention import Watch
from tableferry_local.sqlserver.wire.bulk import copy_stream
from tableferry_local.sqlserver.wire.packets import (
    Disconnected,
    Message,
    Packet,
    Packets,
    ProtocolError,
    Transport,
)
from tableferry_local.sqlserver.wire.sink import WireSink
from tableferry_local.sqlserver.wire.values import misread_binary, numeric_binary

BATCHES = "TABLEFERRY_LOCAL_BATCHES"
"""Names a folder that gets a file of each distinct batch; without it they are not kept."""

_INSERT_BULK = re.compile(r"\s*insert\s+bulk\b", re.IGNORECASE)
_BEGIN, _COMMIT, _ROLLBACK = 5, 7, 8
_ISOLATION = {
    1: "READ UNCOMMITTED",
    2: "READ COMMITTED",
    3: "REPEATABLE READ",
    4: "SERIALIZABLE",
    5: "SNAPSHOT",
}


@dataclass(frozen=True)
class Settings:
    """What the server was started with."""

    postgres_url: str
    user: str
    password: str = field(repr=False)
    tls: ssl.SSLContext
    name: str = "TABLEFERRY"
    hangs_up_on: str = ""
    """An application whose logins end without an answer, as some servers do with a driver's."""


class Session:
    """Answers one connection's requests, one after the other."""

    def __init__(self, sock: socket.socket, settings: Settings) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._settings = settings
        self._transport = Transport(sock)
        self._packets = Packets(self._transport)
        self._bulk: BulkInsert | None = None
        self._transaction = 0
        self._in_transaction = False
        self._resetting = False

    def run(self) -> None:
        """Serve until the client leaves."""
        try:
            self._login()
            try:
                while True:
                    self._serve(self._packets.receive())
            finally:
                self._watch.close()
                self._engine.close()
        except (Disconnected, logins.LoginRefused):
            pass
        except (ProtocolError, struct.error, IndexError) as error:
            print(f"session ended: {error!r}", file=sys.stderr, flush=True)
        finally:
            self._transport.sock.close()

    def _login(self) -> None:
        settings = self._settings
        asking = logins.greet(self._transport, self._packets, settings.tls)
        login = logins.accepted(asking, settings.user, settings.password)
        if asking.application == settings.hangs_up_on:
            raise Disconnected("as its settings say")
        if login is None:
            self._packets.send(tds.REPLY, logins.refusal(asking, settings.name))
            raise logins.LoginRefused
        self._make = lambda: Engine(
            settings.postgres_url, login=login.user, database=login.database or None
        )
        try:
            self._engine = self._make()
        except SqlError as error:
            reason = tokens.message(
                error.number, error.message, severity=error.severity, server=settings.name
            )
            self._packets.send(tds.REPLY, logins.refusal(login, settings.name, reason))
            raise logins.LoginRefused from error
        answer, size = logins.welcome(
            login,
            self._engine.database,
            settings.name,
            encrypted=self._transport.encrypted,
        )
        self._packets.send(tds.REPLY, answer)
        self._packets.size = size
        self._watch = Watch(self._transport.sock, self._cancel)

    def _cancel(self) -> None:
        self._engine.cancel()

    def _serve(self, first: Packet) -> None:
        if first.type == tds.ATTENTION:
            self._acknowledge()
        elif first.type == tds.BULK_LOAD:
            self._load(first)
        else:
            self._answer(self._whole(first))

    def _whole(self, first: Packet) -> Message:
        parts, packet = [first.payload], first
        while not packet.last:
            packet = self._packets.receive()
            parts.append(packet.payload)
        return Message(first.type, first.status, b"".join(parts))

    def _answer(self, message: Message) -> None:
        if message.status & (tds.RESET_CONNECTION | tds.RESET_SKIP_TRANSACTION):
            self._reset()
        data = _without_headers(message.payload)
        if message.type == tds.SQL_BATCH:
            batch = data.decode("utf-16-le", "replace")
            self._execute(lambda sink: self._batch(batch, sink))
        elif message.type == tds.RPC:
            self._execute(_refuse_call)
        elif message.type == tds.TRANSACTION:
            batch = _transaction_batch(data)
            self._execute(lambda sink: self._engine.execute(batch, sink))
        else:
            raise ProtocolError(f"a message of type {message.type} is not expected here")

    def _batch(self, batch: str, sink: WireSink) -> None:
        _keep(batch)
        if _INSERT_BULK.match(batch):
            self._bulk = self._engine.bulk_begin(batch)
            sink.done(None, "INSERT BULK")
        else:
            self._engine.execute(batch, sink)

    def _execute(self, action: Callable[[WireSink], object]) -> None:
        """Run a request and send its reply, or stop it where the client says so."""
        already = self._transport.pending
        sink = self._sink()
        if self._resetting:
            sink.put(tokens.reset_done())
            self._resetting = False
        with self._watch.watching(already=already):
            if not already:
                self._report(action, sink)
        if not self._watch.interrupted:
            sink.finish()
            return
        packet = self._packets.receive()
        if packet.type != tds.ATTENTION:
            raise ProtocolError(f"message type {packet.type} came before the reply to the last one")
        sink.finish(attention=True)

    def _report(self, action: Callable[[WireSink], object], sink: WireSink) -> None:
        try:
            action(sink)
        except SqlError as error:
            sink.error(error)
        except (Disconnected, ProtocolError):
            raise
        except Exception as error:
            traceback.print_exc()
            text = f"The stand-in failed: {type(error).__name__}: {error}"
            sink.error(SqlError(50000, 16, text))

    def _sink(self) -> WireSink:
        return WireSink(
            self._packets,
            server=self._settings.name,
            interrupted=lambda: self._watch.interrupted,
            before_done=self._transaction_change,
        )

    def _transaction_change(self, command: str) -> bytes:
        """ENVCHANGE if a transaction began or ended since the last one."""
        before, self._in_transaction = self._in_transaction, self._engine.in_transaction
        if before == self._in_transaction:
            return b""
        if self._in_transaction:
            self._transaction += 1
            return tokens.transaction_begun(self._transaction)
        committed = not command.startswith("ROLLBACK")
        return tokens.transaction_ended(self._transaction, committed=committed)

    def _acknowledge(self) -> None:
        sink = self._sink()
        sink.finish(attention=True)

    def _reset(self) -> None:
        """What a connection pool asks for before it hands the connection to somebody else."""
        self._engine.close()
        self._engine = self._make()
        self._bulk, self._in_transaction, self._resetting = None, False, True

    def _load(self, first: Packet) -> None:
        bulk, self._bulk = self._bulk, None
        stream = _Stream(self._packets, first)
        sink = self._sink()
        self._watch.interrupted = False
        try:
            if bulk is None:
                raise SqlError(4002, 16, "Bulk load data was not expected.")
            try:
                misreads = bulk.state.database.endswith(MISREADS)
                numeric = misread_binary if misreads else numeric_binary
                for data in copy_stream(stream, bulk.columns, numeric):
                    bulk.write(data)
                rows = bulk.finish()
            except BaseException:
                bulk.abort()
                raise
            sink.done(rows, "INSERT BULK")
        except _Stopped:
            sink.finish(attention=stream.attention)
            return
        except SqlError as error:
            stream.drain()
            sink.error(error)
        except ProtocolError as error:
            stream.drain()
            sink.error(SqlError(4804, 16, f"Bulk load: {error}."))
        sink.finish()


class _Stopped(Exception):
    """The client gave up its bulk load."""


class _Stream:
    """The payloads of one message's packets, as they arrive."""

    def __init__(self, packets: Packets, first: Packet) -> None:
        self._packets, self._packet = packets, first
        self._started = False
        self.attention = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._started:
            if self._packet.last:
                raise StopIteration
            self._packet = self._packets.receive()
        self._started = True
        if self._packet.type == tds.ATTENTION:
            self.attention = True
            raise _Stopped
        if self._packet.status & tds.IGNORE:
            raise _Stopped
        return self._packet.payload

    def drain(self) -> None:
        """Read what is left, so that the client gets to reading the reply."""
        for _ in self:
            pass


def _refuse_call(sink: WireSink) -> None:
    raise unsupported("a remote procedure call, as of a statement with parameters,")


def _without_headers(payload: bytes) -> bytes:
    """A request without its ALL_HEADERS."""
    (length,) = struct.unpack_from("<I", payload)
    return payload[length:]


def _keep(batch: str) -> None:
    if folder := os.environ.get(BATCHES):
        text = batch.encode("utf-8", "surrogatepass")
        Path(folder, hashlib.blake2b(text, digest_size=16).hexdigest()).write_bytes(text)


def _transaction_batch(data: bytes) -> str:
    """A transaction manager request as T-SQL ([MS-TDS] 2.2.6.9)."""
    (kind,) = struct.unpack_from("<H", data)
    if kind == _BEGIN:
        level = _ISOLATION.get(data[2])
        return (f"SET TRANSACTION ISOLATION LEVEL {level}; " if level else "") + "BEGIN TRANSACTION"
    name, at = _name(data, 2)
    if kind in (_COMMIT, _ROLLBACK):
        word = "COMMIT" if kind == _COMMIT else "ROLLBACK"
        again = at < len(data) and data[at] & 1
        return f"{word} TRANSACTION {name}" + ("; BEGIN TRANSACTION" if again else "")
    raise ProtocolError(f"transaction manager request {kind} is not supported")


def _name(data: bytes, at: int) -> tuple[str, int]:
    size = data[at] if at < len(data) else 0
    text = data[at + 1 : at + 1 + size].decode("utf-16-le")
    return (f"[{text.replace(']', ']]')}]" if text else ""), at + 1 + size
