"""A PostgreSQL database as Dagster's resource."""

from __future__ import annotations

from resources.connection import ServerResource
from resources.postgres.server import PostgresServer


class PostgresResource(PostgresServer, ServerResource):
    """A PostgreSQL database, see `PostgresServer`."""
