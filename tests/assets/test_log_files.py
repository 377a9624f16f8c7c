"""Dagster's home as a command opens it: its SQLite files, and where a run's output goes."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.storage.event_log import SqlEventLogStorage
from sqlalchemy import event
from sqlalchemy.engine import Engine

from pipelines import event_log


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv(event_log.DAGSTER_HOME, str(tmp_path))
    with event_log.open_to_record() as opened:
        yield opened


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


def test_a_table_that_is_there_is_not_looked_for_again(instance: dg.DagsterInstance) -> None:
    asked: list[str] = []
    assert log_of(instance).has_asset_key_index_cols() and log_of(instance).supports_asset_checks

    @event.listens_for(Engine, "before_cursor_execute")
    def listen(connection: object, cursor: object, sql: str, *_: object) -> None:
        asked.append(sql)

    try:
        assert log_of(instance).has_asset_key_index_cols()
        assert log_of(instance).supports_asset_checks
    finally:
        event.remove(Engine, "before_cursor_execute", listen)
    assert asked == []


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
