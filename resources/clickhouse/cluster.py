"""Several ClickHouse servers behind one address, as a cluster or not.

A balancer may send each statement to another replica, so that each has to find there what earlier
ones have left. Tables are made on all replicas, of a Replicated engine; an INSERT is answered when
all have its rows, an ALTER when all have done it. So any of them shows what any has been told, and
the table that is a range's lock exists on all or on none: DDL for a cluster goes through one queue
in Keeper, of which each replica does the same in the same order
(https://clickhouse.com/docs/sql-reference/distributed-ddl).

In a cluster all replicas keep what we make and write. Without one, Tableferry's own tables (staging
tables, markers, locks) are plain ones of the server that answers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tableferry.resources.clickhouse.dialect import DIALECT, literal
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.tables import TableRef

CLUSTERS_SQL = (
    "SELECT cluster, uniqExact(shard_num), max(replica_num) FROM system.clusters "
    "GROUP BY cluster ORDER BY cluster"
)

SHARED = ("Replicated", "Shared")
"""What the names of engines begin with whose tables, or databases, several servers keep."""

_QUOTED = r"`(?:[^`\\]|\\.)*`"
_NAME = rf"(?:{_QUOTED}|\w+)"
_TABLE = rf"(?P<database>{_NAME})\.{_NAME}"
_CREATE = re.compile(rf"CREATE TABLE (?:IF NOT EXISTS )?{_TABLE}")
_DROP = re.compile(rf"DROP TABLE (?:IF EXISTS )?{_TABLE}")
_MOVE = re.compile(rf"(?:RENAME TABLE|EXCHANGE TABLES) {_TABLE} (?:TO|AND) {_NAME}\.{_NAME}")
_COMMENT = re.compile(rf"ALTER TABLE {_TABLE}(?= MODIFY COMMENT)")
_KILL = re.compile(r"KILL QUERY")
_TEXT = re.compile(rf"'(?:[^'\\]|\\.|'')*'|{_QUOTED}", re.DOTALL)
_PLAIN = re.compile(r"\bENGINE = (?=MergeTree\b)")


@dataclass(frozen=True)
class Cluster:
    """A cluster of one shard."""

    name: str
    replicas: int

    @property
    def session(self) -> Mapping[str, str | int]:
        """Settings by which any replica shows what any has been told.

        A quorum of fewer than all would leave a replica that does not have the rows of a staging
        table, of which REPLACE PARTITION takes what is there. `select_sequential_consistency` is
        what SharedMergeTree needs instead, which has no quorums; it changes nothing where quorum
        inserts are parallel
        (https://clickhouse.com/docs/operations/settings/settings#insert_quorum).
        """
        return {
            "insert_quorum": self.replicas,
            "insert_quorum_parallel": 1,  # ranges write markers to one table at the same time
            "select_sequential_consistency": 1,
            "alter_sync": 2,
            "mutations_sync": 2,
            "lightweight_deletes_sync": 2,
            "distributed_ddl_output_mode": "throw",
        }

    def on_all(self, statement: str, database_engine: Callable[[str], str]) -> str:
        """Have a statement that makes, drops, renames or comments a table do so on all replicas.

        Args:
            statement: as it is for a single server; any other is returned unchanged.
            database_engine: tells the engine of a database by its quoted name. In a Replicated or
                Shared one DDL reaches all replicas by itself.
        """
        everywhere = f" ON CLUSTER {DIALECT.quote(self.name)}"
        if kill := _KILL.match(statement):
            return _inserted(statement, kill.end(), everywhere)
        created = _CREATE.match(statement)
        placed = (
            created
            or _DROP.match(statement)
            or _MOVE.match(statement)
            # other ALTERs a replicated table passes on by itself
            or _COMMENT.match(statement)
        )
        if placed is None:
            return statement
        name = placed["database"]
        engine = database_engine(name if name.startswith("`") else DIALECT.quote(name))
        if created and engine != "Shared" and (plain := _PLAIN.search(_masked(statement))):
            statement = _inserted(statement, plain.end(), "Replicated")
        if engine.startswith(SHARED):
            return statement
        return _inserted(statement, placed.end(), everywhere)


def cluster_of(client: Any, name: str, who: str) -> Cluster:
    """Read of a cluster by its name what a session has to know of it.

    Args:
        client: of `clickhouse_connect`.
        name: the cluster's.
        who: the server, for messages.

    Raises:
        InputError: the server knows no such cluster, or it has several shards.
    """
    rows = client.query(CLUSTERS_SQL).result_rows
    clusters = {str(cluster): (int(shards), int(replicas)) for cluster, shards, replicas in rows}
    if name not in clusters:
        known = ", ".join(clusters) or "none"
        raise InputError(f"{who}: it knows no cluster {name!r}; system.clusters has {known}")
    shards, replicas = clusters[name]
    if shards > 1:
        raise InputError(
            f"{who}: the cluster {name!r} has {shards} shards, each with rows of its own. Name a "
            "cluster of one shard, or one of its servers without `cluster`, by a transfer for each"
        )
    return Cluster(name, replicas)


def _inserted(text: str, place: int, more: str) -> str:
    return text[:place] + more + text[place:]


def _masked(sql: str) -> str:
    """SQL with blanks in the place of its text constants and quoted names."""
    return _TEXT.sub(lambda match: " " * len(match[0]), sql)


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
