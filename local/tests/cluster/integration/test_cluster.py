"""The stand-in for a cluster does with statements what a cluster would."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from tableferry_local.cluster import Cluster
from tableferry_local.cluster.balancer import TAG, Balancer

pytestmark = pytest.mark.integration

REPLICATED = (
    "CREATE TABLE {name} ON CLUSTER standin (id Int32, _range UInt64 MATERIALIZED 5) "
    "ENGINE = ReplicatedMergeTree PARTITION BY _range ORDER BY id"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def balancer(cluster: Cluster) -> Iterator[Balancer]:
    with Balancer(cluster) as balancer:
        yield balancer


@pytest.fixture
def client(cluster: Cluster, balancer: Balancer) -> Client:
    """A client of the address; requests go to the nodes in turn."""
    cluster.delay = 0.0
    return connected(balancer)


def connected(balancer: Balancer, **settings: Any) -> Client:
    return clickhouse_connect.get_client(
        dsn=balancer.url.partition("?")[0], autogenerate_session_id=False, **settings
    )


def answers(client: Client, sql: str) -> list[list[tuple[Any, ...]]]:
    """What both nodes answer, by their names."""
    found = {}
    while len(found) < 2:
        ((name, answer),) = client.query(
            f"SELECT displayName(), (SELECT groupArray(tuple(*)) FROM ({sql}))"
        ).result_rows
        found[name] = [*answer]
    return [found[name] for name in sorted(found)]


def test_requests_go_in_turn_and_those_of_a_tag_to_one_node(balancer: Balancer) -> None:
    client = connected(balancer)
    names = [client.command("SELECT displayName()") for _ in range(4)]
    assert names[0] != names[1] and names[:2] == names[2:]
    for settings in ({"session_id": "mine"}, {}):
        pinned = connected(balancer, **settings)
        tag = {} if settings else {"transport_settings": {TAG: "mine"}}
        assert len({pinned.command("SELECT displayName()", **tag) for _ in range(3)}) == 1


def test_a_connection_may_stay_on_its_node(cluster: Cluster) -> None:
    with Balancer(cluster, sticky=True) as balancer:
        first, second = connected(balancer), connected(balancer)
        names = [[c.command("SELECT displayName()") for _ in range(3)] for c in (first, second)]
        assert len({*names[0]}) == len({*names[1]}) == 1


def test_what_is_plain_stays_on_its_node(client: Client) -> None:
    client.command("CREATE TABLE alone (id Int32) ENGINE = MergeTree ORDER BY id")
    found = answers(client, "SELECT name FROM system.tables WHERE name = 'alone'")
    assert sorted(map(len, found)) == [0, 1]


def test_a_replicated_table_has_the_rows_on_both_nodes_later(
    cluster: Cluster, client: Client
) -> None:
    client.command(REPLICATED.format(name="orders"))
    cluster.delay = 0.4
    client.command("INSERT INTO orders VALUES (1), (2)")
    assert sorted(map(len, answers(client, "SELECT id FROM orders"))) == [0, 2]
    time.sleep(0.6)
    assert answers(client, "SELECT id, _range FROM orders") == [[(1, 5), (2, 5)]] * 2
    client.insert("orders", [[7]], column_names=["id"], settings={"insert_quorum": "auto"})
    assert answers(client, "SELECT max(id) FROM orders") == [[(7,)]] * 2
    client.command("ALTER TABLE orders DELETE WHERE id < 7", settings={"mutations_sync": 2})
    assert answers(client, "SELECT id FROM orders") == [[(7,)]] * 2
    client.command("INSERT INTO orders SELECT id + 1 FROM orders")
    for _ in range(2):
        read = {"select_sequential_consistency": 1}
        assert client.query("SELECT id FROM orders ORDER BY id", settings=read).result_rows == [
            (7,),
            (8,),
        ]


def test_a_partition_is_replaced_by_the_rows_of_the_node_that_does_it(
    cluster: Cluster, client: Client
) -> None:
    for name in ("whole", "staged"):
        client.command(REPLICATED.format(name=name))
    client.command("INSERT INTO whole VALUES (1)", settings={"insert_quorum": 2})
    cluster.delay = 0.4
    client.command("INSERT INTO staged VALUES (2), (3)")  # one node has them
    replacing = "ALTER TABLE whole REPLACE PARTITION ID '5' FROM staged"
    with pytest.raises(DatabaseError, match="has no parts in partition 5"):
        client.command(replacing)  # the other has none
    client.command(replacing)
    assert sorted(answers(client, "SELECT id FROM whole ORDER BY id")) == [[(1,)], [(2,), (3,)]]
    time.sleep(0.6)
    assert answers(client, "SELECT id FROM whole ORDER BY id") == [[(2,), (3,)]] * 2
    client.command(replacing, settings={"alter_sync": 2})
    assert answers(client, "SELECT id FROM whole ORDER BY id") == [[(2,), (3,)]] * 2


def test_ddl_on_cluster_has_one_order_and_one_identity(cluster: Cluster, client: Client) -> None:
    cluster.delay = 0.2
    client.command(REPLICATED.format(name="made"))
    uuids = answers(client, "SELECT uuid FROM system.tables WHERE name = 'made'")
    assert uuids[0] == uuids[1] != []
    with pytest.raises(DatabaseError, match="TABLE_ALREADY_EXISTS"):
        client.command(REPLICATED.format(name="made"))
    client.command("RENAME TABLE made TO renamed ON CLUSTER standin")
    assert answers(client, "SELECT uuid FROM system.tables WHERE name = 'renamed'") == uuids
    client.command("DROP TABLE renamed ON CLUSTER standin SYNC")
    assert answers(client, "SELECT 1 FROM system.tables WHERE name = 'renamed'") == [[], []]


def test_the_catalog_shows_a_cluster(client: Client) -> None:
    client.command(
        "CREATE TABLE shown ON CLUSTER standin (id Int32, v Int32) "
        "ENGINE = ReplicatedReplacingMergeTree('/p/{{uuid}}', '{{replica}}', v) ORDER BY id "
        "SETTINGS allow_nullable_key = 1 COMMENT 'of shown'"
    )
    client.command("CREATE TABLE image ON CLUSTER standin AS shown COMMENT 'of image'")
    path = "'/clickhouse/tables/{uuid}/{shard}', '{replica}'"
    for name in ("shown", "image"):
        for _ in range(2):
            defined = client.query(f"SHOW CREATE TABLE {name}").result_rows[0][0]
            assert f"\nENGINE = ReplicatedReplacingMergeTree({path}, v)\nORDER BY id\n" in defined
            assert "\nSETTINGS allow_nullable_key = 1, index_granularity = 8192\n" in defined
        asked = f"SELECT engine, comment FROM system.tables WHERE name = '{name}'"
        assert answers(client, asked) == [[("ReplicatedReplacingMergeTree", f"of {name}")]] * 2
    replicas = "SELECT total_replicas FROM system.replicas WHERE table = 'shown'"
    assert answers(client, replicas) == [[(2,)]] * 2
    clusters = "SELECT cluster, count() FROM system.clusters GROUP BY ALL"
    assert answers(client, clusters) == [[("standin", 2)]] * 2


def test_a_node_that_is_away_stops_ddl_and_quorums(cluster: Cluster, client: Client) -> None:
    client.command(REPLICATED.format(name="kept"))
    cluster.nodes[1].stop()
    try:
        assert {client.command("SELECT displayName()") for _ in range(3)} == {
            f"127.0.0.1:{cluster.nodes[0].port}"
        }
        client.command("INSERT INTO kept VALUES (1)")
        with pytest.raises(DatabaseError, match="TOO_FEW_LIVE_REPLICAS"):
            client.command("INSERT INTO kept VALUES (2)", settings={"insert_quorum": 2})
        with pytest.raises(DatabaseError, match="TIMEOUT_EXCEEDED"):
            client.command(
                "RENAME TABLE kept TO lost ON CLUSTER standin",
                settings={"distributed_ddl_task_timeout": 1},
            )
    finally:
        cluster.nodes[1].start()
    read = {"select_sequential_consistency": 1}
    for _ in range(2):
        assert client.query("SELECT id FROM lost", settings=read).result_rows == [(1,)]


def test_a_replicated_database_makes_tables_on_both_nodes(tmp_path: Path) -> None:
    with Cluster(tmp_path, database_engine="Replicated") as cluster, Balancer(cluster) as balancer:
        client = connected(balancer)
        client.command("CREATE TABLE t (id Int32) ENGINE = ReplicatedMergeTree ORDER BY id")
        engine = "SELECT engine FROM system.databases WHERE name = 'warehouse'"
        assert answers(client, engine) == [[("Replicated",)]] * 2
        uuids = answers(client, "SELECT uuid FROM system.tables WHERE name = 't'")
        assert uuids[0] == uuids[1] != []
        with pytest.raises(DatabaseError, match="TABLE_ALREADY_EXISTS"):
            client.command("CREATE TABLE t (id Int32) ENGINE = ReplicatedMergeTree ORDER BY id")
