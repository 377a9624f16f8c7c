"""A cluster of ClickHouse: its replicas keep what we make and write, all of them.

A balancer may send each statement to another replica, so that each has to find there what earlier
ones have left. Tables are made on all replicas, of a Replicated engine; an INSERT is answered when
all have its rows, an ALTER when all have done it. So any of them shows what any has been told, and
the table that is a range's lock exists on all or on none: DDL for a cluster goes through one queue
in Keeper, of which each replica does the same in the same order
(https://clickhouse.com/docs/sql-reference/distributed-ddl).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tableferry.resources.clickhouse.dialect import DIALECT
from tableferry.resources.errors import InputError

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
