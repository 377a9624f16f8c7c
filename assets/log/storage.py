"""Dagster's SQLite storage, extended; and the instance of a home as a command opens it.

The event log's file stays open, it has the events of all runs, and those of a range are stored at
once. New homes name `Storage` in dagster.yaml (`storage: custom`). What dagster.yaml names is used
by commands as by Dagster's services.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy as sql
from sqlalchemy import create_engine
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import QueuePool

from tableferry.assets.log.dagster_internals import (
    ConfigurableClassData,
    DagsterSqliteStorage,
    InstanceRef,
    NoOpComputeLogManager,
    SqlEventLogStorage,
    SqliteEventLogStorage,
    SqlPollingEventWatcher,
)
from tableferry.assets.log.grouping import GroupedEvents
from tableferry.assets.log.queries import INDEX
from tableferry.resources.errors import StatementFailed
from tableferry.resources.extras import require

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
            raise StatementFailed(
                "event log", f"the disk of {file} is full: free space, and run again"
            ) from None
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


class SqliteEventLog(GroupedEvents, SqliteEventLogStorage):
    """An event log of one file, Dagster's index, in which each event is stored once.

    Dagster's own has another file per run, of 100 KB before it holds an event, with what the index
    holds, too. Runs that have such a file, because Dagster's storage began them, keep it.
    """

    def __init__(self, base_dir: str) -> None:
        """Open the files of a folder, creating them if need be."""
        GroupedEvents.__init__(self)
        self._file = SqliteFile(Path(base_dir, INDEX.name), self._make_tables)
        self._tables: set[str] = set()
        SqliteEventLogStorage.__init__(self, base_dir)
        self._watcher = SqlPollingEventWatcher(self)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Begin a transaction in the index; one at a time, as in Dagster."""
        with self._storing, self._file.connect() as connection:
            yield connection

    def run_connection(self, run_id: str | None = None) -> Any:
        """Begin a transaction in the file that holds the events of a run."""
        own = run_id is not None and self._has_own_file(run_id)
        return self._connect(run_id if own and run_id else INDEX.stem)

    def _connect(self, shard: str) -> AbstractContextManager[Connection]:  # type: ignore[override]
        return self.joined(self.begin) if shard == INDEX.stem else super()._connect(shard)

    def insert(self, event: dg.EventLogEntry) -> None:
        """Insert an event into the tables."""
        if self._has_own_file(event.run_id):
            super().insert(event)
        else:
            SqlEventLogStorage.store_event(self, event)

    def get_event_records(
        self,
        event_records_filter: dg.EventRecordsFilter,
        limit: int | None = None,
        ascending: bool = False,
    ) -> Sequence[dg.EventLogRecord]:
        """Return events of all runs."""
        return SqlEventLogStorage.get_event_records(self, event_records_filter, limit, ascending)

    def wipe_asset(self, asset_key: dg.AssetKey) -> None:
        """Forget an asset; the logs of its runs keep their events."""
        SqlEventLogStorage.wipe_asset(self, asset_key)

    def watch(self, run_id: str, cursor: str | None, callback: Callable[..., Any]) -> None:
        """Pass the new events of a run to a function."""
        self._watcher.watch_run(run_id, cursor, callback)

    def end_watch(self, run_id: str, handler: Callable[..., Any]) -> None:
        """Stop passing events to a function."""
        self._watcher.unwatch_run(run_id, handler)

    def has_table(self, table_name: str) -> bool:
        """Whether the index has a table; remembered once it does."""
        if table_name not in self._tables:
            with self.index_connection() as connection:
                if sql.inspect(connection).has_table(table_name):
                    self._tables.add(table_name)
        return table_name in self._tables

    def dispose(self) -> None:
        """Close the files."""
        self._watcher.close()
        super().dispose()
        self._file.close()

    def _make_tables(self, engine: Engine) -> None:
        if not has_tables(Path(self._base_dir, INDEX.name)):
            self._initdb(engine, for_index_shard=True)

    def _has_own_file(self, run_id: str) -> bool:
        return bool(run_id) and os.path.exists(self.path_for_shard(run_id))


class Storage(DagsterSqliteStorage):
    """All storages of a home, with the events of all runs in one file."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        """Open the files of a home, creating them if need be."""
        super().__init__(base_dir, inst_data)
        self._event_log_storage = SqliteEventLog(str(Path(base_dir, INDEX).parent))

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> Storage:
        """Open the files of the home that dagster.yaml names."""
        return cls.from_local(inst_data=inst_data, **config_value)


POSTGRES_MODULE = "tableferry.assets.log.postgres_storage"
NO_OUTPUT = ConfigurableClassData(
    NoOpComputeLogManager.__module__, NoOpComputeLogManager.__name__, "{}\n"
)


def open_instance(home: Path) -> dg.DagsterInstance:
    """Open the instance of a home for a process that executes its runs itself.

    The output of runs goes to the terminal unless dagster.yaml says otherwise; Dagster would start
    two processes per run to copy it from a file. Usage statistics are off, whatever dagster.yaml
    says: Dagster keeps them in the user's own home, too, which may be read-only.

    Raises:
        DagsterInvalidConfigError: dagster.yaml is invalid.
        InputError: dagster.yaml names PostgreSQL, and the extra for it is not installed.
    """
    ref = InstanceRef.from_dir(str(home))
    if ref.compute_logs_data == InstanceRef.config_defaults(str(home))["compute_logs"]:
        ref = ref._replace(compute_logs_data=NO_OUTPUT)
    ref = ref._replace(settings={**ref.settings, "telemetry": {"enabled": False}})
    storage = ref.storage_data
    if storage and storage.module_name in ("dagster_postgres", POSTGRES_MODULE):
        require("postgres-storage", f"the storage that {home / 'dagster.yaml'} names")
    return dg.DagsterInstance.from_ref(ref)
