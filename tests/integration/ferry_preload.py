"""What the processes of `ferry` have in common, done once before they are forked.

Only the server that forks them imports this (see crashing.py).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import adbc_driver_postgresql  # noqa: F401
import clickhouse_connect  # noqa: F401
import mssql_python  # noqa: F401
import psycopg  # noqa: F401

import pipelines.cli  # noqa: F401
from tests.integration import homes

homes.make_quick()
with tempfile.TemporaryDirectory() as folder:
    homes.template(Path(folder))  # so that Dagster's storage is imported, and its migrations read
