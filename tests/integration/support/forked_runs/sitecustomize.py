"""What Python imports first where PYTHONPATH has this folder: Dagster's runs fork there.

Each run is a new process that takes three seconds to import what it needs. Where that is not what a
test is about, a code server gets its runs from one process that has imported all of it. A quarter
of the seconds goes into looking for garbage, of which imports leave none.
"""

from __future__ import annotations

import gc
import multiprocessing
from multiprocessing.context import BaseContext

PRELOADED = (
    *("dagster._grpc.impl", "dagster._grpc.server", "tableferry.pipelines.definitions"),
    *("adbc_driver_postgresql", "clickhouse_connect", "mssql_py_core", "mssql_python", "pandas"),
)
_get_context = multiprocessing.get_context

gc.set_threshold(100_000, 10, 10)


def get_context(method: str | None = None) -> BaseContext:
    """As `multiprocessing` has it, but that processes fork instead of spawn."""
    if method != "spawn":
        return _get_context(method)
    forking = _get_context("forkserver")
    forking.set_forkserver_preload([*PRELOADED])
    return forking


setattr(multiprocessing, "get_context", get_context)  # noqa: B010 (mypy: of another type)
