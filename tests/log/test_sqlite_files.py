"""Dagster's home as a command opens it: its SQLite files, and where a run's output goes."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

import dagster as dg
import psutil
import pytest
from dagster._core.storage.event_log import SqlEventLogStorage
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from tableferry.assets.log.sqlite_files import MAX_OPEN_FILES, SqliteFiles
from tableferry.pipelines import event_log
from tableferry.resources.errors import StatementFailed
from tests.integration.support import homes


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv(event_log.DAGSTER_HOME, str(tmp_path))
    with open_shared(tmp_path) as opened:
        yield opened


def open_shared(home: Path) -> dg.DagsterInstance:
    """The instance of a home without a storage of ours, where each run has a file."""
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return event_log.open_to_record()


def log_of(instance: dg.DagsterInstance) -> SqlEventLogStorage:
    log = instance.event_log_storage
    assert isinstance(log, SqlEventLogStorage)
    return log


def looked_at(file: Path) -> list[list[tuple[object, ...]]]:
    """What a file is, but for its rows."""
    with closing(sqlite3.connect(file)) as connection:
        return [
            connection.execute(sql).fetchall()
            for sql in (
                "SELECT type, name, sql FROM sqlite_master ORDER BY name",
                "SELECT version_num FROM alembic_version",
                "PRAGMA journal_mode",
                "SELECT count(*) FROM event_logs",
            )
        ]


def test_the_file_of_each_run_is_as_dagster_makes_it(instance: dg.DagsterInstance) -> None:
    (index,) = Path(instance.root_directory).rglob("index.db")
    for _ in range(3):
        run = str(uuid4())
        with log_of(instance).run_connection(run):
            pass
        assert looked_at(index.with_name(f"{run}.db")) == looked_at(index)
    assert not [
        one for one in index.parent.iterdir() if not one.name.split(".")[1].startswith("db")
    ]


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


def test_few_files_stay_open_and_none_of_a_home_that_is_closed(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another = tmp_path / "another"
    monkeypatch.setenv(event_log.DAGSTER_HOME, str(another))
    mine = Path(instance.root_directory, "history", "runs")
    with open_shared(another) as other:
        with log_of(instance).index_connection() as connection:
            runs = [str(uuid4()) for _ in range(2 * MAX_OPEN_FILES)]
            for run in runs:
                with log_of(other).run_connection(run) as used:
                    used.exec_driver_sql("SELECT count(*) FROM event_logs")
            found = connection.exec_driver_sql("SELECT count(*) FROM event_logs")
            assert found.one() == (0,), "what is in use stays, however many are used meanwhile"
        assert open_files(mine), "another home's files are its own"
        databases = {one for one in open_files(another / "history" / "runs") if one.endswith(".db")}
        assert 0 < len(databases) <= MAX_OPEN_FILES
        with log_of(other).run_connection(runs[0]) as used:
            assert used.exec_driver_sql("SELECT count(*) FROM event_logs").one() == (0,)
    assert not open_files(another)


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
    files, file = SqliteFiles(), tmp_path / "index.db"
    with (
        pytest.raises(StatementFailed, match=rf"^event log: the disk of {file} is full$"),
        files.connect(f"sqlite:///{file}") as connection,
    ):
        connection.exec_driver_sql("PRAGMA max_page_count = 8")  # as if there were no more space
        connection.exec_driver_sql("CREATE TABLE t AS SELECT zeroblob(100000) AS x")
    files.close()


@pytest.mark.parametrize("free", [0, 1 << 30])
def test_an_io_error_is_a_full_disk_only_without_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """SQLite's own code for what fails to map memory to a file on a full disk."""
    space = os.statvfs_result((1, 1, 1, free, free, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda folder: space)
    failed = sqlite3.OperationalError("disk I/O error")
    failed.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    files = SqliteFiles()
    with (
        pytest.raises(Exception, match="full" if not free else "disk I/O error"),
        files.connect(f"sqlite:///{tmp_path}/index.db"),
    ):
        raise OperationalError("SELECT 1", {}, failed)
    files.close()
