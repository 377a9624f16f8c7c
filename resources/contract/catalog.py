"""What a server's catalog says of the tables that could be moved, in standard SQL."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.resources import registry
from tableferry.resources.contract.dialects import qualified
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.tables import TableRef


@dataclass(frozen=True)
class Listed:
    """A table or view in a catalog."""

    table: TableRef
    view: bool = False
    readable: bool = True
    """Whether the login may read all of it."""


@dataclass(frozen=True)
class TableSize:
    """About how large a table is."""

    rows: int
    bytes: int | None = None
    """None where the catalog does not say."""


def listed(endpoint: Endpoint, connection: str) -> list[Listed]:
    """The tables and views that INFORMATION_SCHEMA shows, which are those that may be read.

    Args:
        endpoint: the server.
        connection: its name, as table references have it.
    """
    rows = endpoint.query(
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES "
        "WHERE TABLE_SCHEMA NOT IN ('INFORMATION_SCHEMA', 'information_schema', 'sys') "
        "ORDER BY TABLE_SCHEMA, TABLE_NAME"
    )
    return [
        Listed(TableRef(endpoint.system, schema, name, connection), view="VIEW" in kind.upper())
        for schema, name, kind in rows
    ]


def counted(endpoint: Endpoint, table: TableRef) -> TableSize:
    """The size of a table, by counting its rows."""
    count = registry.system(endpoint.system).dialect.count
    return TableSize(int(endpoint.query(f"SELECT {count} FROM {qualified(table)}")[0][0]))
