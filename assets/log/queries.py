"""SQL queries of Dagster's event log, through Dagster's storage or on a home's SQLite files.

The statements run on SQLite, PostgreSQL and MySQL: parameters are written `:name`, and a column
whose name may be a keyword is qualified by its table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

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
