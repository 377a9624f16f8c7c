"""Dagster homes for tests, made quickly: what is the same in all of them is done once."""

from __future__ import annotations

import filecmp
import functools
import itertools
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import psycopg
import pytest
import yaml
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.instance import config
from sqlalchemy import event
from sqlalchemy.engine import Engine

from tableferry.assets.log import storage
from tableferry.pipelines import event_log
from tests import servers

STORAGE = "TABLEFERRY_TEST_STORAGE"
"""Names the storage of new homes: Tableferry's (`ours`, without it), or Dagster's own `sqlite` or
`postgres`."""
STORAGES = ("ours", "sqlite", "postgres")

of_files = pytest.mark.skipif(
    os.environ.get(STORAGE) == "postgres", reason="of the event log in SQLite's files"
)
of_ours = pytest.mark.skipif(
    os.environ.get(STORAGE) in STORAGES[1:], reason="of Tableferry's own storage"
)

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
    """The instance of a home that `DAGSTER_HOME` does not name, whose files are copied."""
    copy(home)
    if stores_groups():
        settings = yaml.safe_load((home / "dagster.yaml").read_text())["storage"]
        settings["custom"]["config"] = {"base_dir": str(home)}
        (home / "dagster.yaml").write_text(yaml.safe_dump({"storage": settings}))
    else:
        name_storage(home)
    with _open_as_it_is(home) as made:
        yield made


def stores_groups() -> bool:
    """Whether new homes have a storage that stores a range's events by one transaction."""
    return _storage() == "ours"


def name_storage(home: Path) -> None:
    """Have dagster.yaml of a new home name the storage of the tests, if that is Dagster's own."""
    if stores_groups():
        return
    config = home / "dagster.yaml"
    settings = yaml.safe_load(config.read_text())
    del settings["storage"]
    if _storage() == "postgres":
        settings["storage"] = {"postgres": {"postgres_url": _new_database()}}
    config.write_text(yaml.safe_dump(settings))


def _storage() -> str:
    chosen = os.environ.get(STORAGE) or STORAGES[0]
    assert chosen in STORAGES, f"{STORAGE} should be one of {STORAGES}"
    return chosen


_numbers = itertools.count(1)


def _new_database() -> str:
    """The URL of a database for Dagster's tables, which are copied, as making them takes long."""
    url = urlsplit(servers.find().postgres_url)
    template, name = (
        servers.own("dagster_tables"),
        servers.own(f"dagster{os.getpid()}_{next(_numbers)}"),
    )
    with psycopg.connect(url.geturl(), autocommit=True) as connection:
        known = "SELECT 1 FROM pg_database WHERE datname = %s"
        if connection.execute(known, [template]).fetchone() is None:
            connection.execute(f"CREATE DATABASE {template}")
            with tempfile.TemporaryDirectory() as folder:
                settings = {"postgres_url": url._replace(path=f"/{template}").geturl()}
                config = Path(folder, "dagster.yaml")
                config.write_text(yaml.safe_dump({"storage": {"postgres": settings}}))
                _open_as_it_is(Path(folder)).dispose()
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    return url._replace(path=f"/{name}").geturl()


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
            name_storage(home)
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

    job = dg.define_asset_job("job", [nothing], partitions_def=ranges)
    found = dg.Definitions([nothing], jobs=[job]).resolve_job_def("job")
    silent = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    with local_temp(Path(_kept.name, "nothing")) as instance:
        instance.add_dynamic_partitions("ranges", ["one"])
        found.execute_in_process(instance=instance, partition_key="one", run_config=silent)
