"""A SQL Server as Dagster's resource."""

from __future__ import annotations

from tableferry.resources.connecting.resource import ServerResource
from tableferry.resources.sqlserver.server import SqlServerServer


class SqlServerResource(SqlServerServer, ServerResource):
    """A SQL Server, see `SqlServerServer`."""
