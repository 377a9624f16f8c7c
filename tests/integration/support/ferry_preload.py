"""What the processes of `ferry` have in common, done once before they are forked.

Only the server that forks them imports this (see crashing.py).
"""

from __future__ import annotations

import encodings.idna  # noqa: F401
import gc
import importlib
import pkgutil
from contextlib import suppress

import adbc_driver_manager
import adbc_driver_postgresql
import clickhouse_connect  # noqa: F401
import mssql_py_core  # noqa: F401
import mssql_python  # noqa: F401
import pandas  # noqa: F401 (pyarrow imports it with the first scalar)
import psycopg  # noqa: F401
import pyarrow.pandas_compat  # noqa: F401
from dagster._core.execution import execute_in_process  # noqa: F401

from tests.integration.support import homes

for room in ("resources", "checks", "assets", "sensors", "pipelines.command"):
    package = importlib.import_module(f"tableferry.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
homes.make_quick()
homes.run_nothing()
with suppress(adbc_driver_manager.Error):  # the first connection initialises OpenSSL
    adbc_driver_postgresql.connect("host=/nowhere")
gc.freeze()
