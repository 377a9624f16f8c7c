"""Databases in memory, in which DuckDB reads files.

To open an instance takes ten milliseconds, to attach another database to it half of one.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

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
    "enable_external_file_cache": "false",  # which would grow with the files
}

_lock = threading.Lock()
_numbers = itertools.count(1)


@contextmanager
def opened(store: Store, failures: list[Exception]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database of its own, with the macro that marks files.

    Args:
        store: the store whose files it is to read.
        failures: gets what fails in reading an object store or record batches, see `register`.

    Raises:
        StatementFailed: see `errors.translated`; so do the block's errors.
    """
    with translated(failures), _connection(store, failures) as database:
        yield database.execute(f"CREATE MACRO {OF_FILE}(file, name) AS file = name")


def register(
    database: duckdb.DuckDBPyConnection,
    name: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    failures: list[Exception],
) -> None:
    """Make record batches a table that can be read once.

    Args:
        database: the database.
        name: the table's name.
        schema: the batches' schema.
        batches: the rows.
        failures: gets what fails in reading them, since DuckDB keeps only the text of it.
    """

    def rows() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except Exception as error:
            failures.append(error)
            raise

    database.register(name, pa.RecordBatchReader.from_batches(schema, rows()))


@contextmanager
def _connection(store: Store, failures: list[Exception]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to an instance of its own for an object store, else to a new database in the shared
    instance."""
    if isinstance(store, ObjectStore):
        with _connected() as database:
            store.attach(database, failures)
            yield database
        return
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
    """Drop the instance before a fork, which DuckDB's threads do not survive."""
    _lock.acquire()
    _shared.cache_clear()


os.register_at_fork(before=_forget, after_in_parent=_lock.release, after_in_child=_lock.release)
