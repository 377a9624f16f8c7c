"""One PostgreSQL session, for statements that belong together."""

from __future__ import annotations

from typing import Any

import psycopg

from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import TableferryError
from tableferry.resources.postgres.errors import statement_failed


class PostgresSession:
    """A connection in autocommit mode: transactions are opened and ended in SQL.

    Args:
        settings: of the server, for messages.
        raw: the connection; ended with the session.
    """

    def __init__(
        self, settings: ConnectionSettings, raw: psycopg.Connection[tuple[Any, ...]]
    ) -> None:
        self._settings, self.raw = settings, raw
        self.failed = False
        """Whether a statement has."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a small result.

        Raises:
            StatementFailed: the server refused the statement.
        """
        try:
            return self.raw.execute(sql.encode()).fetchall()
        except psycopg.Error as error:
            raise self._failed(error) from error

    def execute(self, sql: str) -> int:
        """Run a statement; returns the number of rows that it changed, or -1.

        Raises:
            StatementFailed: the server refused the statement.
        """
        try:
            return self.raw.execute(sql.encode()).rowcount
        except psycopg.Error as error:
            raise self._failed(error) from error

    def copy_in(self, sql: str, chunks: Any) -> tuple[int, int]:
        """Run a COPY ... FROM STDIN.

        Args:
            sql: the statement.
            chunks: what it reads, an iterable of bytes; an error of theirs ends the COPY.

        Returns:
            The rows that the server has taken, and the bytes that it was sent.

        Raises:
            StatementFailed: the server refused the statement or a row.
        """
        sent = 0
        try:
            with self.raw.cursor() as cursor:
                with cursor.copy(sql.encode()) as copy:
                    for chunk in chunks:
                        copy.write(chunk)
                        sent += len(chunk)
                return cursor.rowcount, sent
        except psycopg.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: psycopg.Error) -> TableferryError:
        self.failed = True
        return statement_failed(self._settings, error)

    def close(self) -> None:
        """End the session; harmless if it is gone."""
        self.raw.close()
