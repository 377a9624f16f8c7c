"""Several servers behind one address, and tables that several servers share.

Without a cluster, Tableferry's own tables (staging tables, markers, locks) are plain ones of the
server that answers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from typing import Any

from tableferry.resources.clickhouse.cluster import CLUSTERS_SQL, SHARED
from tableferry.resources.clickhouse.dialect import literal
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.tables import TableRef

DISPLAY_NAME = "X-ClickHouse-Server-Display-Name"
"""The header of every answer with the server's `display_name`, by default its host's name."""

ONE_NODE = "Name one of them by its own address in the connection"

PATH = re.compile(r"Replicated\w*\(\s*'([^']*)'")

REPLICAS_SQL = (
    "SELECT max(total_replicas), max(active_replicas) FROM system.replicas "
    "WHERE database = {schema} AND table = {name}"
)


class OneNode:
    """A pool of HTTP connections that refuses answers of several servers in turn.

    A server that takes the place of another one, as after a failure, is no second one: that one
    does not come back.
    """

    def __init__(self, pool: Any, address: str) -> None:
        self._pool, self._address = pool, address
        self._names: list[str] = []
        """Whoever has answered, the latest last."""
        self._lock = threading.Lock()

    def request(self, *arguments: Any, **options: Any) -> Any:
        """Send a request, as `urllib3.PoolManager` does.

        Raises:
            InputError: a server answers again after another one has.
        """
        response = self._pool.request(*arguments, **options)
        if name := response.headers.get(DISPLAY_NAME):
            with self._lock:
                returned = name in self._names[:-1]
                if name not in self._names:
                    self._names.append(name)
            if returned:
                response.close()
                raise InputError(several(self._address, self._names))
        return response

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


def several(address: str, names: Iterable[str]) -> str:
    """Say why several servers at one address are refused."""
    return (
        f"{address}: several servers answer in turn ({', '.join(sorted(names))}), and what one of "
        f"them has been told or sent, another may not know yet, or never. {ONE_NODE}, or give "
        "that the name of their cluster (?cluster=...)"
    )


def require_place(
    endpoint: Endpoint, table: TableRef, *, engine: str, database_engine: str, cluster: str | None
) -> None:
    """Refuse a target that is kept by other servers than the connection names.

    Args:
        endpoint: the server.
        table: the target.
        engine: the table's engine, or the one that is declared for a table to be made, with its
            arguments; empty if none is declared.
        database_engine: the engine of its database.
        cluster: the cluster of the connection; None for a single server.

    Raises:
        InputError: several servers keep it, and the connection names no cluster; or the other way
            round; or its replicas may know it by different UUIDs. Databases of the engines
            Replicated and Shared send DDL to all replicas, and rows of plain tables to none
            (https://clickhouse.com/docs/engines/database-engines/replicated).
    """
    name = engine.partition("(")[0].partition(" ")[0]
    shared = engine.startswith(SHARED)
    if cluster is None and database_engine.startswith(SHARED):
        raise InputError(
            f"{table}: its database has the engine {database_engine}, which makes every table on "
            "all replicas, staging tables, markers and locks too, while their rows stay on one of "
            f"them. {_name_cluster(endpoint)}, or take a target in a database with the engine "
            "Atomic"
        )
    if cluster is None and shared:
        plain = name.removeprefix("Replicated").removeprefix("Shared")
        raise InputError(
            f"{table}: its engine is {name}{replicas_of(endpoint, table)}, which several servers "
            f"keep, while staging tables, markers and locks are on the one that answers. "
            f"{_name_cluster(endpoint)}, or take a table of the engine {plain}"
        )
    plain_rows = name.endswith("MergeTree") and not shared and database_engine != "Shared"
    if cluster is not None and plain_rows:
        raise InputError(
            f"{table}: its engine is {name}, which one server keeps, while the connection names "
            f"the cluster {cluster!r}. Take a table of the engine Replicated{name}, or name the "
            "server by its own address, without `cluster`"
        )
    path = PATH.match(engine)
    if cluster is not None and path and "{uuid}" not in path[1]:
        raise InputError(
            f"{table}: its path in Keeper is {path[1]!r}, without {{uuid}}, so that each replica "
            "may know it by a UUID of its own, which markers go by. Make it ON CLUSTER with the "
            "server's own path: the engine without the path and the replica's name"
        )


def replicas_of(endpoint: Endpoint, table: TableRef) -> str:
    """How many replicas a table has, as part of a sentence; empty if nobody may know."""
    names = {"schema": literal(table.schema), "name": literal(table.name)}
    for replicas, active in _known(endpoint, REPLICAS_SQL.format(**names)):
        if replicas:
            return f" of {replicas} replicas, {active} of them active"
    return ""


def _name_cluster(endpoint: Endpoint) -> str:
    """Advise to name a cluster of one shard and several replicas, of those that the server knows,
    if it knows any."""
    fit = [
        name
        for name, shards, replicas in _known(endpoint, CLUSTERS_SQL)
        if shards == 1 and replicas > 1
    ]
    return f"Give the connection the name of the cluster (?cluster={' or '.join(fit) or '...'})"


def _known(endpoint: Endpoint, sql: str) -> list[tuple[Any, ...]]:
    """What the catalog says; nothing if the user may not read it."""
    try:
        return endpoint.query(sql)
    except StatementFailed as error:
        if error.transient:
            raise
        return []
