"""Dagster homes for tests, made quickly: what is the same in all of them is done once."""

from __future__ import annotations

import functools
import shutil
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from assets.log.sqlite import keep_open
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

    Dagster's SQLite need not survive a power cut: what is written survives the death of any
    process without a sync, too.
    """
    keep_open()

    @event.listens_for(Engine, "connect")
    def connected(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")
