"""What Dagster works out anew for each event that it stores in SQLite, worked out once.

For each event it makes its statements anew, and writes the event as text again for each table that
holds it: for a check of many ranges, once per range. An asset it first inserts, although all but
its first event find it there. That was a fifth of what Dagster takes of a run of many ranges.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import sqlalchemy as sql
from dagster._core.storage.event_log import sql_event_log
from dagster._core.storage.event_log.schema import AssetKeyTable, SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage as Storage
from dagster._serdes import serialize_value
from sqlalchemy.engine import Connection

_INSERT = sql.insert(SqlEventLogStorageTable)
_UPDATE = sql.update(AssetKeyTable).where(AssetKeyTable.c.asset_key == sql.bindparam("wanted"))

_serialize = serialize_value
_store_asset_event = Storage._store_asset_event


@functools.cache
def make_once() -> None:
    """Let Dagster's SQLite event logs of this process share statements and texts."""
    setattr(sql_event_log, "serialize_value", _serialized)  # noqa: B010
    setattr(Storage, "prepare_insert_event", _prepared)  # noqa: B010
    setattr(Storage, "_store_asset_event", _asset_stored)  # noqa: B010


class _Last(threading.local):
    """The value that this thread has written as text last."""

    value: object = None
    text = ""


_last = _Last()


def _serialized(value: Any) -> str:
    if not isinstance(value, dg.EventLogEntry):
        return _serialize(value)
    if value is not _last.value:
        _last.text = _serialize(value)
        _last.value = value
    return _last.text


class _Insertion:
    """Of an event: what SQLAlchemy executes, as it does a statement."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def _execute_on_connection(
        self, connection: Connection, _: Sequence[object], options: Mapping[str, Any]
    ) -> object:
        return _INSERT._execute_on_connection(connection, [self._row], options)


def _prepared(self: Storage, event: dg.EventLogEntry) -> _Insertion:
    return _Insertion(self._event_to_row(event))


def _asset_stored(
    self: Storage, connection: Connection, event: dg.EventLogEntry, event_id: int
) -> None:
    """Update the asset; Dagster inserts it if it is new."""
    inner = event.dagster_event
    if inner is not None and inner.asset_key is not None:
        known = self._has_asset_key_index_cols_on_connection(connection)
        values = self._get_asset_entry_values(event, event_id, known)
        wanted = {"wanted": inner.asset_key.to_string(), **values}
        if not values or connection.execute(_UPDATE, wanted).rowcount:
            return
    _store_asset_event(self, connection, event, event_id)
