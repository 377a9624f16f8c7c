"""Tableferry's component and resources, by the name that Dagster's integrations have."""

from dagster_shared.libraries import DagsterLibraryRegistry

from dagster_tableferry.version import __version__
from tableferry import (
    ClickHouseResource,
    FilesResource,
    HopSpec,
    PostgresResource,
    Servers,
    SqlServerResource,
    Transfer,
    TransfersComponent,
)

__all__ = [
    "ClickHouseResource",
    "FilesResource",
    "HopSpec",
    "PostgresResource",
    "Servers",
    "SqlServerResource",
    "Transfer",
    "TransfersComponent",
]

DagsterLibraryRegistry.register("dagster-tableferry", __version__, is_dagster_package=False)
