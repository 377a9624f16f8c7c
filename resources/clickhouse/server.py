"""ClickHouse over HTTP: control SQL, streaming Arrow and text both ways."""

from __future__ import annotations

import functools
import io
import itertools
import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from tableferry.resources.clickhouse.dialect import DIALECT
from tableferry.resources.clickhouse.errors import from_driver, translate
from tableferry.resources.clickhouse.nullable import split_type
from tableferry.resources.clickhouse.settings import INSERT, pin
from tableferry.resources.connecting.address import Server
from tableferry.resources.contract.dialects import qualified
from tableferry.resources.contract.endpoint import BATCH_ROWS, refuse_snapshot
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import (
    InputError,
    TableMissing,
)
from tableferry.resources.extras import require, zstd
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

Compression = Literal["none", "lz4", "zstd"]

RANGE_COLUMN = "_range"
"""Hidden column that holds the key range's number in tables that we create."""

CHUNK = 1 << 20
"""Bytes of one read from the socket; beyond 256 KiB it no longer changes the speed."""

READ_TIMEOUT = 3600
"""Seconds without one byte from the server: a mutation answers only at its end."""

ALIGNED = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)
"""The buffers of an HTTP body begin anywhere; mssql-python wants those of decimals at 16 bytes."""


class ClickHouseServer(Server):
    """A ClickHouse server, spoken to over HTTP.

    Args:
        url: `http[s]://user:pass@host:port/database`; `?verify=no` accepts any certificate,
            `?ca_cert=/path.pem` names another root, `?compression=lz4|zstd` sets `compression`.
        compression: of what is sent and received. It saves network, and costs CPU on both sides.

    Example:
        >>> ClickHouseServer(url="http://reader:secret@localhost:8123/warehouse").ping()
    """

    system_name: ClassVar[str] = "clickhouse"

    secure: bool | None = Field(default=None, description="HTTPS instead of HTTP.")
    verify: bool | None = Field(default=None, description="Verify the server's certificate.")
    ca_cert: str | None = Field(default=None, description="File of another root certificate.")
    compression: str | None = Field(default=None, description="none, lz4 or zstd.")

    def ping(self) -> str:
        """The server's version.

        Raises:
            ConnectionFailed: the server is down, refuses the login, or lacks the database.
        """
        return str(self.query("SELECT version()")[0][0])

    def columns(self, table: TableRef) -> list[Column]:
        """The table's columns in catalog order, without our own hidden one.

        ClickHouse's primary key does not make rows unique, so that no column says it is part of it.

        Raises:
            TableMissing: there is no such table.
        """
        rows = self.query(
            "SELECT name, type, default_kind FROM system.columns "
            f"WHERE database = {_text(table.schema)} AND table = {_text(table.name)} "
            "ORDER BY position"
        )
        if not rows:
            raise TableMissing(f"{table} does not exist")
        columns = []
        for name, declared, default_kind in rows:
            if name == RANGE_COLUMN and default_kind == "MATERIALIZED":
                continue
            type_, nullable = split_type(declared)
            generated = default_kind in ("MATERIALIZED", "ALIAS")
            columns.append(Column(name, type_, nullable=nullable, generated=generated))
        return columns

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of a small result.

        Raises:
            InputError: a snapshot was given.
        """
        refuse_snapshot(self.system, snapshot)
        with self._translated():
            return [tuple(row) for row in self._client().query(sql).result_rows]

    def execute(self, sql: str, settings: Mapping[str, str | int] | None = None) -> None:
        """Run a statement and wait for its end."""
        with self._translated():
            self._client().command(sql, settings=dict(settings or {}))

    @contextmanager
    def read_arrow(
        self, sql: str, *, batch_rows: int = BATCH_ROWS, snapshot: str | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        """Stream a query's result as Arrow batches of at most `batch_rows` rows.

        String columns arrive as utf8 and are not checked: ClickHouse does not know text from bytes.
        Cast to binary, which is free, where they hold bytes. UUID arrives as pyarrow's uuid type, a
        bare DateTime64 as a timestamp in UTC.

        Raises:
            InputError: a snapshot was given; ClickHouse has none.
            StatementFailed: the server refused the query, or broke off in the middle.
        """
        compression = self._compression()
        settings: dict[str, str | int] = {
            "max_block_size": batch_rows,
            "output_format_arrow_string_as_string": 1,
            "output_format_arrow_compression_method": {"lz4": "lz4_frame"}.get(
                compression, compression
            ),
        }
        with self._stream(sql, "ArrowStream", settings, snapshot) as body:
            yield pa.ipc.open_stream(body, options=ALIGNED)

    @contextmanager
    def read_text(self, sql: str, *, snapshot: str | None = None) -> Iterator[Iterator[bytes]]:
        """Stream a query's result as TabSeparated, in chunks of about 1 MiB of whole rows."""
        with self._stream(sql, "TabSeparated", {}, snapshot) as body:
            yield _rows_whole(iter(functools.partial(body.read, CHUNK), b""))

    def insert(
        self,
        table: TableRef,
        columns: Iterable[str],
        chunks: Iterable[bytes],
        fmt: Literal["ArrowStream", "TabSeparated"],
        *,
        name: str | None = None,
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        """Stream one INSERT in constant memory. An error of the generator arrives unchanged.

        Args:
            table: the table.
            columns: the columns in the chunks' order; those of an Arrow stream match by name.
            chunks: the body, cut anywhere.
            fmt: ClickHouse's name of the format.
            name: stands in for the table's own name.
            settings: on top of `INSERT`.

        Raises:
            StatementFailed: the server refused a row, or went away. Rows that came before may be in
                the table: a plain INSERT of many blocks is not atomic.
        """
        names = ", ".join(DIALECT.quote(column) for column in columns)
        statement = f"INSERT INTO {qualified(table, name)} ({names}) FORMAT {fmt}\n"
        compression = self._compression()
        # the statement goes into the body, because 500 columns make a long URL
        body = _Body(_compressed(itertools.chain([statement.encode()], chunks), compression))
        with self._translated(body):
            self._client().raw_insert(
                insert_block=iter(body),
                settings=dict(INSERT) | dict(settings or {}),
                compression=None if compression == "none" else compression,
            )

    def definition(self, table: TableRef, name: str | None = None) -> str:
        """The statement that would make a table of this name; its comment is part of it.

        Cheaper than `system.tables`, which goes through all tables of the database.
        """
        return str(self.query(f"SHOW CREATE TABLE {qualified(table, name)}")[0][0])

    @contextmanager
    def _stream(
        self, sql: str, fmt: str, settings: Mapping[str, str | int], snapshot: str | None
    ) -> Iterator[_Answer]:
        refuse_snapshot(self.system, snapshot)
        with self._translated():
            response = self._client().raw_stream(sql, fmt=fmt, settings=dict(settings))
        answer = _Answer(response, self.settings())
        try:
            yield answer
        finally:
            # also in the middle of the stream: the server stops when the client is gone
            answer.close()

    def _compression(self) -> Compression:
        found = self.compression or self.settings().options.get("compression", "none")
        if found not in ("none", "lz4", "zstd"):
            raise InputError(f"clickhouse compression should be none, lz4 or zstd; found {found!r}")
        return found  # type: ignore[return-value]

    def encryption(self) -> tuple[bool, bool, str | None]:
        """Whether by HTTPS, whether the certificate is verified, and another root's file."""
        options = self.settings().options
        secure = self.secure if self.secure is not None else options.get("secure") == "yes"
        verify = self.verify if self.verify is not None else _yes(options.get("verify", "yes"))
        return secure, verify, self.ca_cert or options.get("ca_cert")

    def _client(self) -> Any:
        settings = self.settings()
        options = dict(settings.options)
        secure, verify, authority = self.encryption()
        unknown = sorted(options.keys() - {"secure", "verify", "ca_cert", "compression"})
        if unknown:
            raise InputError(f"a clickhouse URL cannot have the option {', '.join(unknown)}")
        return _connect(
            settings.host,
            settings.port,
            settings.user or "default",
            settings.password or "",
            settings.database,
            secure,
            verify,
            authority,
        )

    @contextmanager
    def _translated(self, body: _Body | None = None) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if body is not None and body.error is not None:
                raise body.error from None
            if not from_driver(error):
                raise
            raise translate(error, self.settings()) from None


class _Answer(io.RawIOBase):
    """A streamed answer as a file, whose errors are ours.

    The server ends an answer that fails in the middle without the last HTTP chunk, so that a cut
    stream is never taken for a whole one.
    """

    def __init__(self, response: Any, settings: ConnectionSettings) -> None:
        super().__init__()
        self._response, self._settings = response, settings
        self._last: deque[bytes] = deque(maxlen=4)
        """The latest reads: an error's text may begin in them."""

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        try:
            data = bytes(self._response.read(None if size is None or size < 0 else size))
        except Exception as error:
            if not from_driver(error):
                raise
            raise translate(error, self._settings, b"".join(self._last)) from None
        self._last.append(data)
        return data

    def close(self) -> None:
        if not self.closed:
            self._response.close()
        super().close()


class _Body:
    """Chunks for the HTTP body; remembers the source's own error, which urllib3 would wrap."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            # an empty chunk would end the body: it is HTTP's own end mark
            yield from (chunk for chunk in self._chunks if len(chunk))
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise


def _compressed(chunks: Iterable[bytes], compression: Compression) -> Iterator[bytes]:
    if compression == "none":
        yield from chunks
    elif compression == "lz4":
        import lz4.frame  # type: ignore[import-untyped]

        packer = lz4.frame.LZ4FrameCompressor()
        yield packer.begin()
        for chunk in chunks:
            yield packer.compress(chunk)
        yield packer.flush()
    else:
        squeezer = zstd().ZstdCompressor(level=1)
        for chunk in chunks:
            yield squeezer.compress(chunk)
        yield squeezer.flush()


def _rows_whole(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Cut the stream at row ends: a TabSeparated row holds no newline but its last byte."""
    rest = b""
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            yield rest + chunk[:end]
            rest = chunk[end:]
        else:
            rest += chunk
    if rest:
        yield rest


@functools.lru_cache(maxsize=32)
def _connect_cached(*arguments: Any) -> Any:
    require("clickhouse", "ClickHouse")
    from clickhouse_connect import get_client

    # it warns of each lost connection on its own, with the URL
    logging.getLogger("clickhouse_connect").setLevel(logging.ERROR)
    host, port, user, password, database, secure, verify, ca_cert = arguments
    client = get_client(
        host=host,
        port=port,
        username=user,
        password=password,
        database=database,
        secure=secure,
        verify=verify,
        ca_cert=ca_cert,
        compress=False,
        # a session allows one query at a time, and would break the use from several threads
        autogenerate_session_id=False,
        connect_timeout=10,
        send_receive_timeout=READ_TIMEOUT,
        client_name="tableferry",
    )
    pin(client, f"user {user!r} of clickhouse at {host}:{port}")
    return client


_connecting = threading.Lock()


def _connect(*arguments: Any) -> Any:
    """One client per login: it holds a pool of connections and may be used from all threads."""
    with _connecting:
        return _connect_cached(*arguments)


def _text(value: str) -> str:
    return DIALECT.literal(value)


def _yes(value: str) -> bool:
    return value.lower() in ("yes", "true", "1")
