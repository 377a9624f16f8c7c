"""SQL Server through Microsoft's own driver: control SQL, Arrow out, bulk copy in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, cast, get_args

import pyarrow as pa
from pydantic import Field

from tableferry.resources.artifacts import BYTES, FOLDER
from tableferry.resources.connecting.address import Server
from tableferry.resources.connecting.retry import patiently
from tableferry.resources.contract.batches import combined, fetched
from tableferry.resources.contract.endpoint import BATCH_ROWS, refuse_snapshot
from tableferry.resources.contract.settings import DigestsBy
from tableferry.resources.errors import InputError
from tableferry.resources.sqlserver.bcp_process import TIMEOUT
from tableferry.resources.sqlserver.bcp_tool import TOOL, Encryption
from tableferry.resources.sqlserver.catalog import columns_of
from tableferry.resources.sqlserver.connection import SqlServerConnection, pool, quiet_cursor
from tableferry.resources.sqlserver.login import METHODS, Login, login_of
from tableferry.resources.sqlserver.login import OPTIONS as LOGIN_OPTIONS
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

ALLOWS_SNAPSHOT = """
SELECT 1 FROM sys.databases WHERE name = DB_NAME() AND snapshot_isolation_state = 1
"""
IDENTITY = """
SELECT CAST(SERVERPROPERTY('ServerName') AS nvarchar(128)), CAST(name AS nvarchar(128)), create_date
FROM sys.databases WHERE name = DB_NAME()
"""
"""Babelfish's servers may all have one name; no two have created a database at the same time."""

USE_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL SNAPSHOT"
"""A batch of its own: Babelfish refuses it after any other statement of the same batch.

READ COMMITTED locks row after row: it may miss a row that moves, or read it twice."""

OPTIONS = {
    *("encrypt", "trust_server_certificate", "server_certificate", "digest_by"),
    *LOGIN_OPTIONS,
}
"""The options of a URL."""

PACKET_BYTES = 8000
"""What SqlClient requests. The driver requests 4096, which is Babelfish's default: Babelfish does
not confirm it, and without a confirmation the driver's bulk copy panics."""

MOST_BATCH_BYTES = 64 << 20
"""A batch whose rows cannot take more by their declared lengths is fetched at once."""


class SqlServerServer(Server):
    """A SQL Server (2019 or later), or a Babelfish, spoken to by `mssql-python`.

    Args:
        url: `mssql://user:pass@host:port/database`, with `?encrypt=yes|no|strict`,
            `trust_server_certificate=yes|no`, `server_certificate=/path.pem`,
            `authentication=ActiveDirectory...`, `trusted_connection=yes|no` and
            `digest_by=auto|server|client` as options. By default the connection is encrypted
            and the certificate verified, for a host name and not for an IP address, by the
            authorities of the machine or of the file that the variable SSL_CERT_FILE names.

    Example:
        >>> SqlServerServer(url="mssql://sa:secret@localhost:1433/shop").ping()
    """

    system_name: ClassVar[str] = "sqlserver"
    gone: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "packet_size": f"packets have {PACKET_BYTES:,} bytes; leave it out",
            "bcp": f"set the variable {TOOL}",
            "bcp_timeout": f"set the variable {TIMEOUT}",
            "artifacts": f"set the variable {FOLDER}",
            "artifact_bytes": f"set the variable {BYTES}",
        }
    )

    authentication: str | None = Field(
        default=None, description=f"Who gives a token to log in: {', '.join(METHODS.values())}."
    )
    trusted_connection: str | None = Field(
        default=None, description="yes to log in by Kerberos; no (default)."
    )
    tenant: str | None = Field(
        default=None, description="Tenant of a service principal; AZURE_TENANT_ID if not given."
    )
    encrypt: str | None = Field(default=None, description="yes (default), no or strict.")
    trust_server_certificate: bool | None = Field(
        default=None, description="Accept any certificate."
    )
    server_certificate: str | None = Field(
        default=None, description="File of the certificate that the server must show; for strict."
    )
    digest_by: str | None = Field(
        default=None, description="Who computes row digests: auto (default), server or client."
    )

    def ping(self) -> str:
        """The server's version."""
        return " ".join(str(self.query("SELECT @@VERSION")[0][0]).split())

    def identity(self) -> str:
        """Return the names of the server and the database, and when the database was created."""
        return "/".join(map(str, self.query(IDENTITY)[0]))

    def instance(self) -> str | None:
        """When the server was started, and so made tempdb anew; see `Endpoint.instance`."""
        return str(self.query("SELECT create_date FROM sys.databases WHERE name = N'tempdb'"))

    def place(self, table: TableRef) -> tuple[str, str, str]:
        """Names that differ by case alone are one where the database's collation says so."""
        server, schema, name = super().place(table)
        if self.query("SELECT 1 WHERE N'a' = N'A'"):
            return server, schema.casefold(), name.casefold()
        return server, schema, name

    def columns_of(self, tables: Sequence[TableRef]) -> dict[TableRef, list[Column]]:
        """See `Endpoint.columns_of`. Types are as they are declared in full."""
        with self.pooled_connection() as connection:
            return columns_of(connection.query, tables)

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a small result; the batch must not change its session."""
        refuse_snapshot(self.system, snapshot)
        with self.pooled_connection() as connection, connection.taking_back(sql):
            return connection.query(sql)

    def execute(self, sql: str) -> None:
        """Run a batch and commit it."""
        with self.connection() as connection:
            connection.execute(sql)

    @contextmanager
    def read_arrow(
        self, sql: str, *, batch_rows: int = BATCH_ROWS, snapshot: str | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        """Stream a query's result as Arrow batches of at most `batch_rows` rows.

        Only the current batch is in memory, which is bounded by bytes where columns have no
        declared length. Where the database allows SNAPSHOT isolation, the rows
        are those of one moment; SQL Server cannot share a snapshot between connections.
        """
        refuse_snapshot(self.system, snapshot)
        lent = pool.lent(self._pool_key() + "streams", self._streaming, self._gate)
        with lent as connection, connection.translated(sql), connection.taking_back(sql):
            connection.bound()
            cursor = quiet_cursor(connection.raw)
            with connection.waits():
                cursor.execute(sql, use_prepare=False)
            cursor.messages = None  # so that none are collected after the last row
            reader = _Reader(cursor, connection)
            batches = self._paced(reader.batches(batch_rows), lambda batch: batch.nbytes)
            yield pa.RecordBatchReader.from_batches(reader.schema, batches)
            if reader.finished:
                cursor.close()
            else:
                connection.close()  # it would have to receive the rest first

    @contextmanager
    def connection(self) -> Iterator[SqlServerConnection]:
        """A new connection in autocommit mode; closed at the end, and its locks released."""
        with self.permit(), contextlib.closing(self.connected()) as connection:
            yield connection

    @patiently
    def connected(self) -> SqlServerConnection:
        """A new connection, which the caller closes."""
        return SqlServerConnection(self.login(), self.connection_string)

    @contextmanager
    def pooled_connection(self) -> Iterator[SqlServerConnection]:
        """A connection of the pool; see `ConnectionPool`.

        The user must end its transactions and release its locks, and may set XACT_ABORT. After a
        failed statement the connection is closed.
        """
        with pool.lent(self._pool_key(), self.connected, self._gate) as connection:
            yield connection
            if connection.failed:
                connection.close()

    def _streaming(self) -> SqlServerConnection:
        """A new connection with SNAPSHOT isolation, if the database allows it."""
        connection = self.connected()
        if connection.query(ALLOWS_SNAPSHOT):
            connection.execute(USE_SNAPSHOT)
        return connection

    def login(self) -> Login:
        """How to log in.

        Raises:
            InputError: what is declared contradicts itself, or is not known.
        """
        settings = self.settings()
        return login_of(settings, self._declared(settings, LOGIN_OPTIONS))

    def _pool_key(self) -> str:
        login = self.login()
        common = login.settings.for_pool
        who = (login.method, login.tenant, common.user, common.given_password)
        return f"{self.connection_string(replace(login, settings=common))} {who}"

    def connection_string(self, login: Login | None = None) -> str:
        """The driver's connection string, with the password that its login has asked for."""
        login = login or self.login()
        settings, how = login.settings, self.encryption()
        parts = {
            "Server": f"{settings.host},{settings.port}",
            "Database": settings.database,
            **login.parts(),
            "Encrypt": how.encrypt,
            "TrustServerCertificate": "yes" if how.trust else "no",
            # a silent reconnection would lose the session's application lock
            "ConnectRetryCount": "0",
        }
        if how.certificate:
            parts["ServerCertificate"] = how.certificate
        parts["PacketSize"] = str(PACKET_BYTES)
        return ";".join(f"{name}={_braced(value)}" for name, value in parts.items())

    def encryption(self) -> Encryption:
        """How connections are encrypted.

        Raises:
            InputError: an option has an invalid value.
        """
        options = self.settings().options
        trust = options.get("trust_server_certificate", "no").lower()
        encrypt = self.encrypt or options.get("encrypt", "yes").lower()
        certificate = self.server_certificate or options.get("server_certificate")
        self._require_options(options, OPTIONS)
        if encrypt not in ("yes", "no", "strict"):
            raise InputError(f"sqlserver encrypt should be yes, no or strict; found {encrypt!r}")
        if trust not in ("yes", "no"):
            raise InputError(
                f"sqlserver trust_server_certificate should be yes or no; found {trust!r}"
            )
        if certificate and encrypt != "strict":
            # https://learn.microsoft.com/sql/connect/odbc/dsn-connection-string-attribute
            raise InputError(
                "sqlserver server_certificate needs encrypt=strict: in other modes the driver does "
                "not look at it; SSL_CERT_FILE names an authority of your own"
            )
        if self.trust_server_certificate is not None:
            trust = "yes" if self.trust_server_certificate else "no"
        return Encryption(
            encrypt=encrypt,
            trust=trust == "yes",
            certificate=str(certificate) if certificate else None,
        )

    def digests_by(self) -> DigestsBy:
        """Who computes the digests of the server's rows."""
        declared = self.digest_by or self.settings().options.get("digest_by", "auto")
        if declared not in get_args(DigestsBy):
            raise InputError(
                f"sqlserver digest_by should be auto, server or client; found {declared!r}"
            )
        return cast(DigestsBy, declared)


class _Reader:
    """The rows of an executed query as Arrow batches, with translated errors."""

    def __init__(self, cursor: Any, connection: SqlServerConnection) -> None:
        self._cursor, self._connection = cursor, connection
        self.finished, self.schema = False, cursor.arrow_batch(0).schema

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of at most so many rows, of about `BATCH_BYTES` where rows may be large."""
        with self._connection.translated():
            if _row_bytes(self._cursor.description) * batch_rows <= MOST_BATCH_BYTES:
                while (batch := self._cursor.arrow_batch(batch_rows)).num_rows:
                    yield batch
            else:
                yield from combined(fetched(self._cursor.arrow_batch, batch_rows), batch_rows)
        self.finished = True


def _row_bytes(description: Sequence[Sequence[Any]]) -> float:
    """The most bytes of a row, by its columns' declared lengths: of text, each takes four."""
    return sum(4 * column[3] or float("inf") for column in description)


def _braced(value: str) -> str:
    return "{" + value.replace("}", "}}") + "}"
