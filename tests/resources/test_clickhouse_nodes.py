"""Targets that several ClickHouse servers keep are refused."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tableferry.resources.clickhouse.cluster import require_place
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.tables import TableRef

TABLE = TableRef("clickhouse", "sales", "orders", "clickhouse")


class Replicas:
    """A server that says how many replicas a table has, or refuses to."""

    def __init__(self, *counts: int) -> None:
        self.counts = counts
        self.asked = 0

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        self.asked += 1
        if not self.counts:
            raise StatementFailed("clickhouse", "not enough privileges", code=497, transient=False)
        if "FROM system.clusters" in sql:
            return [("all", 2, 2), ("main", 1, 2), ("self", 1, 1)]
        assert "FROM system.replicas WHERE database = 'sales' AND table = 'orders'" in sql
        return [self.counts]


def require(
    server: Replicas, engine: str, database_engine: str, cluster: str | None = None
) -> None:
    require_place(
        cast(Endpoint, server),
        TABLE,
        engine=engine,
        database_engine=database_engine,
        cluster=cluster,
    )


@pytest.mark.parametrize("engine", ["", "MergeTree", "ReplacingMergeTree(v)", "Distributed"])
def test_a_table_of_one_server_is_asked_nothing_more(engine: str) -> None:
    server = Replicas(2, 2)
    require(server, engine, "Atomic")
    assert not server.asked


@pytest.mark.parametrize("database_engine", ["Replicated", "Shared"])
def test_a_replicated_database_is_no_place_for_a_target(database_engine: str) -> None:
    with pytest.raises(InputError, match=f"has the engine {database_engine}") as refused:
        require(Replicas(2, 2), "MergeTree", database_engine)
    assert "sales.orders" in str(refused.value)


@pytest.mark.parametrize(
    ("counts", "engine", "says"),
    [
        ((3, 2), "ReplicatedMergeTree", "ReplicatedMergeTree of 3 replicas, 2 of them active,"),
        ((0, 0), "ReplicatedReplacingMergeTree('/p', 'r', v)", "ReplicatedReplacingMergeTree,"),
        ((), "SharedMergeTree", "SharedMergeTree, which several servers keep"),
    ],
)
def test_a_replicated_table_is_no_target(counts: tuple[int, ...], engine: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        require(Replicas(*counts), engine, "Atomic")
    assert f"sales.orders: its engine is {says}" in str(refused.value)
    plain = "ReplacingMergeTree" if "Replacing" in engine else "MergeTree"
    named = "main" if counts else "..."  # what its user may not know is left open
    assert f"(?cluster={named}), or take a table of the engine {plain}" in str(refused.value)


@pytest.mark.parametrize(
    ("engine", "database_engine"),
    [
        ("", "Atomic"),
        ("Distributed('main', 'sales', 'orders_local')", "Atomic"),  # refused as on one server
        ("ReplicatedMergeTree PARTITION BY x", "Atomic"),
        ("ReplicatedMergeTree('/tables/{uuid}/{shard}', '{replica}') ORDER BY x", "Atomic"),
        ("ReplicatedReplacingMergeTree(v)", "Replicated"),
        ("ReplacingMergeTree(v)", "Shared"),
        ("SharedMergeTree", "Shared"),
    ],
)
def test_a_cluster_keeps_what_is_replicated(engine: str, database_engine: str) -> None:
    require(Replicas(), engine, database_engine, "main")


@pytest.mark.parametrize("database_engine", ["Atomic", "Replicated"])
def test_a_plain_table_is_no_target_on_a_cluster(database_engine: str) -> None:
    with pytest.raises(InputError) as refused:
        require(Replicas(), "ReplacingMergeTree(v)", database_engine, "main")
    assert "its engine is ReplacingMergeTree, which one server keeps" in str(refused.value)
    assert "the engine ReplicatedReplacingMergeTree" in str(refused.value)


def test_a_table_that_replicas_may_know_by_different_uuids_is_no_target() -> None:
    with pytest.raises(InputError, match=r"'/tables/\{shard\}/orders', without \{uuid\}"):
        require(
            Replicas(), "ReplicatedMergeTree('/tables/{shard}/orders', 'r') x", "Atomic", "main"
        )
