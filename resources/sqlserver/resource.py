"""A SQL Server as Dagster's resource."""

from __future__ import annotations

from resources.connection import ServerResource
from resources.sqlserver.server import SqlServerServer


class SqlServerResource(SqlServerServer, ServerResource):
    """A SQL Server, see `SqlServerServer`."""
