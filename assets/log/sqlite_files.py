"""SQLite files that a storage keeps open: Dagster opens and closes them for each question.

With every question it makes a new SQLAlchemy engine, which compiles the statement anew. For a
run of many ranges that is a third of the client's CPU time.
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
from sqlalchemy.pool import QueuePool

MOST_FILES = 12
"""Files that stay open: each Dagster run has one, and each home three."""
SECONDS_TO_WAIT = 60
"""For another process to end its transaction."""

FileId = tuple[int, int] | None

_inherited: list[object] = []
"""A forked child must neither use nor close its parent's connections."""


class SqliteFiles:
    """The open files of one storage, for any thread."""

    def __init__(self, prepare: Callable[[Engine], None] = lambda engine: None) -> None:
        """Make it.

        Args:
            prepare: makes the tables of a file that is opened, if they are missing.
        """
        self._prepare = prepare
        self._lock = threading.RLock()
        self._engines: OrderedDict[str, tuple[FileId, Engine]] = OrderedDict()
        self._process = os.getpid()

    @contextmanager
    def connect(self, url: str) -> Iterator[Connection]:
        """A connection to a file, and a transaction in it."""
        with self._engine(url).connect() as connection, connection.begin():
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
            self._close_the_oldest()
            return engine

    def _close_the_oldest(self) -> None:
        for url, (_, engine) in [*self._engines.items()][:-MOST_FILES]:
            # a pool of SQLAlchemy's closes only what nobody has borrowed
            if not engine.pool.checkedout():  # type: ignore[attr-defined]
                engine.dispose()
                del self._engines[url]


def _identity(file: str) -> FileId:
    """Which file it is, whatever its name."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def revision(file: Path, *tables: str) -> str | None:
    """The revision of a file's tables; None if there is none, or if one of these is missing."""
    if not file.exists():
        return None
    wanted = ("alembic_version", *tables)
    marks = ", ".join("?" * len(wanted))
    with closing(sqlite3.connect(file, timeout=SECONDS_TO_WAIT)) as connection:
        (found,) = connection.execute(
            f"SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ({marks})", wanted
        ).fetchone()
        if found < len(wanted):
            return None
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return row[0] if row else None
