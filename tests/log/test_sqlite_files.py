"""Dagster's home as a command opens it: its event log's file, and where a run's output goes."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import dagster as dg
import psutil
import pytest
from dagster._core.storage.event_log import SqlEventLogStorage
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from tableferry.assets.log.storage import SqliteFile
from tableferry.pipelines import event_log
from tableferry.resources.errors import StatementFailed
from tests.integration.support import homes


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.delenv(homes.STORAGE, raising=False)
    monkeypatch.setenv(event_log.DAGSTER_HOME, str(tmp_path))
    with event_log.open_to_record() as opened:
        yield opened


def log_of(instance: dg.DagsterInstance) -> SqlEventLogStorage:
    log = instance.event_log_storage
    assert isinstance(log, SqlEventLogStorage)
    return log


def test_the_presence_of_a_table_is_remembered(instance: dg.DagsterInstance) -> None:
    statements: list[str] = []
    assert log_of(instance).supports_asset_checks

    @event.listens_for(Engine, "before_cursor_execute")
    def listen(connection: object, cursor: object, sql: str, *_: object) -> None:
        statements.append(sql)

    try:
        assert log_of(instance).supports_asset_checks
    finally:
        event.remove(Engine, "before_cursor_execute", listen)
    assert statements == []


def test_a_table_is_looked_for_in_its_own_file(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log_of(instance).has_table("event_logs")
    monkeypatch.setenv(event_log.DAGSTER_HOME, str(tmp_path / "another"))
    with event_log.open_to_record() as other:
        with log_of(other).index_connection() as connection:
            connection.exec_driver_sql("DROP TABLE asset_event_tags")
        assert not log_of(other).has_table("asset_event_tags")
        assert log_of(instance).has_table("asset_event_tags")


def open_files(folder: Path) -> list[str]:
    return [one.path for one in psutil.Process().open_files() if folder in Path(one.path).parents]


def test_the_file_stays_open_until_its_home_is_closed(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another = tmp_path / "another"
    monkeypatch.setenv(event_log.DAGSTER_HOME, str(another))
    mine = Path(instance.root_directory, "history", "runs")
    with event_log.open_to_record() as other:
        for opened in (instance, other):
            with log_of(opened).index_connection() as used:
                assert used.exec_driver_sql("SELECT count(*) FROM event_logs").one() == (0,)
        assert open_files(another / "history" / "runs")
    assert not open_files(another / "history" / "runs")
    assert open_files(mine), "another home's file is its own"


def test_a_file_that_a_backup_has_replaced_is_opened_anew(instance: dg.DagsterInstance) -> None:
    (index,) = Path(instance.root_directory).rglob("index.db")
    assert log_of(instance).has_table("event_logs")
    with closing(sqlite3.connect(index)) as connection:
        connection.execute("VACUUM INTO ?", [str(index.with_name("backup"))])
    with closing(sqlite3.connect(index.with_name("backup"))) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE of_the_backup (a integer)")
    for name in ("index.db-wal", "index.db-shm"):
        index.with_name(name).unlink(missing_ok=True)
    index.with_name("backup").rename(index)
    assert log_of(instance).has_table("of_the_backup")


def test_a_forked_child_opens_its_own(instance: dg.DagsterInstance) -> None:
    assert log_of(instance).has_table("event_logs")
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            with log_of(instance).index_connection() as connection:
                connection.exec_driver_sql("CREATE TABLE of_the_child (a integer)")
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert log_of(instance).has_table("of_the_child")


def test_the_output_of_a_run_stays_with_the_command(
    instance: dg.DagsterInstance, capfd: pytest.CaptureFixture[str]
) -> None:
    @dg.op
    def speak() -> None:
        print("to the terminal", flush=True)
        print("and to its other stream", file=sys.stderr, flush=True)

    @dg.job
    def job() -> None:
        speak()

    assert job.execute_in_process(instance=instance).success
    out, err = capfd.readouterr()
    assert "to the terminal" in out and "and to its other stream" in err
    assert not list(Path(instance.root_directory).rglob("*.out"))


def test_dagster_yaml_may_say_where_the_output_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(event_log.DAGSTER_HOME, str(tmp_path))
    (tmp_path / "dagster.yaml").write_text(
        "compute_logs:\n"
        "  module: dagster._core.storage.local_compute_log_manager\n"
        "  class: LocalComputeLogManager\n"
        f"  config: {{base_dir: {tmp_path}/elsewhere}}\n"
    )
    with event_log.open_to_record() as opened:
        assert type(opened.compute_log_manager).__name__ == "LocalComputeLogManager"


def test_a_home_of_a_test_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(event_log.DAGSTER_HOME, str(tmp_path / "dagster"))
    event_log.open_to_record().dispose()
    assert homes.is_copy(tmp_path / "dagster")


def test_a_full_disk_is_called_that_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    file = SqliteFile(path)
    with (
        pytest.raises(
            StatementFailed, match=rf"^event log: the disk of {path} is full: free space"
        ),
        file.connect() as connection,
    ):
        connection.exec_driver_sql("PRAGMA max_page_count = 8")  # as if there were no more space
        connection.exec_driver_sql("CREATE TABLE t AS SELECT zeroblob(100000) AS x")
    file.close()


@pytest.mark.parametrize("free", [0, 1 << 30])
def test_an_io_error_is_a_full_disk_only_without_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """SQLite's own code for what fails to map memory to a file on a full disk."""
    space = os.statvfs_result((1, 1, 1, free, free, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda folder: space)
    failed = sqlite3.OperationalError("disk I/O error")
    failed.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    file = SqliteFile(tmp_path / "index.db")
    with (
        pytest.raises(Exception, match="full" if not free else "disk I/O error"),
        file.connect(),
    ):
        raise OperationalError("SELECT 1", {}, failed)
    file.close()
