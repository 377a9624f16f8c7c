"""Dagster's SQLite storage, extended: its files stay open, and events are stored in groups.

New homes name `Storage` in dagster.yaml (`storage: custom`), which keeps the events of all runs in
one file. Where a home names no storage, Dagster's services use Dagster's own, and commands use
`SharedStorage`, which reads and writes the same files.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy as sql
import yaml
from dagster._core.event_api import EventHandlerFn
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.event_log.polling_event_watcher import SqlPollingEventWatcher
from dagster._core.storage.event_log.sqlite.sqlite_event_log import (
    INDEX_SHARD_NAME,
    SqliteEventLogStorage,
)
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.storage.runs.sqlite.sqlite_run_storage import SqliteRunStorage
from dagster._core.storage.schedules.sqlite.sqlite_schedule_storage import SqliteScheduleStorage
from dagster._core.storage.sqlite import create_db_conn_string
from dagster._core.storage.sqlite_storage import (
    DagsterSqliteStorage,
    _event_logs_directory,
    _runs_directory,
    _schedule_directory,
)
from dagster._serdes import ConfigurableClassData
from sqlalchemy.engine import Connection, Engine

from tableferry.assets.log.grouping import GroupedEvents
from tableferry.assets.log.sqlite_files import SECONDS_TO_WAIT, SqliteFiles, revision
from tableferry.assets.log.sqlite_home import (
    SHARED_STORAGE_CLASS,
    STORAGE_CLASS,
    STORAGE_MODULE,
)
from tableferry.resources.extras import require


class SqliteEventLog(GroupedEvents, SqliteEventLogStorage):
    """An event log of Dagster's files: one per run, and an index of what other runs read.

    The file of the run is committed first and the index, which the ledger reads, last. Each has
    all events of a group, or none, as Dagster does with the two copies of one event.
    """

    def __init__(self, base_dir: str) -> None:
        """Open the files of a folder, creating them if need be."""
        GroupedEvents.__init__(self)
        self._files = SqliteFiles(self._make_tables)
        self._tables: set[str] = set()
        SqliteEventLogStorage.__init__(self, base_dir)

    @contextmanager
    def begin(self, file: str) -> Iterator[Connection]:
        """Begin a transaction in the file of a run or the index; one at a time, as in Dagster."""
        with self._storing, self._files.connect(self.conn_string_for_shard(file)) as connection:
            yield connection

    def _connect(self, shard: str) -> AbstractContextManager[Connection]:  # type: ignore[override]
        return self.in_transaction(shard)

    def _make_tables(self, engine: Engine) -> None:
        file = Path(engine.url.database or "")
        if revision(file):
            return
        index = Path(self.path_for_shard(INDEX_SHARD_NAME))
        if file == index or not _copy_tables(index, engine):
            self._initdb(engine, for_index_shard=file == index)

    def has_table(self, table_name: str) -> bool:
        """Whether the index has a table; remembered once it does."""
        if table_name not in self._tables:
            with self.index_connection() as connection:
                if sql.inspect(connection).has_table(table_name):
                    self._tables.add(table_name)
        return table_name in self._tables

    def dispose(self) -> None:
        """Close the files."""
        super().dispose()
        self._files.close()


class OneFileEventLog(SqliteEventLog):
    """An event log of one file, the index, in which each event is stored once.

    A file per run takes 100 KB before it holds an event, and holds what the index holds, too. Runs
    that have a file of their own, because an earlier version or Dagster's storage began them, keep
    it.
    """

    def __init__(self, base_dir: str) -> None:
        """Open the files of a folder, creating them if need be."""
        super().__init__(base_dir)
        self._watcher = SqlPollingEventWatcher(self)

    def run_connection(self, run_id: str | None = None) -> Any:
        """Begin a transaction in the file that holds the events of a run."""
        own = run_id is not None and self._has_own_file(run_id)
        return self._connect(run_id if own and run_id else INDEX_SHARD_NAME)

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

    def watch(self, run_id: str, cursor: str | None, callback: EventHandlerFn) -> None:
        """Pass the new events of a run to a function."""
        self._watcher.watch_run(run_id, cursor, callback)

    def end_watch(self, run_id: str, handler: EventHandlerFn) -> None:
        """Stop passing events to a function."""
        self._watcher.unwatch_run(run_id, handler)

    def dispose(self) -> None:
        """Close the files."""
        self._watcher.close()
        super().dispose()

    def _has_own_file(self, run_id: str) -> bool:
        return bool(run_id) and os.path.exists(self.path_for_shard(run_id))


class SqliteRuns(SqliteRunStorage):
    """A run storage of one file."""

    def __init__(self, conn_string: str, inst_data: ConfigurableClassData | None = None) -> None:
        """Open the existing file."""
        self._files = SqliteFiles()
        super().__init__(conn_string, inst_data)

    @classmethod
    def opened(cls, folder: str) -> SqliteRuns:
        """Open the file of a folder, creating it if need be."""
        if revision(Path(folder, "runs.db"), "runs", "instance_info"):
            return cls(create_db_conn_string(folder, "runs"))
        return cls.from_local(folder)

    def connect(self) -> AbstractContextManager[Connection]:  # type: ignore[override]
        """Connect, and begin a transaction."""
        return self._files.connect(self._conn_string)

    def dispose(self) -> None:
        """Close the file."""
        super().dispose()
        self._files.close()


class SqliteSchedules(SqliteScheduleStorage):
    """A schedule storage of one file, opened without loading Dagster's migrations."""

    @classmethod
    def opened(cls, folder: str) -> SqliteScheduleStorage:
        """Open the file of a folder, creating it if need be."""
        if revision(Path(folder, "schedules.db"), "jobs"):
            return cls(create_db_conn_string(folder, "schedules"))
        return cls.from_local(folder)


class Storage(DagsterSqliteStorage):
    """All storages of a home, with the events of all runs in one file."""

    event_log: type[SqliteEventLog] = OneFileEventLog

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        """Open the files of a home, creating them if need be."""
        self.base_dir = base_dir
        self._run_storage = SqliteRuns.opened(_runs_directory(base_dir))
        self._event_log_storage = self.event_log(_event_logs_directory(base_dir))
        self._schedule_storage = SqliteSchedules.opened(_schedule_directory(base_dir))
        self._inst_data = inst_data
        super(DagsterSqliteStorage, self).__init__()

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> Storage:
        """Open the files of the home that dagster.yaml names."""
        return cls.from_local(inst_data=inst_data, **config_value)


class SharedStorage(Storage):
    """All storages of a home that Dagster's own storage reads and writes, too."""

    event_log = SqliteEventLog


def _copy_tables(index: Path, engine: Engine) -> bool:
    """Create the index's tables in a new file; Dagster would load all migrations to create them.

    Returns:
        Whether that was possible; another process may be creating the tables.
    """
    index_revision = revision(index)
    with closing(sqlite3.connect(index, timeout=SECONDS_TO_WAIT)) as connected:
        tables = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
        statements = [statement for (statement,) in connected.execute(tables)]
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    with engine.begin() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        if index_revision is None or sql.inspect(connection).get_table_names():
            return False
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (index_revision,))
    return True


POSTGRES_MODULE = "tableferry.assets.log.postgres_storage"
NO_OUTPUT = ConfigurableClassData(
    NoOpComputeLogManager.__module__, NoOpComputeLogManager.__name__, "{}\n"
)


def open_instance(home: Path) -> dg.DagsterInstance:
    """Open the instance of a home for a process that executes its runs itself.

    Where dagster.yaml names no storage, or Dagster's for PostgreSQL, our storage replaces it, on
    the same files or tables. The output of runs goes to the terminal unless dagster.yaml says
    otherwise; Dagster would start two processes per run to copy it from a file.

    Raises:
        DagsterInvalidConfigError: dagster.yaml is invalid.
        InputError: dagster.yaml names PostgreSQL, and the extra for it is not installed.
    """
    ref = InstanceRef.from_dir(str(home))
    defaults = InstanceRef.config_defaults(str(home))
    if ref.compute_logs_data == defaults["compute_logs"]:
        ref = ref._replace(compute_logs_data=NO_OUTPUT)
    storage = ref.storage_data
    named = storage and (storage.module_name, storage.class_name)
    if storage and storage.module_name in ("dagster_postgres", POSTGRES_MODULE):
        require("postgres-storage", f"the storage that {home / 'dagster.yaml'} names")
    if storage == defaults["storage"] or named == (STORAGE_MODULE, STORAGE_CLASS):
        ours = STORAGE_CLASS if named == (STORAGE_MODULE, STORAGE_CLASS) else SHARED_STORAGE_CLASS
        files = ConfigurableClassData(STORAGE_MODULE, ours, yaml.safe_dump({"base_dir": str(home)}))
        ref = ref._replace(storage_data=files)
    elif storage and named == ("dagster_postgres", "DagsterPostgresStorage"):
        tables = ConfigurableClassData(POSTGRES_MODULE, "Storage", storage.config_yaml)
        ref = ref._replace(storage_data=tables)
    return dg.DagsterInstance.from_ref(ref)
