"""The servers of a transfer's tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.namesakes import Namesake
from tableferry.checks.sides import Comparison
from tableferry.checks.table_side import TableSide
from tableferry.resources.connecting.names import url_variable
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint, version_of
from tableferry.resources.contract.fields import Side
from tableferry.resources.contract.limits import Sharing, Value
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.looking_ahead import LookAhead
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.target import Target
from tableferry.resources.errors import InputError
from tableferry.resources.extras import missing
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef


@dataclass(frozen=True)
class Servers:
    """The servers that a transfer may use, by name of connection."""

    endpoints: Mapping[str, Endpoint]
    sharing: Sharing | None = None
    """How processes share the budgets of sources; by default each process has all of them."""
    source: TableRef | None = None
    """The transfer's source; without a transfer, all tables are read as sources."""
    versioned: Collection[TableRef] = ()
    """The tables that may have several versions of a row, of which the newest are read."""
    limits: Mapping[str, Value] = field(default_factory=dict)
    """The limits that the transfer declares for its source."""
    namesakes: Sequence[Namesake] = ()
    """The targets of other transfers that may be a target of this one by another name."""

    @classmethod
    def of(
        cls,
        transfer: Transfer,
        resources: object,
        bound: Servers | None = None,
        sharing: Sharing | None = None,
    ) -> Servers:
        """The servers that a transfer is bound to, or else Dagster's resources.

        Args:
            transfer: the transfer.
            resources: Dagster's.
            bound: the servers that it is bound to.
            sharing: how processes share the budgets of sources.
        """
        if bound is None:
            bound = cls({name: getattr(resources, name) for name in connections_of(transfer)})
        return replace(bound, sharing=sharing).serving(transfer)

    def serving(self, transfer: Transfer) -> Servers:
        """The servers as the transfer reads them: with its source, its choice about row-level
        security, and the newest versions of rows where that is declared."""
        endpoints = self.endpoints
        if transfer.row_security != "refuse":
            endpoints = {name: each.under_policies() for name, each in endpoints.items()}
        return replace(
            self,
            endpoints=endpoints,
            source=transfer.source,
            versioned=transfer.versioned,
            limits=transfer.limits,
        )

    def looking_ahead(self, tables: Iterable[TableRef]) -> Servers:
        """The servers, with catalogs that are read about all of these tables at once.

        They serve a look that changes nothing. What moves or records is decided by other servers,
        which read the catalog at the time of each decision.
        """
        by_connection: dict[str, list[TableRef]] = {}
        for table in tables:
            by_connection.setdefault(table.connection, []).append(table)
        ahead = {
            name: self.endpoints[name].looking_ahead(LookAhead(own))
            for name, own in by_connection.items()
            if name in self.endpoints
        }
        return replace(self, endpoints={**self.endpoints, **ahead})

    def changed(self) -> set[TableRef]:
        """The tables about which the catalog says something else than when it was read ahead."""
        return {
            table
            for name, endpoint in self.endpoints.items()
            if endpoint.ahead is not None
            for table in endpoint.ahead.changed(endpoint.within_budget(name, self.sharing))
        }

    def endpoint(self, table: TableRef) -> Endpoint:
        """The server of a table; that of a source reads within the budget of its connection.

        Raises:
            InputError: the address of its connection is not set, or its budget is invalid.
        """
        endpoint = self._endpoint(table)
        if table in self.versioned:
            endpoint = endpoint.newest_versions()
        if self.source is None or table == self.source:
            return endpoint.within_budget(table.connection, self.sharing, self.limits)
        return endpoint

    def unversioned(self, plan: CopyPlan, tables: Iterable[TableRef]) -> dict[TableRef, str | None]:
        """Say of some of a hop's tables why they do not keep several versions of a row; None of
        those that do.

        Raises:
            InputError: see `Source.unversioned`.
        """
        read_by = {
            plan.source: f"{plan.key.source.name} {plan.where or ''}",
            plan.target: f"{plan.key.target.name} {plan.target_where or ''}",
        }
        return {
            table: source_of(table.system).unversioned(self.endpoint(table), table, read_by[table])
            for table in tables
        }

    def comparison(
        self, plan: CopyPlan, ranges: Sequence[KeyRange], *, snapshot: str | None = None
    ) -> Comparison:
        """Both sides of some ranges of a hop, its source under a snapshot if there is one."""
        source, target = self.endpoint(plan.source), self.endpoint(plan.target)
        return Comparison(plan, source, target, ranges, snapshot)

    def side(self, plan: CopyPlan, side: Side) -> TableSide:
        """One side of a hop."""
        return TableSide(
            plan, side, self.endpoint(plan.source if side == "source" else plan.target)
        )

    def budget_line(self, table: TableRef) -> str | None:
        """Say what reading from a table's server may cost it; None if nothing bounds it."""
        budget = self._endpoint(table).budget(table.connection)
        return f"{table.connection}: {budget.rule}" if budget else None

    def pool_line(self, table: TableRef) -> str | None:
        """Say how many connections a small pool before a table's server lends; None without."""
        budget = self._endpoint(table).budget(table.connection)
        return f"{table.connection}: {budget.rule}" if budget and budget.of_pooler else None

    def _endpoint(self, table: TableRef) -> Endpoint:
        if table.connection not in self.endpoints:
            raise InputError(f"{url_variable(table.connection)} is not set; {table} needs it")
        return self.endpoints[table.connection]

    def identity(self, table: TableRef) -> str:
        """Address and version of a table's server: `postgres at db:5432, database shop, 18.6`.

        Raises:
            ConnectionFailed: it does not answer.
        """
        endpoint = self.endpoint(table)
        settings = endpoint.settings()
        return f"{settings.address}, database {settings.database}, {version_of(endpoint)}"

    def target(self, table: TableRef) -> Target:
        """The loader of a table's server.

        Raises:
            InputError: rows cannot be loaded into that system.
        """
        return loader_of(table.system).open(self._endpoint(table))


def connections_of(transfer: Transfer) -> set[str]:
    """The names of the connections that a transfer needs."""
    return {table.connection for table in transfer.tables}


def resources_of(transfer: Transfer, bound: Servers | None) -> set[str]:
    """The names of Dagster's resources that a transfer needs; none if it is bound to servers."""
    return connections_of(transfer) if bound is None else set()


def require_servers(transfer: Transfer, servers: Servers) -> None:
    """Refuse a transfer that needs a server without an address, or a package not installed.

    Raises:
        InputError: names every missing variable and extra, and what needs it.
    """
    needed: dict[str, TableRef] = {}
    extras: dict[str, str] = {}
    for table in transfer.tables:
        needed.setdefault(table.connection, table)
        if extra := table.system.extra:
            extras.setdefault(extra, str(table))
    unmet = []
    for name, table in needed.items():
        endpoint = servers.endpoints.get(name)
        if endpoint is None or not endpoint.has_address:
            needs = f"transfer {transfer.transfer} needs it for {table}"
            unmet.append(f"{url_variable(name)} is not set; {needs}")
        elif endpoint.digests_by() == "client":
            extras.setdefault("digest", f"digest_by=client of {table}")
    for extra, purpose in extras.items():
        if error := missing(extra, f"transfer {transfer.transfer}: {purpose}"):
            unmet.append(str(error))
    if unmet:
        raise InputError("\n".join(unmet))
