"""One PostgreSQL session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.postgres.errors import statement_failed


class PostgresSession:
    """A connection in autocommit mode: transactions are opened and ended in SQL.

    Args:
        settings: the server's, for messages.
        raw: the connection, which `close` closes.
    """

    def __init__(
        self, settings: ConnectionSettings, raw: psycopg.Connection[tuple[Any, ...]]
    ) -> None:
        self._settings, self.raw = settings, raw
        self.failed = False
        """Whether a statement has failed."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result.

        Raises:
            StatementFailed: the server refused the statement.
        """
        with self._translated():
            return self.raw.execute(sql.encode()).fetchall()

    def execute(self, sql: str) -> int:
        """Run a statement; return the number of rows that it changed, or -1.

        Raises:
            StatementFailed: see `query`.
        """
        with self._translated():
            return self.raw.execute(sql.encode()).rowcount

    def copy_in(self, sql: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Run a COPY ... FROM STDIN, which reads the chunks; an error in these ends it.

        Returns:
            The number of rows that the server accepted, and the bytes sent.

        Raises:
            StatementFailed: see `query`.
        """
        sent = 0
        with self._translated(), self.raw.cursor() as cursor:
            with cursor.copy(sql.encode()) as copy:
                for chunk in chunks:
                    copy.write(chunk)
                    sent += len(chunk)
            return cursor.rowcount, sent

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            self.failed = True
            raise statement_failed(self._settings, error) from error

    def close(self) -> None:
        """Close the connection; harmless if it is already closed."""
        self.raw.close()
