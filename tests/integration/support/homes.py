"""Dagster homes for tests, made quickly: what is the same in all of them is done once."""

from __future__ import annotations

import filecmp
import functools
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.instance import config
from sqlalchemy import event
from sqlalchemy.engine import Engine

from tableferry.assets.log import storage
from tableferry.pipelines import event_log

_kept = tempfile.TemporaryDirectory(prefix="tableferry-home-")
_copying = threading.Lock()
_copies: set[Path] = set()
_open_as_it_is = storage.open_instance


@functools.cache
def _template() -> Path:
    """A home with an empty event log: its tables take half a second, and a copy no time."""
    home = Path(_kept.name, "template")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(event_log.DAGSTER_HOME, str(home))
        _open_as_it_is(event_log.create_home()).dispose()
    return home


def copy(home: Path) -> None:
    """Make a new home."""
    shutil.copytree(_template(), home, dirs_exist_ok=True)
    _copies.add(_index(home))


@contextmanager
def local_temp(home: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of a home without a dagster.yaml, whose files are copied."""
    copy(home)
    (home / "dagster.yaml").unlink()
    with _open_as_it_is(home) as made:
        yield made


def is_copy(home: Path) -> bool:
    """Whether this process has made a home by copying."""
    return _index(home) in _copies


def _index(home: Path) -> Path:
    return home / "history" / "runs" / "index.db"


def _open(home: Path) -> dg.DagsterInstance:
    """The instance of a home, which is a copy if it is new and of the usual configuration."""
    with _copying:
        config = home / "dagster.yaml"
        usual = config.exists() and filecmp.cmp(config, _template() / config.name, shallow=False)
        if usual and not (home / "history").exists():
            copy(home)
    return _open_as_it_is(home)


@functools.cache
def make_quick() -> None:
    """Spare this process what no test is about.

    Dagster's SQLite need not survive a power cut: what is written survives the death of any
    process without a sync, too.
    """

    @event.listens_for(Engine, "connect")
    def connected(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    # that of dagster.yaml, which a process needs once, and a test for each of its sessions
    schema = functools.cache(config.dagster_instance_config_schema)
    setattr(config, "dagster_instance_config_schema", schema)  # noqa: B010
    # Dagster's migrations, all of which each storage in memory reads, to stamp itself as up to date
    read_migrations = ScriptDirectory.from_config
    migrations: dict[str | None, ScriptDirectory] = {}

    def from_config(config: Config) -> ScriptDirectory:
        folder = config.get_main_option("script_location")
        if folder not in migrations:
            migrations[folder] = read_migrations(config)
        return migrations[folder]

    setattr(ScriptDirectory, "from_config", from_config)  # noqa: B010

    _template()  # also so that Dagster's storage is imported, and its migrations read
    storage.open_instance = _open


def run_nothing() -> None:
    """A run of one empty range, for what Dagster and SQLAlchemy work out at first and then know."""
    ranges = dg.DynamicPartitionsDefinition(name="ranges")
    check = dg.AssetCheckSpec("check", asset="nothing")

    @dg.asset(partitions_def=ranges, check_specs=[check])
    def nothing() -> Iterator[Any]:
        said = dg.AssetObservation("nothing", partition="one", tags={"state": "none"})
        dg.AssetExecutionContext.get().log_event(said)
        passed = dg.AssetCheckResult(passed=True, metadata={"rows": 0})
        yield dg.MaterializeResult(
            metadata={"rows": 0}, check_results=[passed], data_version=dg.DataVersion("1")
        )

    home = Path(_kept.name, "nothing")
    copy(home)
    opened = _open_as_it_is(home)
    opened.add_dynamic_partitions("ranges", ["one"])
    job = dg.define_asset_job("job", [nothing], partitions_def=ranges)
    found = dg.Definitions([nothing], jobs=[job]).resolve_job_def("job")
    silent = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    found.execute_in_process(instance=opened, partition_key="one", run_config=silent)
    opened.dispose()
