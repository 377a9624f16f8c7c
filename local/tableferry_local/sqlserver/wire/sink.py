"""What the engine reports, as tokens on the wire."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg.pq as pq

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.types.sqltype import ResultColumn, SqlType
from tableferry_local.sqlserver.wire import tokens
from tableferry_local.sqlserver.wire.encode import encode_rows
from tableferry_local.sqlserver.wire.packets import REPLY, Packets

# Full packets leave once so many bytes wait: a client sees rows early, in few system calls.
_FLUSH = 1 << 16


class WireSink:
    """The reply to one request.

    A DONE token says whether another result follows, which is known only when it does: so the
    latest one waits.

    `interrupted` tells that the client wants no more of it.
    """

    def __init__(
        self,
        packets: Packets,
        *,
        server: str,
        interrupted: Callable[[], bool],
        before_done: Callable[[str], bytes],
    ) -> None:
        self._packets = packets
        self._server = server
        self._interrupted = interrupted
        self._before_done = before_done
        self._buffer = bytearray()
        self._pending: Callable[[int], bytes] | None = None
        self._types: list[SqlType] = []

    def columns(self, cols: Sequence[ResultColumn]) -> None:
        """A result set begins."""
        self._types = [column.type for column in cols]
        self.put(tokens.column_metadata(cols))

    def rows(self, chunk: pq.abc.PGresult) -> None:
        """Rows in PostgreSQL's binary format, matching `columns`."""
        if self._interrupted():
            return
        get, rows = chunk.get_value, range(chunk.ntuples)
        cells = [[get(row, column) for row in rows] for column in range(chunk.nfields)]
        oids = [chunk.ftype(column) for column in range(chunk.nfields)]
        self.put(encode_rows(self._types, oids, cells))

    def done(self, rowcount: int | None, command: str) -> None:
        """A statement ended."""
        self._flush_done(more=True)
        self._buffer += self._before_done(command)
        self._pending = lambda status: tokens.done(
            command=command, rowcount=rowcount, status=status
        )

    def info(self, number: int, message: str, severity: int = 0) -> None:
        """A message that is not an error, such as PRINT's."""
        self.put(tokens.message(number, message, severity=severity, server=self._server))

    def error(self, error: SqlError) -> None:
        """A statement failed."""
        if self._interrupted():
            return
        self.put(
            tokens.message(
                error.number,
                error.message,
                severity=error.severity,
                state=error.state,
                line=error.line,
                server=self._server,
            )
        )
        self._buffer += self._before_done("ROLLBACK TRANSACTION")
        self._pending = lambda status: tokens.done(status=status | tokens.ERROR)

    def database(self, new: str, old: str) -> None:
        """USE changed the database."""
        self.put(tokens.database_changed(new, old))
        self.info(5701, f"Changed database context to '{new}'.")

    def put(self, data: bytes) -> None:
        """Tokens that belong behind what came before."""
        self._flush_done(more=True)
        self._buffer += data
        if len(self._buffer) > _FLUSH:
            full = self._packets.whole(len(self._buffer))
            self._packets.send(REPLY, bytes(self._buffer[:full]), last=False)
            del self._buffer[:full]

    def finish(self, *, attention: bool = False) -> None:
        """The reply ends here."""
        if self._pending is None and not attention:
            self.done(None, "")
        self._flush_done(more=attention)
        if attention:
            self._buffer += tokens.done(status=tokens.ATTENTION)
        self._packets.send(REPLY, bytes(self._buffer))
        self._buffer.clear()

    def _flush_done(self, *, more: bool) -> None:
        if self._pending is not None:
            self._buffer += self._pending(tokens.MORE if more else 0)
            self._pending = None
