"""Moves tables between PostgreSQL, SQL Server and ClickHouse, key range by key range.

What is named here is public. It follows semantic versioning: it changes in ways that break a caller
only with a new major version, or, before 1.0, with a new minor one, and the changelog says so. The
same holds for the `ferry` command, its `--json` documents, the transfer files and the attributes of
the component. The modules below may change with any release.

Each name is imported when it is first used: `import tableferry` imports neither Dagster nor
pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableferry.assets.asset_keys import asset_key
    from tableferry.assets.declaring.manifest import Transfer
    from tableferry.assets.declaring.sections import HopSpec
    from tableferry.assets.declaring.transfer_files import load_transfers
    from tableferry.assets.moved_ranges import (
        MovedRanges,
        moved_predicates,
        moved_ranges,
        when_proven,
    )
    from tableferry.assets.planning.servers import Servers
    from tableferry.assets.transfer import transfer_assets
    from tableferry.checks.comparing.tables import TableComparison
    from tableferry.checks.verdict import Differences, Verdict
    from tableferry.pipelines.api import TransferSession, compare, definitions, session
    from tableferry.pipelines.command.one.runner import check, differences, plan, run, status
    from tableferry.pipelines.command.show.range_views import RangeView, TransferView
    from tableferry.pipelines.command.show.views import CheckView, PlannedRange, PlanView
    from tableferry.pipelines.component.component import TransfersComponent
    from tableferry.pipelines.reporting.report import Report
    from tableferry.resources.clickhouse.resource import ClickHouseResource
    from tableferry.resources.connecting.adapters import (
        from_clickhouse,
        from_psycopg,
        from_sqlalchemy,
    )
    from tableferry.resources.errors import InputError, TableferryError
    from tableferry.resources.files.resource import FilesResource
    from tableferry.resources.postgres.resource import PostgresResource
    from tableferry.resources.sqlserver.resource import SqlServerResource
    from tableferry.resources.tables import TableRef

    __version__: str

__all__ = [
    "CheckView",
    "ClickHouseResource",
    "Differences",
    "FilesResource",
    "HopSpec",
    "InputError",
    "MovedRanges",
    "PlanView",
    "PlannedRange",
    "PostgresResource",
    "RangeView",
    "Report",
    "Servers",
    "SqlServerResource",
    "TableComparison",
    "TableRef",
    "TableferryError",
    "Transfer",
    "TransferSession",
    "TransferView",
    "TransfersComponent",
    "Verdict",
    "__version__",
    "asset_key",
    "check",
    "compare",
    "definitions",
    "differences",
    "from_clickhouse",
    "from_psycopg",
    "from_sqlalchemy",
    "load_transfers",
    "moved_predicates",
    "moved_ranges",
    "plan",
    "run",
    "session",
    "status",
    "transfer_assets",
    "when_proven",
]

_MODULES = {
    "assets.asset_keys": ("asset_key",),
    "assets.declaring.manifest": ("Transfer",),
    "assets.declaring.sections": ("HopSpec",),
    "assets.declaring.transfer_files": ("load_transfers",),
    "assets.moved_ranges": (
        "MovedRanges",
        "moved_predicates",
        "moved_ranges",
        "when_proven",
    ),
    "assets.planning.servers": ("Servers",),
    "assets.transfer": ("transfer_assets",),
    "checks.comparing.tables": ("TableComparison",),
    "checks.verdict": ("Differences", "Verdict"),
    "pipelines.api": ("TransferSession", "compare", "definitions", "session"),
    "pipelines.command.one.runner": ("check", "differences", "plan", "run", "status"),
    "pipelines.command.show.range_views": ("RangeView", "TransferView"),
    "pipelines.command.show.views": ("CheckView", "PlanView", "PlannedRange"),
    "pipelines.component.component": ("TransfersComponent",),
    "pipelines.reporting.report": ("Report",),
    "resources.clickhouse.resource": ("ClickHouseResource",),
    "resources.connecting.adapters": ("from_clickhouse", "from_psycopg", "from_sqlalchemy"),
    "resources.errors": ("InputError", "TableferryError"),
    "resources.files.resource": ("FilesResource",),
    "resources.postgres.resource": ("PostgresResource",),
    "resources.sqlserver.resource": ("SqlServerResource",),
    "resources.tables": ("TableRef",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("tableferry")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
