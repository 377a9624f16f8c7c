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

from tableferry.resources.contract.batches import slices
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

_TRUSTING = "statistics_propagation,join_filter_pushdown"
"""Optimizers that take the least and greatest values in a Parquet file's footer for true: DuckDB's
errors speak of "optimizations that rely on correct statistics"."""

_lock = threading.Lock()
_numbers = itertools.count(1)


@contextmanager
def opened(
    store: Store, failures: list[Exception], *, prunes: bool = True
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database of its own, with the macro that marks files.

    Args:
        store: the store whose files it is to read.
        failures: gets what fails in reading an object store or record batches, see `register`.
        prunes: whether row groups are skipped that have no row of a query by their footer. A filter
            of the user's must not rest on that: pyarrow would not find what is missing, since rows
            that are filtered pass through DuckDB on both sides.

    Raises:
        StatementFailed: see `errors.translated`; so do the block's errors.
    """
    with translated(failures), _connection(store, failures, prunes) as database:
        # small chunks stay small: of large values, 2,048 rows would be gathered
        database.execute("SET enable_caching_operators = false")
        yield database.execute(f"CREATE MACRO {OF_FILE}(file, name) AS file = name")


def register(
    database: duckdb.DuckDBPyConnection,
    name: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    failures: list[Exception],
    ended: threading.Event | None = None,
) -> None:
    """Make record batches a table that can be read once.

    DuckDB works on chunks of at most 2,048 rows and never on two batches at once, so that batches
    of few bytes bound its memory. It gets the stream itself, a PyCapsule: of all that it could read
    again it would make a pyarrow scanner, which reads a gibibyte ahead of it.

    https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html

    Args:
        database: the database.
        name: the table's name.
        schema: the batches' schema.
        batches: the rows.
        failures: gets what fails in reading them, since DuckDB keeps only the text of it.
        ended: once it is set, no more rows are read.
    """

    def rows() -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                for start, length in slices(batch):
                    if ended is not None and ended.is_set():
                        return
                    yield batch.slice(start, length)
        except Exception as error:
            failures.append(error)
            raise

    stream = pa.RecordBatchReader.from_batches(schema, rows()).__arrow_c_stream__()
    database.register(name, stream)


@contextmanager
def _connection(
    store: Store, failures: list[Exception], prunes: bool
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to an instance of its own for an object store, else to a new database in the shared
    instance."""
    if isinstance(store, ObjectStore):
        with _connected(prunes) as database:
            store.attach(database, failures)
            yield database
        return
    with _lock:
        database = _shared(prunes).cursor()
    name = f'"ferry {next(_numbers)}"'
    with database:
        database.execute(f"ATTACH ':memory:' AS {name}")
        try:
            database.execute(f"USE {name}.main")
            yield database
        finally:
            database.execute("USE memory.main")
            database.execute(f"DETACH {name}")


def _connected(prunes: bool) -> duckdb.DuckDBPyConnection:
    import duckdb

    database = duckdb.connect(":memory:")
    for name, value in _SETTINGS.items():
        database.execute(f"SET GLOBAL {name} = '{value}'")
    # https://duckdb.org/docs/stable/configuration/overview: of the instance, not of a connection
    pushing = "cte_filter_pusher" if prunes else "filter_pushdown"
    database.execute(f"SET GLOBAL disabled_optimizers = '{_TRUSTING},{pushing}'")
    return database


@functools.cache
def _shared(prunes: bool) -> duckdb.DuckDBPyConnection:
    return _connected(prunes)


def _forget() -> None:
    """Drop the instance before a fork, which DuckDB's threads do not survive."""
    _lock.acquire()
    _shared.cache_clear()


os.register_at_fork(before=_forget, after_in_parent=_lock.release, after_in_child=_lock.release)
