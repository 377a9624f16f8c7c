"""Asks Dagster's event log by SQL, whoever has opened it.

The statements are such that SQLite, PostgreSQL and MySQL take them: parameters are `:name`, and a
column whose name may be a keyword is written with its table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tableferry.assets.asset_keys import stored_key
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef

if TYPE_CHECKING:
    import dagster as dg
    from dagster._core.storage.event_log import SqlEventLogStorage

Log: TypeAlias = "sqlite3.Connection | dg.DagsterInstance"
"""The event log of an instance, or the files of a home."""
Asset: TypeAlias = "TableRef | dg.AssetKey"
"""A hop's target."""
PAGE = 500
"""Storage ids that one statement names, and events that are read at once."""


def events(log: Log, statement: str, **values: object) -> Sequence[Sequence[Any]]:
    """What a statement finds among the events.

    Raises:
        InputError: the event log is not in an SQL database.
    """
    if isinstance(log, sqlite3.Connection):
        return log.execute(statement, values).fetchall()
    import sqlalchemy as sql

    with sql_log(log).index_connection() as connection:
        return connection.execute(sql.text(statement), values).all()


def runs(log: Log, statement: str, **values: object) -> Sequence[Sequence[Any]]:
    """What a statement finds among the runs, which have a storage of their own.

    Raises:
        InputError: they are not in an SQL database.
    """
    if isinstance(log, sqlite3.Connection):
        return log.execute(statement, values).fetchall()
    import sqlalchemy as sql
    from dagster._core.storage.runs import SqlRunStorage

    storage = log.run_storage
    if not isinstance(storage, SqlRunStorage):
        raise _unreadable("runs", storage)
    with storage.connect() as connection:
        return connection.execute(sql.text(statement), values).all()


def sql_log(instance: dg.DagsterInstance) -> SqlEventLogStorage:
    """The event log of an instance.

    Raises:
        InputError: it is not in an SQL database.
    """
    from dagster._core.storage.event_log import SqlEventLogStorage

    log = instance.event_log_storage
    if not isinstance(log, SqlEventLogStorage):
        raise _unreadable("event log", log)
    return log


def _unreadable(what: str, storage: object) -> InputError:
    return InputError(
        f"Dagster's {what} should be kept in SQLite, PostgreSQL or MySQL, not in a "
        f"{type(storage).__name__}"
    )


def key_of(asset: Asset) -> str:
    """An asset as Dagster's storage names it."""
    return stored_key(asset) if isinstance(asset, TableRef) else asset.to_string()


def parameters(name: str, values: Iterable[object]) -> tuple[str, dict[str, object]]:
    """A list of parameters as a statement has it, and their values."""
    named = {f"{name}_{number}": value for number, value in enumerate(values)}
    return ", ".join(f":{one}" for one in named), named


def pages(ids: Iterable[int]) -> Iterator[Sequence[int]]:
    """Storage ids in their order, as many at a time as one statement names."""
    every = sorted(ids)
    for start in range(0, len(every), PAGE):
        yield every[start : start + PAGE]
