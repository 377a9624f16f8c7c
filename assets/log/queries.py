"""SQL queries of Dagster's event log, through Dagster's storage or on a home's SQLite files.

The statements run on SQLite, PostgreSQL and MySQL: parameters are written `:name`, and a column
whose name may be a keyword is qualified by its table.

A home's files are read without Dagster, whose import takes longer than all other work of a command
that has nothing to do.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import yaml

from tableferry.assets.asset_keys import stored_key
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef

if TYPE_CHECKING:
    import dagster as dg

    from tableferry.assets.log.dagster_internals import SqlEventLogStorage, SqlRunStorage


Log: TypeAlias = "sqlite3.Connection | dg.DagsterInstance"
"""The event log of an instance, or a connection to the files of a home."""
Asset: TypeAlias = "TableRef | dg.AssetKey"
"""A hop's target."""
Id = TypeVar("Id", int, str)

PAGE = 500
"""Maximum ids or names in a statement, and events read at once."""


def select_events(log: Log, statement: str, **values: object) -> Sequence[Sequence[Any]]:
    """Run a query on the events.

    Raises:
        InputError: the event log is not in an SQL database.
    """
    if isinstance(log, sqlite3.Connection):
        return log.execute(statement, values).fetchall()
    import sqlalchemy as sql

    with event_storage(log).index_connection() as connection:
        return connection.execute(sql.text(statement), values).all()


def select_runs(log: Log, statement: str, **values: object) -> Sequence[Sequence[Any]]:
    """Run a query on the runs, which have a storage of their own.

    Raises:
        InputError: the runs are not in an SQL database.
    """
    if isinstance(log, sqlite3.Connection):
        return log.execute(statement, values).fetchall()
    import sqlalchemy as sql

    with run_storage(log).connect() as connection:
        return connection.execute(sql.text(statement), values).all()


def event_storage(instance: dg.DagsterInstance) -> SqlEventLogStorage:
    """Return the event log storage of an instance.

    Raises:
        InputError: the event log is not in an SQL database.
    """
    from tableferry.assets.log.dagster_internals import SqlEventLogStorage

    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        raise _unreadable("event log", storage)
    return storage


def run_storage(instance: dg.DagsterInstance) -> SqlRunStorage:
    """Return the run storage of an instance.

    Raises:
        InputError: the runs are not in an SQL database.
    """
    from tableferry.assets.log.dagster_internals import SqlRunStorage

    storage = instance.run_storage
    if not isinstance(storage, SqlRunStorage):
        raise _unreadable("runs", storage)
    return storage


def require_queries(instance: dg.DagsterInstance) -> None:
    """Make sure that an instance's event log and runs can be read.

    Raises:
        InputError: they are not in an SQL database; the message has the remedy.
    """
    event_storage(instance)
    run_storage(instance)


def _unreadable(what: str, storage: object) -> InputError:
    kept = f"{type(storage).__module__}.{type(storage).__qualname__}"
    return InputError(
        f"this Dagster instance keeps its {what} by {kept}, which cannot be queried by SQL; give "
        "Tableferry an instance of its own (DAGSTER_HOME) whose dagster.yaml names a storage of "
        "Dagster's in SQLite, PostgreSQL or MySQL"
    )


def key_of(asset: Asset) -> str:
    """Return an asset's key as Dagster stores it."""
    return stored_key(asset) if isinstance(asset, TableRef) else asset.to_string()


def parameters(name: str, values: Iterable[object]) -> tuple[str, dict[str, object]]:
    """Return the placeholders of a list, for use in a statement, and their values by name."""
    named = {f"{name}_{number}": value for number, value in enumerate(values)}
    return ", ".join(f":{placeholder}" for placeholder in named), named


def pages(ids: Iterable[Id]) -> Iterator[Sequence[Id]]:
    """Yield ids or names in ascending order, at most `PAGE` at a time."""
    ordered = sorted(ids)
    for start in range(0, len(ordered), PAGE):
        yield ordered[start : start + PAGE]


def select_in(
    select: Callable[..., Sequence[Any]],
    log: Log,
    statement: str,
    values: Iterable[Id],
    **more: object,
) -> Iterator[Any]:
    """Yield the rows of a statement about any number of ids or names, a page at a time in memory.

    Args:
        select: `select_events` or `select_runs`.
        log: the event log.
        statement: with the list of values as `{values}`.
        values: the ids or names.
        more: other parameters of the statement, by name.
    """
    for page in pages(set(values)):
        marks, named = parameters("value", page)
        yield from select(log, statement.format(values=marks), **named, **more)


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
