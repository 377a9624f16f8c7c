"""An SQLite file that a storage keeps open; Dagster opens and closes it for each query.

Dagster also creates an SQLAlchemy engine per query, which compiles the statement anew: a third of
the client's CPU time in a run of many ranges.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import QueuePool

from tableferry.resources.errors import StatementFailed

SECONDS_TO_WAIT = 60
"""Timeout for the lock that another process holds during its transaction."""
LITTLE_SPACE = 1 << 20
"""Bytes of a disk that count as none: the files grow by 32 KiB and more at once."""

FileId = tuple[int, int] | None

_inherited: list[object] = []
"""Connections of a parent process, which a forked child must neither use nor close."""


class SqliteFile:
    """A file that stays open; safe for any thread."""

    def __init__(
        self, path: Path | str, prepare: Callable[[Engine], None] = lambda engine: None
    ) -> None:
        """Open nothing yet; `prepare` creates missing tables when the file is opened."""
        self._path, self._prepare = str(path), prepare
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._opened_as: FileId = None
        self._process = os.getpid()

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Connect, and begin a transaction.

        Raises:
            StatementFailed: the disk is full.
        """
        with (
            _telling_of_a_full_disk(self._path),
            self._open().connect() as connection,
            connection.begin(),
        ):
            yield connection

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
            self._engine = None

    def _open(self) -> Engine:
        with self._lock:
            if self._process != os.getpid():
                _inherited.append(self._engine)
                self._engine, self._process = None, os.getpid()
            if self._opened_as != _identity(self._path):
                # deleted, or replaced by a backup
                self.close()
            if self._engine is None:
                engine = create_engine(
                    URL.create("sqlite", database=self._path),
                    poolclass=QueuePool,
                    max_overflow=-1,
                    connect_args={"timeout": SECONDS_TO_WAIT, "check_same_thread": False},
                )
                self._prepare(engine)
                self._engine, self._opened_as = engine, _identity(self._path)
            return self._engine


@contextmanager
def _telling_of_a_full_disk(file: str) -> Iterator[None]:
    """Say that the disk is full: SQLite calls it an I/O error where it maps memory to a file."""
    try:
        yield
    except OperationalError as error:
        code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        space = os.statvfs(os.path.dirname(file) or ".")
        if code == sqlite3.SQLITE_FULL or (
            code == sqlite3.SQLITE_IOERR and space.f_bavail * space.f_frsize < LITTLE_SPACE
        ):
            raise StatementFailed("event log", f"the disk of {file} is full") from None
        raise


def _identity(file: str) -> FileId:
    """Return the file's device and inode; None if it does not exist."""
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def has_tables(file: Path) -> bool:
    """Whether a file has the tables of a storage, which Dagster stamps with their revision."""
    if not file.exists():
        return False
    with closing(sqlite3.connect(file, timeout=SECONDS_TO_WAIT)) as connection:
        stamped = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
        if connection.execute(stamped).fetchone() is None:
            return False
        return connection.execute("SELECT 1 FROM alembic_version").fetchone() is not None
