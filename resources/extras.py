"""The packages that only some transfers need, and the extras of Tableferry's that bring them."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tableferry.resources.errors import InputError

ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
"""Part of Python from 3.14 on."""

MODULES: dict[str, tuple[str, ...]] = {
    "azure": ("adlfs",),
    "clickhouse": ("clickhouse_connect", "lz4", ZSTD),
    "digest": ("numpy", "polars", "polars_hash"),
    "expectations": ("great_expectations", "pandas"),
    "files": ("duckdb",),
    "gcs": ("gcsfs",),
    "postgres-storage": ("dagster_postgres",),
    "s3": ("s3fs",),
    "sqlserver": ("mssql_python",),
    "webserver": ("dagster_webserver",),
}
"""What has to be there before an extra's part of the code runs."""


def missing(extra: str, what: str) -> InputError | None:
    """The error of whoever lacks an extra; None if all of it is installed.

    Args:
        extra: its name.
        what: needs it: the subject of the message.
    """
    for module in MODULES[extra]:
        if not _is_installed(module):
            package = module.replace("_", "-")
            return InputError(
                f"{what} needs the package {package}: pip install 'tableferry[{extra}]'"
            )
    return None


def require(extra: str, what: str) -> None:
    """See that an extra is installed; arguments as `missing` has them.

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
    except ModuleNotFoundError:  # not even the package that the module is in
        return False
