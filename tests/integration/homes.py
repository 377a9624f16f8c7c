"""Dagster homes for tests, made quickly: what is the same in all of them is done once."""

from __future__ import annotations

import functools
import shutil
import sqlite3
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import event
from sqlalchemy.engine import Engine

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

    Dagster reads all its migrations anew for each database that it opens. And its SQLite need not
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

    @event.listens_for(Engine, "connect")
    def connected(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")
