"""What the servers' catalogs say about many tables at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tableferry.assets.planning.servers import Servers
from tableferry.resources.contract.catalog import Described
from tableferry.resources.contract.endpoint import Endpoint, version_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.target import Target
from tableferry.resources.errors import TableferryError
from tableferry.resources.tables import TableRef


class Catalogs:
    """The catalog of the source and those of the targets, for the tables that are selected.

    The number of queries does not grow with the tables.
    """

    def __init__(self, servers: Servers, tables: Mapping[TableRef, Sequence[TableRef]]) -> None:
        """Read the catalogs.

        Args:
            servers: the servers of all connections.
            tables: the targets of each selected table; all tables are of one connection.
        """
        self._servers = servers.looking_ahead(
            target for targets in tables.values() for target in targets
        )
        self._described: Mapping[TableRef, Described | TableferryError] = {}
        if tables:
            first = next(iter(tables))
            source = source_of(first.system)
            self._described = source.described(servers.endpoint(first), list(tables))

    def described(self, table: TableRef) -> Described:
        """Return what the source's catalog says about a table.

        Raises:
            TableferryError: why it says nothing.
        """
        described = self._described[table]
        if isinstance(described, TableferryError):
            raise described
        return described

    def endpoint(self, table: TableRef) -> Endpoint:
        """Return the server of a table."""
        return self._servers.endpoint(table)

    def target(self, table: TableRef) -> Target:
        """Return the loader of a target's server."""
        return self._servers.target(table)

    def release(self, table: TableRef) -> str | None:
        """Return the version of a target's server if its types depend on it."""
        if not table.system.types.by_release:
            return None
        return version_of(self._servers.endpoint(table))
