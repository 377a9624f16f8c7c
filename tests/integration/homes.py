"""Dagster homes for tests, made quickly: what is the same in all of them is done once."""

from __future__ import annotations

import functools
import os
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, QueuePool

from pipelines import event_log


def template(folder: Path) -> Path:
    """A home with an empty event log, to copy."""
    home = folder / "template"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(event_log.DAGSTER_HOME, str(home))
        event_log.open_to_record().dispose()
    return home


def copy(home: Path, to: Path) -> None:
    """A new home, unless there is one already."""
    if not to.exists():
        shutil.copytree(home, to)


@functools.cache
def make_quick() -> None:
    """Spare this process what no test is about.

    Dagster reads all its migrations anew for each database that it opens, and makes an engine and
    a connection for each query, which then compiles what it is to run. And its SQLite need not
    survive a power cut: what is written survives the death of any process without a sync, too.
    """
    known: dict[str | None, ScriptDirectory] = {}
    from_config = ScriptDirectory.from_config

    def remembered(config: Config) -> ScriptDirectory:
        place = config.get_main_option("script_location")
        if place not in known:
            known[place] = from_config(config)
        return known[place]

    ScriptDirectory.from_config = remembered  # type: ignore[assignment,method-assign]

    @functools.lru_cache(maxsize=32)
    def engine(url: str, connect_args: tuple[tuple[str, Any], ...]) -> Engine:
        made = create_engine(
            url,
            poolclass=QueuePool,
            max_overflow=-1,
            connect_args={**dict(connect_args), "check_same_thread": False},
        )
        made.dispose = lambda close=True: None  # type: ignore[method-assign]
        place = made.url.database or ""

        @event.listens_for(made, "connect")
        def opened(_: object, record: ConnectionPoolEntry) -> None:
            record.info["file"] = _file(place)

        @event.listens_for(made, "checkout")
        def lent(_: object, record: ConnectionPoolEntry, __: object) -> None:
            if record.info["file"] != _file(place):
                raise DisconnectionError("another file is there now")

        return made

    def shared(
        url: str, *, poolclass: type, connect_args: Mapping[str, Any] | None = None
    ) -> Engine:
        assert poolclass is NullPool
        return engine(url, tuple((connect_args or {}).items()))

    # a forked child must not use its parent's connections
    os.register_at_fork(after_in_child=engine.cache_clear)
    for module in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
        module.create_engine = shared  # type: ignore[attr-defined]

    @event.listens_for(Engine, "connect")
    def connected(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")


def _file(place: str) -> tuple[int, int] | None:
    """Which file it is, whatever its name."""
    try:
        found = os.stat(place)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
