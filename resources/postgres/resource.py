"""A PostgreSQL database as Dagster's resource."""

from __future__ import annotations

from tableferry.resources.connecting.resource import ServerResource
from tableferry.resources.postgres.server import PostgresServer


class PostgresResource(PostgresServer, ServerResource):
    """A PostgreSQL database, see `PostgresServer`."""
