"""Databases in memory, in which DuckDB reads files.

To open one takes ten milliseconds, to attach another to it a half.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tableferry.resources.files.dialect import OF_FILE
from tableferry.resources.files.errors import translated
from tableferry.resources.files.object_store import ObjectStore
from tableferry.resources.files.store import Store

if TYPE_CHECKING:  # it takes a tenth of a second to import
    import duckdb

_SETTINGS = {
    "threads": "2",
    "TimeZone": "UTC",
    "autoinstall_known_extensions": "false",
    "enable_external_file_cache": "false",  # it would grow with the files
}

_lock = threading.Lock()
_numbers = itertools.count(1)


@contextmanager
def opened(store: Store, failures: list[Exception]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database of its own, which knows the macro that marks files.

    Args:
        store: where the files are that it is to read.
        failures: gets what fails in an object store.

    Raises:
        StatementFailed: as `errors.translated`, which the block's errors go through, too.
    """
    with translated(failures):
        if isinstance(store, ObjectStore):
            with _connected() as database:
                store.attach(database, failures)
                yield _prepared(database)
        else:
            with _apart() as database:
                yield _prepared(database)


def _prepared(database: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    return database.execute(f"CREATE MACRO {OF_FILE}(file, name) AS file = name")


@contextmanager
def _apart() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in the instance of the process, with a connection that sees no other."""
    with _lock:
        database = _shared().cursor()
    name = f'"ferry {next(_numbers)}"'
    with database:
        database.execute(f"ATTACH ':memory:' AS {name}")
        try:
            database.execute(f"USE {name}.main")
            yield database
        finally:
            database.execute("USE memory.main")
            database.execute(f"DETACH {name}")


def _connected() -> duckdb.DuckDBPyConnection:
    import duckdb

    database = duckdb.connect(":memory:")
    for name, value in _SETTINGS.items():
        database.execute(f"SET GLOBAL {name} = '{value}'")
    return database


@functools.cache
def _shared() -> duckdb.DuckDBPyConnection:
    return _connected()


def _forget() -> None:
    """Threads do not survive a fork, and DuckDB has some: both processes open databases anew."""
    _lock.acquire()
    _shared.cache_clear()


os.register_at_fork(before=_forget, after_in_parent=_lock.release, after_in_child=_lock.release)
