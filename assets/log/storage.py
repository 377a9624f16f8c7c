"""Dagster's SQLite storage, faster: its files stay open, and events are stored in groups.

The files are those of Dagster's own storage, which reads and writes them as well. A new home names
this one in its dagster.yaml (`storage: custom`); where a home names none, commands use this one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy as sql
from dagster._core.storage.event_log.schema import AssetKeyTable
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
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection, Engine

from tableferry.assets.log.grouping import GroupedEvents
from tableferry.assets.log.sqlite_files import SECONDS_TO_WAIT, SqliteFiles, revision


class SqliteEventLog(GroupedEvents, SqliteEventLogStorage):
    """Events: a file per run, and an index of those that more than their run asks for.

    The file of the run is committed first and the index, which the ledger reads, last: each has
    all events of a group, or none. Dagster does so for the two copies of one event.
    """

    def __init__(self, base_dir: str) -> None:
        """Open the files of a folder, or make them."""
        GroupedEvents.__init__(self)
        self._files = SqliteFiles(self._make_tables)
        self._tables: set[str] = set()
        self._asset_columns: set[str] = set()
        SqliteEventLogStorage.__init__(self, base_dir)

    @contextmanager
    def begin(self, file: str) -> Iterator[Connection]:
        """A transaction in the file of a run, or the index; one at a time, as Dagster has it."""
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
        """Whether the index has a table; one that is there is not looked for again."""
        if table_name not in self._tables:
            with self.index_connection() as connection:
                if sql.inspect(connection).has_table(table_name):
                    self._tables.add(table_name)
        return table_name in self._tables

    def has_asset_key_col(self, column_name: str) -> bool:
        """Whether the table of assets has a column, likewise."""
        return column_name in self._asset_columns or super().has_asset_key_col(column_name)

    def _has_asset_key_col_on_connection(self, conn: Connection, column_name: str) -> bool:
        if column_name not in self._asset_columns:
            columns = sql.inspect(conn).get_columns("asset_keys")
            self._asset_columns |= {str(column["name"]) for column in columns}
        return column_name in self._asset_columns

    def _store_asset_event(self, conn: Connection, event: dg.EventLogEntry, event_id: int) -> None:
        """Update the asset, or insert it; Dagster tries first to insert it, event by event."""
        inner = event.dagster_event
        if inner is None or inner.asset_key is None:
            return
        known = self._has_asset_key_index_cols_on_connection(conn)
        if values := self._get_asset_entry_values(event, event_id, known):
            row = sqlite.insert(AssetKeyTable).values(
                asset_key=inner.asset_key.to_string(), **values
            )
            conn.execute(
                row.on_conflict_do_update(index_elements=[AssetKeyTable.c.asset_key], set_=values)
            )

    def dispose(self) -> None:
        """Close the files."""
        super().dispose()
        self._files.close()


class SqliteRuns(SqliteRunStorage):
    """Runs: one file."""

    def __init__(self, conn_string: str, inst_data: ConfigurableClassData | None = None) -> None:
        """Open the file, which is there."""
        self._files = SqliteFiles()
        super().__init__(conn_string, inst_data)

    @classmethod
    def opened(cls, folder: str) -> SqliteRuns:
        """Open the file of a folder, or make it."""
        if revision(Path(folder, "runs.db"), "runs", "instance_info"):
            return cls(create_db_conn_string(folder, "runs"))
        return cls.from_local(folder)

    def connect(self) -> AbstractContextManager[Connection]:  # type: ignore[override]
        """A connection, and a transaction in it."""
        return self._files.connect(self._conn_string)

    def dispose(self) -> None:
        """Close the file."""
        super().dispose()
        self._files.close()


class SqliteSchedules(SqliteScheduleStorage):
    """Schedules and sensors, one file: opened without reading all of Dagster's migrations."""

    @classmethod
    def opened(cls, folder: str) -> SqliteScheduleStorage:
        """Open the file of a folder, or make it."""
        if revision(Path(folder, "schedules.db"), "jobs"):
            return cls(create_db_conn_string(folder, "schedules"))
        return cls.from_local(folder)


class Storage(DagsterSqliteStorage):
    """All of a home's storages."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        """Open the files of a home, or make them."""
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
    """Give a new file the tables that the index has: to make them, Dagster reads all migrations.

    Returns:
        Whether they are there; another process may be making them as Dagster does.
    """
    newest = revision(index)
    with closing(sqlite3.connect(index, timeout=SECONDS_TO_WAIT)) as made:
        tables = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
        statements = [statement for (statement,) in made.execute(tables)]
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    with engine.begin() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        if newest is None or sql.inspect(connection).get_table_names():
            return False
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (newest,))
    return True
