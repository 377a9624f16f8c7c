"""Dagster's SQLite files, kept open: it opens, asks and closes them for each question.

With every question it makes an engine of SQLAlchemy's anew, which compiles the statement anew, and
asks anew which tables there are; for every file it reads all of its migrations anew, and makes the
same empty tables. That is a quarter of what a small run costs.
"""

from __future__ import annotations

import functools
import os
import sqlite3
import tempfile
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from dagster._core.storage.sql import AlembicVersion, check_alembic_revision
from sqlalchemy import create_engine, event, make_url
from sqlalchemy.engine import Connection, Dialect, Engine
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, QueuePool
from sqlalchemy.util import LRUCache

MOST_FILES = 12
"""That are kept open: each Dagster run has one, and each home three."""

MOST_STATEMENTS = 500

Arguments = tuple[tuple[str, Any], ...]


@functools.cache
def keep_open() -> None:
    """Let Dagster's SQLite storages of this process share connections and compiled statements."""
    for module in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
        module.create_engine = _engine  # type: ignore[attr-defined]
        module.check_alembic_revision = _revisions  # type: ignore[attr-defined]
    storage = sqlite_event_log.SqliteEventLogStorage
    make = storage._initdb

    def made(self: Any, engine: Engine, for_index_shard: bool = False) -> None:
        place = Path(engine.url.database or "")
        if for_index_shard or place.exists():
            make(self, engine, for_index_shard)
        else:
            _put(place, _empty(Path(self.path_for_shard(sqlite_event_log.INDEX_SHARD_NAME))))

    storage._initdb = made  # type: ignore[method-assign]
    others = (sqlite_run_storage.SqliteRunStorage, sqlite_schedule_storage.SqliteScheduleStorage)
    for one in (storage, *others):
        setattr(one, "dispose", _closing(one.dispose))  # noqa: B010 (of several types)


def _closing(dispose: Callable[[Any], None]) -> Callable[[Any], None]:
    """A storage's `dispose` that closes the storage's files, too."""

    def disposed(self: Any) -> None:
        dispose(self)
        if isinstance(self, sqlite_event_log.SqliteEventLogStorage):
            folder = Path(self.path_for_shard(sqlite_event_log.INDEX_SHARD_NAME)).parent
        else:
            folder = Path(make_url(self._conn_string).database or "").parent
        with _lock:
            places = {key: Path(one.url.database or "") for key, one in _engines.items()}
            gone = [_engines.pop(key) for key, place in places.items() if place.parent == folder]
        for engine in gone:
            _close(engine)

    return disposed


def _revisions(config: Config, connection: Connection) -> AlembicVersion:
    """The revision of a file, and the newest: that is for files which are new.

    To find it, all migrations are imported.
    """
    found = MigrationContext.configure(connection).get_current_revision()
    return (found, found) if found else check_alembic_revision(config, connection)


@functools.lru_cache(MOST_FILES)
def _empty(index: Path) -> bytes:
    """What the file of a run begins with: the tables of the home's index, without their rows."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(sqlite3.connect(index)) as old,
        closing(sqlite3.connect(Path(folder, "empty.db"))) as new,
    ):
        new.execute("PRAGMA synchronous = OFF")  # it is read again at once, and removed
        new.execute("PRAGMA journal_mode = WAL")
        # a primary key's index comes with its table
        made = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
        for (sql,) in old.execute(made).fetchall():
            new.execute(sql)
        (revision,) = old.execute("SELECT version_num FROM alembic_version").fetchone()
        new.execute("INSERT INTO alembic_version VALUES (?)", [revision])
        new.commit()
        return new.serialize()


def _put(place: Path, content: bytes) -> None:
    """Make a file whole at once, unless another process has made it meanwhile."""
    with tempfile.NamedTemporaryFile(dir=place.parent) as file:
        file.write(content)
        file.flush()
        with suppress(FileExistsError):
            os.link(file.name, place)


_compiled = LRUCache[object, object](MOST_STATEMENTS)


_lock = threading.Lock()
_engines: OrderedDict[tuple[str, Arguments], Engine] = OrderedDict()
"""Those whose connections are kept, the one that was wanted last at the end."""

_inherited: list[object] = []


def _forget() -> None:
    """A forked child must neither use nor close its parent's connections."""
    global _engines, _lock
    _inherited.append(_engines)
    _engines, _lock = OrderedDict(), threading.Lock()


os.register_at_fork(after_in_child=_forget)


def _close(engine: Engine) -> None:
    """Close the connections of one that is kept no more; those in use, when they come back."""
    engine.pool.dispose()
    _known.pop(engine.url.database, None)


def _made(url: str, arguments: Arguments) -> Engine:
    engine = create_engine(
        url,
        poolclass=QueuePool,
        max_overflow=-1,
        connect_args={**dict(arguments), "check_same_thread": False},
        execution_options={"compiled_cache": _compiled},
    )
    engine.dispose = lambda close=True: None  # type: ignore[method-assign]
    engine.dialect = engine.pool._dialect = _dialect()
    place = engine.url.database or ""

    @event.listens_for(engine, "connect")
    def opened(_: object, record: ConnectionPoolEntry) -> None:
        record.info["file"] = _file(place)
        _known.pop(place, None)

    @event.listens_for(engine, "checkout")
    def lent(_: object, record: ConnectionPoolEntry, __: object) -> None:
        if record.info["file"] != _file(place):
            raise DisconnectionError("another file is there now")

    @event.listens_for(engine, "checkin")
    def back(_: object, record: ConnectionPoolEntry) -> None:
        if _engines.get((url, arguments)) is not engine:
            record.close()

    return engine


@functools.cache
def _dialect() -> Dialect:
    """One for all files: what is compiled is compiled for a dialect."""
    engine = create_engine("sqlite://")
    engine.connect().close()  # lets it look at SQLite's version
    for name in ("has_table", "get_columns"):
        setattr(engine.dialect, name, _remembered(getattr(engine.dialect, name)))
    return engine.dialect


_known: defaultdict[str | None, dict[object, Any]] = defaultdict(dict)
"""What is known of the tables in a file."""


def _remembered(ask: Callable[..., Any]) -> Callable[..., Any]:
    """A dialect's question about a table; once the table is there, it is asked no more."""

    def answer(connection: Connection, table: str, *rest: Any, **options: Any) -> Any:
        known, key = _known[connection.engine.url.database], (ask, table, *rest)
        if not known.get(key):
            known[key] = ask(connection, table, *rest, **options)
        return known[key]

    return answer


def _file(place: str) -> tuple[int, int] | None:
    """Which file it is, whatever its name."""
    try:
        found = os.stat(place)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _engine(
    url: str, *, poolclass: type = NullPool, connect_args: Mapping[str, Any] | None = None
) -> Engine:
    """In the place of SQLAlchemy's `create_engine`, as Dagster calls it."""
    key = (url, tuple((connect_args or {}).items()))
    with _lock:
        engine = _engines[key] = _engines.get(key) or _made(*key)
        _engines.move_to_end(key)
        gone = [_engines.popitem(last=False)[1] for _ in range(len(_engines) - MOST_FILES)]
    for one in gone:
        _close(one)
    return engine
