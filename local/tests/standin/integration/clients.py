"""Clients of the SQL Server stand-in that others wrote, ready to be pointed at it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import mssql_python
import pyarrow as pa
import pymssql

# Sequences of characters that are in no test value.
FIELD_END, ROW_END = "|~|", "|^|\n"


@dataclass(frozen=True)
class Clients:
    """Where the server is; every method opens a connection of its own."""

    host: str
    port: int
    user: str
    password: str
    database: str

    @classmethod
    def of(cls, url: str) -> Clients:
        """The clients for a URL such as the stack's."""
        parts = urlsplit(url)
        return cls(
            str(parts.hostname),
            int(parts.port or 1433),
            unquote(parts.username or ""),
            unquote(parts.password or ""),
            parts.path.strip("/"),
        )

    def connection_string(self, **options: str) -> str:
        """For mssql-python."""
        settings = {
            "Server": f"{self.host},{self.port}",
            "Database": self.database,
            "UID": self.user,
            "PWD": self.password,
            "Encrypt": "yes",
            "TrustServerCertificate": "yes",
            **options,
        }
        return ";".join(f"{key}={value}" for key, value in settings.items())

    @contextmanager
    def odbc(self, *, autocommit: bool = True, **options: str) -> Iterator[Any]:
        """mssql-python."""
        text = self.connection_string(**options)
        with closing(mssql_python.connect(text, autocommit=autocommit)) as connection:
            yield connection

    @contextmanager
    def pymssql(
        self, *, autocommit: bool = True, timeout: int = 0, **options: Any
    ) -> Iterator[Any]:
        """pymssql; `timeout` is a statement's longest time, in seconds, and 0 is no limit.

        It is DB-Library's, which has one for the process: pymssql leaves it to later connections.
        """
        settings: dict[str, Any] = {
            "server": self.host,
            "port": str(self.port),
            "user": self.user,
            "password": self.password,
            "database": self.database,
            **options,
        }
        with closing(pymssql.connect(autocommit=autocommit, **settings)) as connection:
            connection._conn.query_timeout = timeout
            try:
                yield connection
            finally:
                connection._conn.query_timeout = 0

    def run(self, *batches: str) -> None:
        """Batches whose results are not wanted."""
        with self.pymssql() as connection:
            for batch in batches:
                connection.cursor().execute(batch)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """A query's rows as pymssql reads them."""
        with self.pymssql() as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def arrow(self, sql: str, *, batch_rows: int = 1000, encrypt: str = "yes") -> pa.Table:
        """A query's rows as mssql-python's Arrow reader reads them."""
        with self.odbc(Encrypt=encrypt) as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            reader = cursor.arrow_reader(batch_rows)
            return pa.Table.from_batches(list(reader), reader.schema)

    def freebcp(
        self, what: str, direction: str, file: Path, *options: str
    ) -> subprocess.CompletedProcess[str]:
        """freebcp in character mode."""
        command = ["freebcp", what, direction, str(file), "-c", "-t", FIELD_END, "-r", ROW_END]
        command += ["-S", f"{self.host}:{self.port}", "-D", self.database]
        command += ["-U", self.user, "-P", self.password, *options]
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=120, check=False
        )
