"""ClickHouse over HTTP: control SQL, streaming Arrow and text both ways."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, cast

import pyarrow as pa
from pydantic import Field, PrivateAttr

from tableferry.resources import errors, extras
from tableferry.resources.clickhouse.bodies import AnswerBody, RequestBody
from tableferry.resources.clickhouse.cluster import Cluster, OneNode, cluster_of, several
from tableferry.resources.clickhouse.dialect import DIALECT, RANGE_COLUMN, literal
from tableferry.resources.clickhouse.errors import from_driver, translate
from tableferry.resources.clickhouse.settings import (
    BOUND,
    INSERT,
    WAITING,
    WRITES,
    Credentials,
    login_of,
    longest_statement,
    pin,
    release,
    writes,
)
from tableferry.resources.clickhouse.settings import OPTIONS as LOGIN_OPTIONS
from tableferry.resources.clickhouse.types import split_type
from tableferry.resources.connecting.address import Server
from tableferry.resources.connecting.retry import patiently
from tableferry.resources.connecting.waiting import may_write, seconds_left, watched, within
from tableferry.resources.contract.endpoint import BATCH_ROWS, Endpoint, refuse_snapshot
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

MOST_NAMED = 1_000
"""The maximum tables that a condition names."""

MUTATIONS_SQL = """
SELECT concat('waits for the mutation ', mutation_id, ' of ', database, '.', table, ', with ',
    toString(parts_to_do), ' parts to do',
    if(latest_fail_reason = '', '', concat(': ', latest_fail_reason)),
    '; mutations wait for free merge threads, and for SYSTEM START MERGES')
FROM system.mutations WHERE NOT is_done AND create_time < now() - 5 ORDER BY create_time LIMIT 5
"""

READ_TIMEOUT = 3600
"""Seconds to wait for a byte of the answer: a mutation answers only at its end."""

ALIGNED = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)
"""The buffers of an HTTP body are not aligned; mssql-python requires 16 bytes for decimals."""


OPTIONS = {"secure", "verify", "ca_cert", "cluster", *LOGIN_OPTIONS}
"""The options of a URL."""


class ClickHouseServer(Server):
    """A ClickHouse server, spoken to over HTTP.

    Args:
        url: `http[s]://user:pass@host:port/database`; `?verify=no` accepts any certificate,
            `?ca_cert=/path.pem` names another root.
            `?client_cert=/path.pem&client_key=/path.key` logs in by a certificate if there is no
            password, and `?authentication=token` sends the password as a bearer token.
            `?cluster=name` sets `cluster`.
        cluster: the replicas that keep what is made and written; see `Cluster`. Any of them may
            answer. By default one server does, and keeps it alone.

    Example:
        >>> ClickHouseServer(url="http://reader:secret@localhost:8123/warehouse").ping()
    """

    system_name: ClassVar[str] = "clickhouse"
    gone: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"compression": "leave it out; a tunnel can compress what goes through it (ssh -C)"}
    )

    secure: bool | None = Field(default=None, description="HTTPS instead of HTTP.")
    verify: bool | None = Field(default=None, description="Verify the server's certificate.")
    ca_cert: str | None = Field(default=None, description="File of another root certificate.")
    client_cert: str | None = Field(default=None, description="File of our own certificate.")
    client_key: str | None = Field(
        default=None, description="File of its key, if that is not in the certificate's file."
    )
    authentication: str | None = Field(
        default=None, description="password (default), or token: the password is a bearer token."
    )
    cluster: str | None = Field(
        default=None, description="Cluster of one shard whose replicas keep what is written."
    )

    _final: bool = PrivateAttr(default=False)
    """Whether tables are read as with FINAL."""

    def newest_versions(self) -> Self:
        """See `Endpoint.newest_versions`."""
        copy = self.model_copy()
        copy._final = True
        return copy

    @property
    def reads_final(self) -> bool:
        """Whether tables are read as with FINAL."""
        return self._final

    def ping(self) -> str:
        """The server's version."""
        return str(self.query("SELECT version()")[0][0])

    def version(self) -> tuple[int, int]:
        """The first two numbers of the server's version, as it said when we connected."""
        with self._logged_in() as client:
            return release(client)

    def clustered(self) -> Cluster | None:
        """Return the cluster that keeps what is written; None if one server does.

        Raises:
            InputError: see `cluster_of`.
        """
        settings = self.settings()
        if not (name := self._cluster_name(settings)):
            return None
        with self._logged_in():
            return cast(Cluster, settings.facts.latest(("cluster", name), None))

    def kept_by(self) -> str | None:
        """See `Endpoint.kept_by`."""
        if not (cluster := self.clustered()):
            return None
        return (
            f"what is made and written is kept by all {cluster.replicas} replicas of the cluster "
            f"{cluster.name!r}; a run needs all of them"
        )

    def _cluster_name(self, settings: ConnectionSettings) -> str:
        return self._declared(settings, ("cluster",))["cluster"] or ""

    def for_all(self, statement: str) -> str:
        """Return a statement as it is sent: for all replicas, if the connection names a cluster."""
        cluster = self.clustered()
        return cluster.on_all(statement, self.database_engine) if cluster else statement

    def database_engine(self, quoted: str) -> str:
        """Return the engine of a database; a process asks each connection once.

        Raises:
            InputError: there is no such database.
        """
        settings = self.settings()

        def ask() -> str:
            for name, engine in databases(self).items():
                if DIALECT.quote(name) == quoted:
                    return engine
            name = quoted.strip("`")
            raise errors.InputError(
                f"there is no database {name!r} on {settings}: create it, or correct the name"
            )

        return settings.facts.known(("engine of database", quoted), ask)

    def answering(self) -> list[str]:
        """Return the names of the servers that answer the next few connections: one, unless the
        connection names a cluster.

        Raises:
            InputError: several servers do, and it names none.
        """
        servers = set[tuple[str, str]]()
        for _ in range(4):
            with self._logged_in() as client:
                client.http.clear()  # the next request opens a connection
            ((name, number),) = self.query("SELECT displayName(), toString(serverUUID())")
            servers.add((str(name), str(number)))
        distinct = len({name for name, _ in servers}) == len(servers)
        answering = sorted(name if distinct else number for name, number in servers)
        if len(servers) > 1 and not self.clustered():
            raise errors.InputError(several(str(self.settings()), answering))
        return answering

    def identity(self) -> str:
        """Return the server's number, or the addresses of the replicas of a cluster. A table's
        schema is its database, whatever the address."""
        number = "toString(serverUUID())"
        if cluster := self.clustered():
            number = (
                "(SELECT toString(arraySort(groupArray((host_name, port)))) "
                f"FROM system.clusters WHERE cluster = {literal(cluster.name)})"
            )
        return str(self.query(f"SELECT {number}")[0][0])

    def instance(self) -> str | None:
        """The name of its host, as a copied data folder has the server's number, too; see
        `Endpoint.instance`."""
        return "" if self.clustered() else str(self.query("SELECT hostName()")[0][0])

    def columns_of(self, tables: Sequence[TableRef]) -> dict[TableRef, list[Column]]:
        """See `Endpoint.columns_of`. Our hidden column is left out.

        ClickHouse's primary key does not make rows unique, so no column is marked as part of it.
        """
        return columns_of(self, tables)

    @patiently
    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a small result."""
        refuse_snapshot(self.system, snapshot)
        with self.permit(ended=True), self._logged_in(repeatable=True) as client:
            settings = self._bounds(client)
            # some versions name the parts of tuples by themselves, which would be read as dicts
            found = client.query(sql, settings=settings, query_formats={"Tuple": "tuple"})
            return [tuple(row) for row in found.result_rows]

    def _bounds(self, client: Any) -> dict[str, int]:
        """The settings that end a statement, and let it write nothing, as far as the profile lets
        us set them."""
        seconds, facts, settings = seconds_left(), self.settings().facts, dict[str, int]()
        if seconds is not None:
            longest = facts.known(BOUND, partial(longest_statement, client))
            settings |= {} if longest is None else {BOUND: min(seconds, longest or seconds)}
        if not may_write() and facts.known(WRITES, partial(writes, client)):
            settings[WRITES] = 2
        return settings

    def execute(self, sql: str, settings: Mapping[str, str | int] | None = None) -> None:
        """Run a statement and wait for its end; for a mutation as long as may be waited.

        A mutation that is given up goes on in the server; it changes only rows that were there when
        it was issued.
        """

        statement = self.for_all(sql)

        @patiently
        def run() -> None:
            with self.permit(ended=True), self._logged_in() as client:
                client.command(statement, settings=dict(settings or {}))

        address = self.settings().address
        with watched(address, self._mutations):
            if any(name in sql or name in (settings or {}) for name in WAITING):
                within(address, "the server has not finished a mutation", run)
            else:
                run()

    def _mutations(self) -> list[str]:
        with self._logged_in() as client:
            return [str(row[0]) for row in client.query(MUTATIONS_SQL).result_rows]

    @contextmanager
    def read_arrow(
        self, sql: str, *, batch_rows: int = BATCH_ROWS, snapshot: str | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        """Stream a query's result as Arrow batches of at most `batch_rows` rows.

        String columns arrive as utf8, unchecked, because ClickHouse does not distinguish text from
        bytes; a cast to binary is free. DateTime64 without a time zone arrives as a timestamp in
        UTC.
        """
        refuse_snapshot(self.system, snapshot)
        settings: dict[str, str | int] = {
            "max_block_size": batch_rows,
            "output_format_arrow_string_as_string": 1,
            "output_format_arrow_compression_method": "none",
        }
        with self.permit():
            response = self._streamed(sql, settings)
            # closed in the middle of the stream, too: the server stops when the client is gone
            with contextlib.closing(
                AnswerBody(response, self.settings(), self.keep_pace)
            ) as answer:
                yield pa.ipc.open_stream(answer, options=ALIGNED)

    @patiently
    def _streamed(self, sql: str, settings: Mapping[str, str | int]) -> Any:
        with self._logged_in(repeatable=True) as client:
            bounds = self._bounds(client)
            return client.raw_stream(sql, fmt="ArrowStream", settings={**settings, **bounds})

    def insert(
        self,
        table: TableRef,
        columns: Iterable[str],
        chunks: Iterable[bytes],
        fmt: Literal["ArrowStream", "TabSeparated"],
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        """Stream one INSERT in constant memory. Errors of the generator are raised unchanged.

        The columns are in the chunks' order, but those of an Arrow stream match by name. The
        settings add to `INSERT`.

        Raises:
            StatementFailed: the server refused a row, or went away. Earlier rows may be in the
                table: an INSERT of several blocks is not atomic.
        """
        if self.settings().password_source is not None:
            self.query("SELECT 1")  # chunks that a refused login has taken would not come again
        statement = insert_statement(table, columns, fmt) + "\n"
        # the statement is part of the body, because 500 columns would make a long URL
        body = RequestBody(itertools.chain([statement.encode()], chunks))
        with self._logged_in(body) as client:
            client.raw_insert(insert_block=iter(body), settings=dict(INSERT) | dict(settings or {}))

    def definition(self, table: TableRef, name: str | None = None) -> str:
        """The CREATE TABLE statement of a table, with its comment.

        It is cheaper than `system.tables`, which goes through all tables of the database.
        """
        return str(self.query(definition_query(table, name))[0][0])

    def encryption(self) -> tuple[bool, bool, str | None]:
        """Whether HTTPS is used and the certificate verified, and the file of another root."""
        options = self.settings().options
        secure = self.secure if self.secure is not None else options.get("secure") == "yes"
        verify = self.verify if self.verify is not None else _yes(options.get("verify", "yes"))
        return secure, verify, self.ca_cert or options.get("ca_cert")

    def login(self, settings: ConnectionSettings) -> Credentials:
        """How to log in; see `login_of`."""
        declared = self._declared(settings, LOGIN_OPTIONS)
        return login_of(settings, declared, secure=self.encryption()[0])

    def _client(self, settings: ConnectionSettings) -> Any:
        """The process's client of this login: it has a pool of connections for all threads."""
        encryption, login = self.encryption(), self.login(settings)
        cluster = self._cluster_name(settings)
        self._require_options(settings.options, OPTIONS)
        return settings.facts.known(
            ("client", encryption, login, cluster, self._final),
            lambda: _connect(settings, login, cluster, *encryption, final=self._final),
            (settings.password, login.written()),
        )

    @contextmanager
    def _logged_in(
        self, body: RequestBody | None = None, *, repeatable: bool = False
    ) -> Iterator[Any]:
        """The client, with its errors translated; a lost connection counts as none where what was
        sent can be repeated."""
        settings = self.settings()
        try:
            yield self._client(settings)
        except Exception as error:
            if body is not None and body.error is not None:
                raise body.error from None
            if not from_driver(error):
                raise
            failed = translate(error, settings)
            if repeatable and isinstance(failed, errors.StatementFailed) and failed.code is None:
                failed = settings.failed(str(failed), transient=True)
            raise failed from None


def databases(endpoint: Endpoint) -> dict[str, str]:
    """Return the engines of a server's databases, by their names and in the order of these."""
    rows = endpoint.query("SELECT name, engine FROM system.databases ORDER BY name")
    return {str(name): str(engine) for name, engine in rows}


def insert_statement(table: TableRef, columns: Iterable[str], fmt: str) -> str:
    """Write the INSERT whose rows follow in a format."""
    names = ", ".join(map(DIALECT.quote, columns))
    return f"INSERT INTO {qualified(table)} ({names}) FORMAT {fmt}"


def definition_query(table: TableRef, name: str | None = None) -> str:
    """Write the query of `ClickHouseServer.definition`."""
    return f"SHOW CREATE TABLE {qualified(table, name)}"


def columns_of(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, list[Column]]:
    """Return the columns of tables of one database, without tables that do not exist."""
    rows = endpoint.query(
        "SELECT table, name, type, default_kind FROM system.columns "
        f"WHERE {among(tables, name='table')} ORDER BY table, position"
    )
    columns: dict[str, list[Column]] = {}
    for table, name, declared, default_kind in rows:
        of_table = columns.setdefault(table, [])
        if name == RANGE_COLUMN and default_kind == "MATERIALIZED":
            continue
        if default_kind == "EPHEMERAL":  # nothing is stored of it
            continue
        type_, nullable = split_type(declared)
        generated = default_kind in ("MATERIALIZED", "ALIAS")
        of_table.append(Column(name, type_, nullable=nullable, generated=generated))
    return {table: columns[table.name] for table in tables if table.name in columns}


def among(tables: Sequence[TableRef], *more: str, name: str = "name") -> str:
    """Write the condition that a row of the catalog is about one of the tables of one database.

    For many tables it holds for all of the database.

    Args:
        tables: the tables.
        more: names of further tables of the database.
        name: the column with the table's name.
    """
    of_database = f"database = {literal(tables[0].schema)}"
    names = dict.fromkeys([*(table.name for table in tables), *more])
    if len(names) > MOST_NAMED:
        return of_database
    return f"{of_database} AND {name} IN ({', '.join(map(literal, names))})"


def _connect(
    settings: ConnectionSettings,
    login: Credentials,
    cluster: str,
    secure: bool,
    verify: bool,
    ca_cert: str | None,
    *,
    final: bool,
) -> Any:
    extras.require("clickhouse", "ClickHouse")
    from clickhouse_connect import get_client

    # it warns of each lost connection with the URL
    logging.getLogger("clickhouse_connect").setLevel(logging.ERROR)
    user = settings.user or "default"
    client: Any = get_client(
        host=settings.host,
        port=settings.port,
        **login.arguments(settings, user),
        database=settings.database,
        secure=secure,
        verify=verify,
        ca_cert=ca_cert,
        compress=False,
        # a session allows one query at a time, but several threads use the client
        autogenerate_session_id=False,
        connect_timeout=10,
        send_receive_timeout=READ_TIMEOUT,
        client_name="tableferry",
    )
    if not cluster:
        client.http = OneNode(client.http, str(settings))
    pin(client, f"user {user!r} of clickhouse at {settings.host}:{settings.port}")
    client.set_client_setting("final", int(final))
    if cluster:
        known = settings.facts.known(
            ("cluster", cluster), lambda: cluster_of(client, cluster, str(settings))
        )
        for name, value in known.session.items():
            client.set_client_setting(name, value)
    return client


def _yes(value: str) -> bool:
    return value.lower() in ("yes", "true", "1")
