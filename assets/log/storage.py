"""Dagster's SQLite storage, extended: its files stay open, and events are stored in groups.

Dagster's own storage reads and writes the same files. New homes name this one in dagster.yaml
(`storage: custom`); commands also use it where a home names none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from dagster._core.storage.event_log.sqlite.sqlite_event_log import (
    INDEX_SHARD_NAME,
    SqliteEventLogStorage,
)
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


class SqliteEventLog(GroupedEvents, SqliteEventLogStorage):
    """An event log of a file per run, and an index of the events that other runs read.

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
    """All storages of a home."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        """Open the files of a home, creating them if need be."""
        self.base_dir = base_dir
        self._run_storage = SqliteRuns.opened(_runs_directory(base_dir))
        self._event_log_storage = SqliteEventLog(_event_logs_directory(base_dir))
        self._schedule_storage = SqliteSchedules.opened(_schedule_directory(base_dir))
        self._inst_data = inst_data
        super(DagsterSqliteStorage, self).__init__()

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> Storage:
        """Open the files of the home that dagster.yaml names."""
        return cls.from_local(inst_data=inst_data, **config_value)


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
