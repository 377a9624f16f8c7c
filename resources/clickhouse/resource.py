"""A ClickHouse server as Dagster's resource."""

from __future__ import annotations

from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.connecting.resource import ServerResource


class ClickHouseResource(ClickHouseServer, ServerResource):
    """A ClickHouse server, see `ClickHouseServer`."""
