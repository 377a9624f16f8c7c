"""The server process: it listens, and gives each connection to a child."""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.session import Session, Settings
from tableferry_local.sqlserver.tsql.execution.engine import ready

_BACKLOG = 128
_IDLE = 8
"""Children that are kept when they have nothing to do."""

_SESSIONS = 200
"""How many a child serves, one after the other."""


@dataclass(frozen=True)
class _Child:
    pid: int
    channel: socket.socket
    """It takes connections, and a byte comes whenever the child has ended one."""


class Server:
    """Forks, so that sessions use all cores and one's end does not touch the others.

    A child that has nothing to do gets the next connection, as a new one costs more than most
    sessions. A pipe whose writing end only the server holds tells the children when it is gone,
    however it went; they end at once then, and so do their PostgreSQL sessions.
    """

    def __init__(self, listener: socket.socket, settings: Settings) -> None:
        self._listener, self._settings = listener, settings
        self._children: list[_Child] = []
        self._idle: list[_Child] = []
        self._events = selectors.PollSelector()
        self._alive_read, self._alive_write = os.pipe()

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        gc.freeze()  # what children share with us stays shared: their collections leave it alone
        self._events.register(self._listener, selectors.EVENT_READ)
        try:
            while True:
                for event, _ in self._events.select():
                    if event.data is None:
                        connection, _ = self._listener.accept()
                        with suppress(SqlError):  # a child says so itself if PostgreSQL is away
                            ready(self._settings.postgres_url)
                        self._give(connection)
                    else:
                        self._hear(event.data)
        except _Stop:
            pass
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            self._listener.close()
            self._end_children()

    def _give(self, connection: socket.socket) -> None:
        with connection:
            while self._idle:
                with suppress(OSError):  # it was killed
                    socket.send_fds(self._idle.pop().channel, [b"."], [connection.fileno()])
                    return
            self._fork(connection)

    def _hear(self, child: _Child) -> None:
        try:
            heard = child.channel.recv(1)
        except ConnectionError:
            heard = b""
        if not heard:
            self._events.unregister(child.channel)
            child.channel.close()
            self._children.remove(child)
            if child in self._idle:
                self._idle.remove(child)
            os.waitpid(child.pid, 0)
        elif len(self._idle) < _IDLE:
            self._idle.append(child)
        else:
            child.channel.shutdown(socket.SHUT_WR)

    def _fork(self, connection: socket.socket) -> None:
        ours, theirs = socket.socketpair()
        handled = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        pid = os.fork()
        if pid == 0:
            for number in handled:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
            ours.close()
            self._serve(connection, theirs)
        self._children.append(_Child(pid, ours))
        theirs.close()
        self._events.register(ours, selectors.EVENT_READ, self._children[-1])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)

    def _serve(self, connection: socket.socket, channel: socket.socket) -> NoReturn:
        status = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._listener.close()
            os.close(self._alive_write)
            for child in self._children:
                child.channel.close()
            threading.Thread(target=self._follow, daemon=True).start()
            Session(connection, self._settings).run()
            for _ in range(_SESSIONS - 1):
                channel.send(b".")
                given = socket.recv_fds(channel, 1, 1)[1]
                if not given:
                    break
                Session(socket.socket(fileno=given[0]), self._settings).run()
            status = 0
        except BaseException as error:
            print(f"session failed: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)

    def _follow(self) -> None:
        os.read(self._alive_read, 1)
        os._exit(1)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        raise _Stop

    def _end_children(self) -> None:
        for child in self._children:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM)
        for child in self._children:
            with suppress(ChildProcessError):
                os.waitpid(child.pid, 0)


class _Stop(Exception):
    """The server was told to end."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        OSError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)
