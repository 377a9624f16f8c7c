"""The server process: it listens, and forks a child for each connection."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from types import FrameType

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.session import Session, Settings
from tableferry_local.sqlserver.tsql.execution.engine import ready

_BACKLOG = 128


class Server:
    """Forks, so that sessions use all cores and one's end does not touch the others.

    A pipe whose writing end only the server holds tells the children when it is gone, however it
    went; they end at once then, and so do their PostgreSQL sessions.
    """

    def __init__(self, listener: socket.socket, settings: Settings) -> None:
        self._listener, self._settings = listener, settings
        self._children: set[int] = set()
        self._alive_read, self._alive_write = os.pipe()

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        signal.signal(signal.SIGCHLD, self._reap)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        gc.freeze()  # what children share with us stays shared: their collections leave it alone
        try:
            while True:
                connection, _ = self._listener.accept()
                with suppress(SqlError):  # a child that finds PostgreSQL away says so itself
                    ready(self._settings.postgres_url)
                self._fork(connection)
        except _Stop:
            pass
        finally:
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(
                    number, signal.SIG_DFL if number == signal.SIGCHLD else signal.SIG_IGN
                )
            self._listener.close()
            self._end_children()

    def _fork(self, connection: socket.socket) -> None:
        handled = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        pid = os.fork()
        if pid == 0:
            for number in handled:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
            self._serve(connection)
        self._children.add(pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        connection.close()

    def _serve(self, connection: socket.socket) -> None:
        status = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._listener.close()
            os.close(self._alive_write)
            threading.Thread(target=self._follow, daemon=True).start()
            Session(connection, self._settings).run()
            status = 0
        except BaseException as error:
            print(f"session failed: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)

    def _follow(self) -> None:
        os.read(self._alive_read, 1)
        os._exit(1)

    def _reap(self, number: int, frame: FrameType | None) -> None:
        for pid in list(self._children):
            try:
                ended = bool(os.waitpid(pid, os.WNOHANG)[0])
            except ChildProcessError:
                ended = True  # the handler interrupted itself, and the inner call was first
            if ended:
                self._children.discard(pid)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        raise _Stop

    def _end_children(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)
        for pid in self._children:
            os.waitpid(pid, 0)


class _Stop(Exception):
    """The server was told to end."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        OSError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)
