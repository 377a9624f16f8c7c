"""Opens the SQLite files of a home for reading without importing Dagster.

The import takes longer than all other work of a command that has nothing to do.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import lru_cache
from pathlib import Path

import yaml

INDEX = Path("history", "runs", "index.db")
RUNS = Path("history", "runs.db")
"""Paths within a home, the same in Dagster's SQLite storage and ours."""

STORAGE_MODULE = "tableferry.assets.log.storage"
"""The module of our storage."""

OTHER_STORAGE = {
    *("event_log_storage", "run_storage", "local_artifact_storage"),
    *("instance_class", "custom_instance_class"),
}
"""Settings of dagster.yaml that place the event log or the runs elsewhere."""

_UNFINISHED = "SELECT 1 FROM runs WHERE status NOT IN ('SUCCESS', 'FAILURE', 'CANCELED') LIMIT 1"
_HELD_SLOTS = "SELECT 1 FROM concurrency_slots WHERE run_id IS NOT NULL"


def quiet(home: Path) -> closing[sqlite3.Connection] | None:
    """Open the event log of a home for reading; None if it has to be read through Dagster.

    That is so where the home keeps its log elsewhere, and while a run has not ended or holds a pool
    slot: its process may be dead, and Dagster is needed to mark it failed.
    """
    try:
        if not _keeps_files(home):
            return None
        connection = _open(home)
    except (OSError, ValueError, yaml.YAMLError, sqlite3.Error):
        return None
    try:
        busy = any(connection.execute(query).fetchone() for query in (_UNFINISHED, _HELD_SLOTS))
    except sqlite3.Error:
        busy = True
    if busy:
        connection.close()
    return None if busy else closing(connection)


def _keeps_files(home: Path) -> bool:
    """Whether dagster.yaml keeps the event log and the runs in the files of the home."""
    file = home / "dagster.yaml"
    status = file.stat()
    return _names_files(file, status.st_mtime_ns, status.st_size)


@lru_cache(1)
def _names_files(file: Path, modified: int, size: int) -> bool:
    """Whether the settings, as they were saved at that time, name the home's own files."""
    settings = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    storage = settings.get("storage") or {}
    custom = storage.get("custom", {})
    folder = custom.get("config", {}).get("base_dir")
    in_home = folder in ({"env": "DAGSTER_HOME"}, str(file.parent))
    ours = custom.get("module") == STORAGE_MODULE and in_home
    return (ours or not storage) and not settings.keys() & OTHER_STORAGE


def opened(home: Path) -> closing[sqlite3.Connection]:
    """Open the event log and the runs of a home for reading; the caller closes them.

    Raises:
        sqlite3.Error: the files do not exist.
    """
    return closing(_open(home))


def _open(home: Path) -> sqlite3.Connection:
    # mode=rw creates no file, and may replay what a writer has left in the write-ahead log
    connection = sqlite3.connect(_uri(home / INDEX), uri=True, timeout=30)
    try:
        connection.execute("ATTACH DATABASE ? AS runs_file", [_uri(home / RUNS)])
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _uri(file: Path) -> str:
    return f"{file.absolute().as_uri()}?mode=rw"
