"""SQLite files that a storage keeps open; Dagster opens and closes them for each query.

Dagster also creates an SQLAlchemy engine per query, which compiles the statement anew: a third of
the client's CPU time in a run of many ranges.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import create_engine, make_url
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import QueuePool

from tableferry.resources.errors import StatementFailed

MAX_OPEN_FILES = 12
"""Maximum number of open files: each Dagster run has one, and each home three."""
SECONDS_TO_WAIT = 60
"""Timeout for the lock that another process holds during its transaction."""
LITTLE_SPACE = 1 << 20
"""Bytes of a disk that count as none: the files grow by 32 KiB and more at once."""

FileId = tuple[int, int] | None

_inherited: list[object] = []
"""Connections of a parent process, which a forked child must neither use nor close."""


class SqliteFiles:
    """The open files of one storage; safe for any thread."""

    def __init__(self, prepare: Callable[[Engine], None] = lambda engine: None) -> None:
        """Open nothing yet; `prepare` creates missing tables when a file is opened."""
        self._prepare = prepare
        self._lock = threading.RLock()
        self._engines: OrderedDict[str, tuple[FileId, Engine]] = OrderedDict()
        self._process = os.getpid()

    @contextmanager
    def connect(self, url: str) -> Iterator[Connection]:
        """Connect to a file, and begin a transaction.

        Raises:
            StatementFailed: its disk is full.
        """
        with (
            _telling_of_a_full_disk(make_url(url).database or "."),
            self._engine(url).connect() as connection,
            connection.begin(),
        ):
            yield connection

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            for _, engine in self._engines.values():
                engine.dispose()
            self._engines.clear()

    def _engine(self, url: str) -> Engine:
        file = make_url(url).database or ""
        with self._lock:
            if self._process != os.getpid():
                _inherited.append(self._engines)
                self._engines, self._process = OrderedDict(), os.getpid()
            opened_as, engine = self._engines.get(url, (None, None))
            if engine is not None and opened_as != _identity(file):
                # deleted, or replaced by a backup
                engine.dispose()
                engine = None
            if engine is None:
                engine = create_engine(
                    url,
                    poolclass=QueuePool,
                    max_overflow=-1,
                    connect_args={"timeout": SECONDS_TO_WAIT, "check_same_thread": False},
                )
                self._prepare(engine)
                self._engines[url] = _identity(file), engine
            self._engines.move_to_end(url)
            for old_url, (_, old) in [*self._engines.items()][:-MAX_OPEN_FILES]:
                # disposing of an engine does not close connections in use
                if not old.pool.checkedout():  # type: ignore[attr-defined]
                    old.dispose()
                    del self._engines[old_url]
            return engine


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


def revision(file: Path, *tables: str) -> str | None:
    """Return the schema revision of a file; None if the file or one of the tables is missing."""
    if not file.exists():
        return None
    required = ("alembic_version", *tables)
    placeholders = ", ".join("?" * len(required))
    with closing(sqlite3.connect(file, timeout=SECONDS_TO_WAIT)) as connection:
        (present,) = connection.execute(
            f"SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ({placeholders})",
            required,
        ).fetchone()
        if present < len(required):
            return None
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return row[0] if row else None
