"""Reads COPY TO STDOUT in large chunks, at a low cost per row."""

from __future__ import annotations

import select
from collections.abc import Generator, Iterator
from typing import Any

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from tableferry.resources.wires.text_rows import CountedBytes

CHUNK_BYTES = 1 << 20
"""Larger chunks are no faster, neither here nor in an HTTP body."""

HEADER_BYTES, TRAILER_BYTES = 19, 2
"""The sizes of both in COPY's binary format; PostgreSQL's header has no extension."""


def copy_out(
    connection: psycopg.Connection[Any], sql: str, *, binary: bool = False
) -> Iterator[CountedBytes]:
    """Run `COPY (sql) TO STDOUT` and yield its output in chunks that end at row ends.

    The server sends one message per row. `psycopg.Copy` passes each through a generator, a wait and
    a Python call (0.8 CPU-s per million rows of 100 bytes); draining libpq's buffer in a plain loop
    takes less than half of that. libpq is read in non-blocking mode, because psycopg holds the GIL
    in blocking mode, and other exports must continue.

    If the iteration ends early, the connection can only be closed.

    Args:
        connection: in autocommit mode or in a transaction; nothing else may be running on it.
        sql: a single SELECT.
        binary: use COPY's binary format, whose header and trailer are part of the output.

    Raises:
        psycopg.Error: as the server reports it, at any point of the stream.
    """
    pgconn = connection.pgconn
    options = " (FORMAT binary)" if binary else ""
    pgconn.send_query(f"COPY ({sql.rstrip().rstrip(';')}) TO STDOUT{options}".encode())
    poll = select.poll()  # select.select refuses descriptors above 1023
    poll.register(pgconn.socket, select.POLLIN)
    while pgconn.flush():
        poll.modify(pgconn.socket, select.POLLIN | select.POLLOUT)
        poll.poll()
        pgconn.consume_input()
    poll.modify(pgconn.socket, select.POLLIN)
    result = _next_result(pgconn, poll)
    if result is None or result.status != ExecStatus.COPY_OUT:
        raise _unexpected(result, connection)

    chunk, rows, passed = bytearray(), 0, 0
    get = pgconn.get_copy_data
    while True:
        length, row = get(1)
        if length > 0:
            # a list of memoryviews would keep the garbage collector busy
            chunk += row
            rows += 1
            if len(chunk) >= CHUNK_BYTES:
                yield _counted(chunk, rows)
                chunk.clear()
                passed += rows
                rows = 0
        elif length == 0:
            poll.poll()
            pgconn.consume_input()
        else:
            break
    # the last rows are held back until the server reports the COPY complete
    while (result := _next_result(pgconn, poll)) is not None:
        if result.status != ExecStatus.COMMAND_OK:
            raise _unexpected(result, connection)
        if not binary and result.command_tuples != passed + rows:
            raise psycopg.OperationalError(
                f"COPY has sent {result.command_tuples} rows, and {passed + rows} arrived"
            )
    if chunk:
        # the trailer is a separate message
        yield _counted(chunk, rows - binary)


def joined_binary(streams: Iterator[Iterator[bytes]]) -> Generator[bytes, None, None]:
    """Join outputs of COPY in its binary format to one, with one header and one trailer."""
    last: bytes | None = None
    for number, stream in enumerate(streams):
        if last is not None:
            yield _part(last, 0, -TRAILER_BYTES)
            last = None
        for at, chunk in enumerate(stream):
            if last is not None:
                yield last
            last = _part(chunk, HEADER_BYTES, None) if number and not at else chunk
    if last is not None:
        yield last


def _part(chunk: bytes, start: int, end: int | None) -> CountedBytes:
    part = CountedBytes(chunk[start:end])
    part.rows = chunk.rows if isinstance(chunk, CountedBytes) else 0
    return part


def _counted(chunk: bytearray, rows: int) -> CountedBytes:
    counted = CountedBytes(chunk)
    counted.rows = rows
    return counted


def _next_result(pgconn: PGconn, poll: select.poll) -> PGresult | None:
    while pgconn.is_busy():
        poll.poll()
        pgconn.consume_input()
    return pgconn.get_result()


def _unexpected(result: PGresult | None, connection: psycopg.Connection[Any]) -> psycopg.Error:
    if result is not None and result.status == ExecStatus.FATAL_ERROR:
        return error_from_result(result, encoding=connection.info.encoding)
    status = "nothing" if result is None else ExecStatus(result.status).name
    return psycopg.OperationalError(f"COPY should have been answered with rows, found {status}")
