"""What the engine reports, as tokens on the wire."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import psycopg.pq as pq

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.types.sqltype import ResultColumn, SqlType, storage
from tableferry_local.sqlserver.wire import tokens
from tableferry_local.sqlserver.wire.encode import encode_column, encode_rows
from tableferry_local.sqlserver.wire.packets import REPLY, Packets
from tableferry_local.sqlserver.wire.values import binary_of

# Full packets leave once so many bytes wait: a client sees rows early, in few system calls.
_FLUSH = 1 << 16
# The output parameter that stands for a procedure's return status.
RETURN_STATUS = "@return_status_of_rpc"

_OIDS = {
    "smallint": 21,
    "integer": 23,
    "bigint": 20,
    "real": 700,
    "double precision": 701,
    "bytea": 17,
    "uuid": 2950,
    "date": 1082,
    "sys.datetimeoffset": 0,
    "text": 25,
}


class WireSink:
    """The reply to one request.

    A DONE token says whether another result follows, which is known only when it does: so the
    latest one waits. Inside of an RPC the statements' tokens are DONEINPROC.

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
        self._ordinal = 0
        self.procedure = False
        self.failed = False
        self.status = 0

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

    def values(self, rows: Sequence[Sequence[str | None]]) -> None:
        """Rows as text of their storage types: for the few that do not come from PostgreSQL."""
        for row in rows:
            cells = zip(self._types, row, strict=True)
            self.put(b"\xd1" + b"".join(scalar(kind, value) for kind, value in cells))

    def done(self, rowcount: int | None, command: str) -> None:
        """A statement ended."""
        self._flush_done(more=True)
        self._buffer += self._before_done(command)
        kind = tokens.DONE_IN_PROC if self.procedure else tokens.DONE
        self._pending = lambda status: tokens.done(
            kind, command=command, rowcount=rowcount, status=status
        )

    def info(self, number: int, message: str, severity: int = 0) -> None:
        """A message that is not an error, such as PRINT's."""
        self.put(tokens.message(number, message, severity=severity, server=self._server))

    def error(self, error: SqlError) -> None:
        """A statement failed."""
        if self._interrupted():
            return
        self.failed = True
        self.put(
            tokens.message(
                error.number,
                error.message,
                severity=error.severity,
                state=error.state,
                line=error.line,
                server=self._server,
                procedure=error.procedure,
            )
        )
        self._buffer += self._before_done("ROLLBACK TRANSACTION")
        kind = tokens.DONE_IN_PROC if self.procedure else tokens.DONE
        self._pending = lambda status: tokens.done(kind, status=status | tokens.ERROR)

    def return_value(self, name: str, sql_type: SqlType, value: str | None) -> None:
        """An output parameter; `value` is text of the storage type."""
        if name == RETURN_STATUS:
            self.status = int(value or 0)
            return
        self.put(tokens.return_value(self._ordinal, name, sql_type, scalar(sql_type, value)))
        self._ordinal += 1

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

    def finish_procedure(self) -> None:
        """An RPC ended."""
        failed = tokens.ERROR if self.failed else 0
        self._flush_done(more=True)
        self._buffer += tokens.return_status(self.status)
        self._pending = lambda more: tokens.done(
            tokens.DONE_PROC, command="EXECUTE", status=more | failed
        )
        self.failed, self._ordinal, self.status = False, 0, 0

    def finish(self, *, attention: bool = False) -> None:
        """The reply ends here."""
        if self._pending is None and not attention:
            self.done(None, "")
        self._flush_done(more=attention)
        if attention:
            self._buffer += tokens.done(tokens.DONE, status=tokens.ATTENTION)
        self._packets.send(REPLY, bytes(self._buffer))
        self._buffer.clear()

    def _flush_done(self, *, more: bool) -> None:
        if self._pending is not None:
            self._buffer += self._pending(tokens.MORE if more else 0)
            self._pending = None


def oid_of(sql_type: SqlType) -> int:
    """The PostgreSQL type that `binary_of` makes values of; 0 for the composite."""
    kind = storage(sql_type)
    if kind in _OIDS:
        return _OIDS[kind]
    return 1700 if kind.startswith("numeric") else 1083 if kind.startswith("time(") else 1114


def scalar(sql_type: SqlType, value: str | None) -> bytes:
    """One value as in a row, from text of its storage type."""
    cell = None if value is None else binary_of(value, sql_type)
    block = encode_column(sql_type, [cell], oid_of(sql_type))
    mask = np.ones(block.data.shape, np.bool_) if block.mask is None else block.mask
    return block.data[mask].tobytes()
