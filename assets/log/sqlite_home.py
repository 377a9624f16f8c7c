"""A home whose event log is in SQLite files, opened to be read without importing Dagster.

Importing Dagster takes longer than all that a command with nothing to do does besides.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import yaml

INDEX = Path("history", "runs", "index.db")
RUNS = Path("history", "runs.db")
"""Where Dagster's SQLite storage, and ours, keeps them in a home."""

STORAGE_MODULE = "tableferry.assets.log.storage"
STORAGE_CLASS = "Storage"

ELSEWHERE = {
    *("event_log_storage", "run_storage", "local_artifact_storage"),
    *("instance_class", "custom_instance_class"),
}
"""Settings of dagster.yaml that keep them elsewhere."""

_UNFINISHED = "SELECT 1 FROM runs WHERE status NOT IN ('SUCCESS', 'FAILURE', 'CANCELED') LIMIT 1"
_HELD = "SELECT 1 FROM concurrency_slots WHERE run_id IS NOT NULL"


def quiet(home: Path) -> closing[sqlite3.Connection] | None:
    """The event log of a home, to be read; None if Dagster has to be asked.

    That is so where the home keeps it elsewhere, and where a run has not ended or holds a slot of
    a pool: it may be dead, and is marked as failed then.
    """
    try:
        if not _keeps_files(home):
            return None
        connection = _open(home)
    except (OSError, ValueError, yaml.YAMLError, sqlite3.Error):
        return None
    try:
        busy = any(connection.execute(query).fetchone() for query in (_UNFINISHED, _HELD))
    except sqlite3.Error:
        busy = True
    if busy:
        connection.close()
    return None if busy else closing(connection)


def _keeps_files(home: Path) -> bool:
    """Whether the home's dagster.yaml leaves the event log and the runs in its files."""
    settings = yaml.safe_load((home / "dagster.yaml").read_text(encoding="utf-8")) or {}
    storage = settings.get("storage") or {}
    own = storage.get("custom", {}).get("module") == STORAGE_MODULE
    return (own or not storage) and not settings.keys() & ELSEWHERE


def opened(home: Path) -> closing[sqlite3.Connection]:
    """The event log of a home with its runs, to be read; whoever opens it closes it.

    Raises:
        sqlite3.Error: they are not there.
    """
    return closing(_open(home))


def _open(home: Path) -> sqlite3.Connection:
    # one that is there: `mode=rw` makes none, and may read what a writer has left in the log
    connection = sqlite3.connect(_uri(home / INDEX), uri=True, timeout=30)
    try:
        connection.execute("ATTACH DATABASE ? AS runs_file", [_uri(home / RUNS)])
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _uri(file: Path) -> str:
    return f"{file.absolute().as_uri()}?mode=rw"
