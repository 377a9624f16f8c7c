"""The packages that only some transfers need, and the extras that install them."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tableferry.resources.errors import InputError

ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
"""Part of Python from 3.14 on."""

MODULES: dict[str, tuple[str, ...]] = {
    "alerts": ("apprise",),
    "azure": ("adlfs",),
    "clickhouse": ("clickhouse_connect",),
    "digest": ("numpy", "polars", "polars_hash"),
    "expectations": ("great_expectations", "pandas"),
    "files": ("duckdb",),
    "gcs": ("gcsfs",),
    "postgres-storage": ("dagster_postgres",),
    "s3": ("s3fs",),
    "sqlserver": ("mssql_python",),
    "webserver": ("dagster_webserver",),
}
"""The modules that the code of an extra imports."""


def missing(extra: str, what: str) -> InputError | None:
    """Return the error that `what` needs an extra which is not installed; None if it is."""
    for module in MODULES[extra]:
        if not _is_installed(module):
            package = module.replace("_", "-")
            return InputError(
                f"{what} needs the package {package}: pip install 'tableferry[{extra}]'"
            )
    return None


def require(extra: str, what: str) -> None:
    """Make sure that an extra is installed, see `missing`.

    Raises:
        InputError: it is not; the message has the command that installs it.
    """
    if error := missing(extra, what):
        raise error


def zstd() -> Any:
    """Python's module for zstd."""
    return import_module(ZSTD)


def _is_installed(module: str) -> bool:
    try:
        return module in sys.modules or find_spec(module) is not None
    except ModuleNotFoundError:  # the package that should contain the module
        return False
