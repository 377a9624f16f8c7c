"""What the programs of a project have in common, imported once before they are forked.

Nothing of the project is, nor what an extra would have to bring.
"""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import suppress

NAMES = (
    *("adbc_driver_postgresql", "clickhouse_connect", "psycopg", "pyarrow.parquet"),
    *("dagster._cli.asset", "dagster._cli.definitions", "dagster._cli.job"),
    *("dagster._daemon.cli", "dagster._grpc.impl", "dagster._grpc.server", "dagster_dlt"),
    *("dagster_dg_core.check", "markdown_it", "rich.markdown", "upath"),
    *(f"dagster_dg_cli.cli.{name}" for name in ("api", "check", "launch", "list", "plus")),
    *("dagster_dg_cli.cli.dev", "dagster_dg_cli.cli.scaffold", "dagster_dg_cli.cli.utils"),
)

for name in NAMES:
    with suppress(ImportError):
        importlib.import_module(name)
for room in ("resources", "checks", "assets", "sensors", "pipelines"):
    package = importlib.import_module(f"tableferry.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        with suppress(ImportError):
            importlib.import_module(module.name)
