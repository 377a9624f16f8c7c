"""Targets on a cluster of ClickHouse, whichever of its replicas answers.

The cluster is a stand-in, whose docstring says what it is not.
"""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.resources.clickhouse.locks import Owner, take_lock
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.contract.markers import MARKERS
from tableferry.resources.errors import RangeBusy
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry_local import clickhouse
from tableferry_local.cluster import Cluster, replication
from tableferry_local.cluster.balancer import Balancer
from tableferry_local.cluster.node import Answer, Node, NodeError
from tests.integration.conftest import Ferry
from tests.integration.support import looking

pytestmark = pytest.mark.integration

HOPS = "['replicas://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
    "INSERT INTO {t} SELECT g, 'note ' || g FROM generate_series(1, 40) g",
)
ROWS = "SELECT id, note FROM {t} ORDER BY id"
Make = Callable[..., Ferry]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def balancer(
    cluster: Cluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Balancer]:
    """An address of the cluster, which has a connection of its own name."""
    cluster.delay, sticky = getattr(request, "param", (0.1, False))
    with Balancer(cluster, sticky=sticky) as balancer:
        monkeypatch.setenv("TABLEFERRY_CONNECTION_REPLICAS", balancer.url)
        yield balancer


def on_each(cluster: Cluster, sql: str) -> list[list[tuple[Any, ...]]]:
    """What each node answers, asked past the balancer."""
    urls = [clickhouse.url(node.port, cluster.password) for node in cluster.nodes]
    return [looking.ask_clickhouse(url, sql) for url in urls]


def require_same(cluster: Cluster, one: Ferry) -> None:
    """Each node has the source's rows, and the same tables as the other, none of them left over."""
    rows = one.rows(ROWS)
    assert on_each(cluster, ROWS.format(t=f"warehouse.{one.table}")) == [rows, rows]
    tables = "SELECT name, uuid FROM system.tables WHERE database = 'warehouse' ORDER BY name"
    first, second = on_each(cluster, tables)
    assert first == second
    assert not [name for name, _ in first if name.startswith("__ferry_") and name != MARKERS]


@pytest.mark.parametrize(
    ("write", "balancer"),
    [
        ("replace", (0.0, False)),
        ("replace", (0.5, False)),
        ("replace", (0.2, True)),
        ("swap", (0.2, False)),
        ("upsert", (0.2, False)),
        ("append", (0.2, False)),
    ],
    indirect=["balancer"],
)
def test_each_replica_has_what_a_run_has_published(
    cluster: Cluster, balancer: Balancer, ferry: Make, write: str
) -> None:
    one = ferry(HOPS, *TABLE, write=write, ranges="{rows: 20}")
    first = one.run()
    assert first.good, first.errors
    require_same(cluster, one)
    assert not one.moved(one.run())
    one.source("INSERT INTO {t} VALUES (41, NULL)")
    if write != "append":
        one.source("UPDATE {t} SET note = '' WHERE id = 7")
    second = one.run()
    assert second.good, second.errors
    require_same(cluster, one)
    marked = f"SELECT `range`, token, number FROM warehouse.{MARKERS} ORDER BY ALL"
    markers, same = on_each(cluster, marked)
    assert markers == same != []


def test_tables_of_ours_are_made_where_the_target_is(
    cluster: Cluster, balancer: Balancer, ferry: Make
) -> None:
    hops = "[{{to: 'replicas://warehouse.{t}', engine: ReplicatedReplacingMergeTree}}]"
    columns = "{size: {type: Int8}}"
    one = ferry(
        hops,
        "CREATE TABLE {t} (id int PRIMARY KEY, size int)",
        "INSERT INTO {t} SELECT g, 100 * g FROM generate_series(1, 3) g",
        columns=columns,
        on_reject="quarantine",
    )
    done = one.run()
    assert done.good, done.errors
    engines = "SELECT name, engine_full FROM system.tables WHERE database = 'warehouse'"
    for tables in on_each(cluster, engines):
        made = {name: engine for name, engine in tables if one.table in name or name == MARKERS}
        assert {*made} == {one.table, f"{one.table}__rejected", MARKERS}
        assert all("replicated_deduplication_window_seconds" in full for full in made.values())
    dry = CliRunner().invoke(main, ["run", one.table, "--dry-run", "--force"])
    assert "ON CLUSTER `standin`" in dry.output, dry.output


def test_a_lock_is_one_for_all_replicas(cluster: Cluster) -> None:
    cluster.delay = 0.1
    table, lock = TableRef("clickhouse", "warehouse", "held"), f"__ferry_{uuid.uuid4().hex[:8]}"
    key_range = KeyRange("integer", None, 10)
    with Balancer(cluster, sticky=True) as first, Balancer(cluster, sticky=True) as second:
        servers = [ClickHouseResource(url=balancer.url) for balancer in (first, second)]
        address = urlsplit(second.url)
        socket.create_connection((address.hostname, address.port)).close()  # has the first turn
        answering = {str(server.query("SELECT displayName()")) for server in servers}
        assert len(answering) == 2
        take_lock(servers[0], table, lock, Owner("run-1", "a"), key_range, lambda _: True)
        for server in servers:
            with pytest.raises(RangeBusy, match="by run run-1"):
                take_lock(server, table, lock, Owner("run-2", "b"), key_range, lambda _: True)
        servers[1].execute(f"DROP TABLE `warehouse`.`{lock}` SYNC")
    assert on_each(cluster, f"SELECT 1 FROM system.tables WHERE name = '{lock}'") == [[], []]


def test_while_a_replica_is_away_nothing_is_published(
    cluster: Cluster, balancer: Balancer, ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "DDL_SECONDS", 2.0)
    one = ferry(HOPS, *TABLE, ranges="{count: 1}")
    assert one.run().good
    before = one.rows(ROWS)
    one.source("DELETE FROM {t} WHERE id > 20")
    cluster.nodes[1].stop()
    try:
        failed = one.run()
        assert not failed.good
        assert "replicas" in str(failed.errors) or "hosts" in str(failed.errors)
        url = clickhouse.url(cluster.nodes[0].port, cluster.password)
        assert looking.ask_clickhouse(url, ROWS.format(t=f"warehouse.{one.table}")) == before
    finally:
        cluster.nodes[1].start()
    again = one.run()
    assert again.good, again.errors
    require_same(cluster, one)


@pytest.mark.parametrize("at", ["CREATE TABLE", "INSERT INTO", "REPLACE PARTITION", "DROP TABLE"])
def test_a_replica_that_goes_in_the_middle_of_a_run_and_comes_back_loses_nothing(
    cluster: Cluster,
    balancer: Balancer,
    ferry: Make,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 20}")
    assert one.run().good
    one.source("UPDATE {t} SET note = 'newer'")
    handle, gone = cluster.handle, threading.Event()
    back = threading.Timer(1.5, cluster.nodes[1].start)

    def handled(node: Node, body: bytes, *others: Any) -> Answer:
        if at.encode() in body[:200] and not gone.is_set():
            gone.set()
            cluster.nodes[1].stop()
            back.start()
        return handle(cluster.nodes[0] if gone.is_set() else node, body, *others)

    monkeypatch.setattr(cluster, "handle", handled)
    first = one.run()
    assert gone.is_set()
    back.join()
    monkeypatch.setattr(cluster, "handle", handle)
    assert first.good, first.errors
    require_same(cluster, one)
    assert not one.moved(one.run())


@pytest.mark.parametrize(
    ("at", "acted", "code", "says"),
    [
        ("INSERT INTO", True, 319, "Insert quorum wasn't reached (UNKNOWN_STATUS_OF_INSERT)"),
        ("INSERT INTO", False, 286, "Quorum is pending (UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE)"),
        ("INSERT INTO", False, 252, "Too many parts (300). (TOO_MANY_PARTS)"),
        ("INSERT INTO", False, 242, "Table is in readonly mode (TABLE_IS_READ_ONLY)"),
        ("comment, (SELECT count() FROM", False, 289, "No such part (REPLICA_IS_NOT_IN_QUORUM)"),
        ("REPLACE PARTITION", True, 159, "Timeout exceeded (TIMEOUT_EXCEEDED)"),
        ("REPLACE PARTITION", False, 242, "Table is in readonly mode (TABLE_IS_READ_ONLY)"),
        ("CREATE TABLE", True, 159, "Distributed DDL task is not finished (TIMEOUT_EXCEEDED)"),
        ("CREATE TABLE", False, 999, "Session expired (KEEPER_EXCEPTION)"),
    ],
)  # fmt: skip
def test_what_a_replica_refuses_for_a_while_is_tried_again(
    cluster: Cluster,
    balancer: Balancer,
    ferry: Make,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    acted: bool,
    code: int,
    says: str,
) -> None:
    """Whether the statement was done, or not, before the error came."""
    one = ferry(HOPS, *TABLE, ranges="{rows: 20}")
    assert one.run().good
    one.source("UPDATE {t} SET note = 'newer'")
    handle, refused = cluster.handle, threading.Event()

    def handled(node: Node, body: bytes, *others: Any) -> Answer:
        of_range = one.table.encode() in body[:400] or at.startswith("comment")
        if refused.is_set() or not of_range or at.encode() not in body[:400]:
            return handle(node, body, *others)
        refused.set()
        if acted:
            b"".join(handle(node, body, *others).body)
        return NodeError(500, f"Code: {code}. DB::Exception: {says}").answer

    monkeypatch.setattr(cluster, "handle", handled)
    done = one.run()
    assert refused.is_set() and done.good, done.errors
    require_same(cluster, one)


def test_a_target_that_is_read_only_for_good_is_told_by_name(
    cluster: Cluster, balancer: Balancer, ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(HOPS, *TABLE, ranges="{count: 1}")
    assert one.run().good
    before = one.rows(ROWS)
    one.source("DELETE FROM {t} WHERE id > 20")
    handle = cluster.handle

    def handled(node: Node, body: bytes, *others: Any) -> Answer:
        if b"REPLACE PARTITION" in body[:200]:
            says = "Code: 242. DB::Exception: Table is in readonly mode (TABLE_IS_READ_ONLY)"
            return NodeError(500, says).answer
        return handle(node, body, *others)

    monkeypatch.setattr(cluster, "handle", handled)
    failed = one.run()
    assert not failed.good and "readonly mode" in str(failed.errors), failed.errors
    (first, second) = on_each(cluster, ROWS.format(t=f"warehouse.{one.table}"))
    assert first == second == before
    monkeypatch.setattr(cluster, "handle", handle)
    assert one.run().good
    require_same(cluster, one)


def test_a_target_is_where_the_connection_says(
    cluster: Cluster, balancer: Balancer, ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(HOPS, *TABLE)
    assert one.run().good
    doctor = CliRunner().invoke(main, ["doctor"])
    assert "answer; clusters (shards x replicas): standin of 1 x 2" in doctor.output
    assert "targets" not in doctor.output and "GRANT CLUSTER" not in doctor.output
    plan = CliRunner().invoke(main, ["plan", one.table])
    assert "kept by all 2 replicas of the cluster 'standin'; a run needs all" in plan.output
    node = clickhouse.url(cluster.nodes[0].port, cluster.password)
    with Balancer(cluster, sticky=True) as one_address:
        monkeypatch.setenv("TABLEFERRY_CONNECTION_REPLICAS", one_address.url.partition("?")[0])
        for command in ("validate", "plan", "run"):
            done = CliRunner().invoke(main, [command, one.table])
            assert done.exit_code == 2, done.output
            assert "its engine is ReplicatedMergeTree of 2 replicas, 2 of them" in done.output
            assert "Give the connection the name of the cluster (?cluster=standin)" in done.output
        doctor = CliRunner().invoke(main, ["doctor"])
        assert "targets" in doctor.output and "ReplicatedMergeTree of 2 replicas" in doctor.output
    server = ClickHouseResource(url=f"{node}?cluster=standin")
    assert server.identity() == ClickHouseResource(url=balancer.url).identity()
    monkeypatch.setenv("TABLEFERRY_CONNECTION_REPLICAS", f"{node}?cluster=other")
    refused = CliRunner().invoke(main, ["validate", one.table])
    assert "it knows no cluster 'other'; system.clusters has standin" in refused.output
    monkeypatch.setenv("TABLEFERRY_CONNECTION_REPLICAS", balancer.url)
    for replica in cluster.nodes:
        client = looking.clickhouse(clickhouse.url(replica.port, cluster.password))
        client.command(f"DROP TABLE warehouse.{one.table} SYNC")
        client.command(f"CREATE TABLE warehouse.{one.table} (id Int32, note String) ORDER BY id")
    refused = CliRunner().invoke(main, ["validate", one.table])
    assert refused.exit_code == 2
    assert "its engine is MergeTree, which one server keeps" in refused.output
    for replica in cluster.nodes:  # they are two tables, which others are not to meet
        client = looking.clickhouse(clickhouse.url(replica.port, cluster.password))
        client.command(f"DROP TABLE warehouse.{one.table} SYNC")


def test_a_replicated_source_is_said_to_be_one(
    cluster: Cluster, balancer: Balancer, ferry: Make, copies: str
) -> None:
    one = ferry(HOPS, *TABLE)
    assert one.run().good
    one.declare(f"['postgres://{copies}.{{t}}']", source=f"replicas://warehouse.{one.table}")
    plan = CliRunner().invoke(main, ["plan", one.table])
    assert "ReplicatedMergeTree of 2 replicas, 2 of them active is read from" in plan.output
    done = one.run()
    assert done.good, done.errors
    assert one.rows(f"SELECT id, note FROM {copies}.{{t}} ORDER BY id") == one.rows(ROWS)
    assert not one.moved(one.run())


def test_a_replicated_database_needs_no_word_of_the_cluster(
    ferry: Make, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("replicated")
    with (
        Cluster(folder, delay=0.1, database_engine="Replicated") as cluster,
        Balancer(cluster) as balancer,
    ):
        monkeypatch.setenv("TABLEFERRY_CONNECTION_REPLICAS", balancer.url)
        one = ferry(HOPS, *TABLE, ranges="{rows: 20}")
        first = one.run()
        assert first.good, first.errors
        require_same(cluster, one)
        monkeypatch.setenv("TABLEFERRY_CONNECTION_REPLICAS", balancer.url.partition("?")[0])
        refused = CliRunner().invoke(main, ["validate", one.table])
        assert refused.exit_code == 2


def test_a_table_of_the_stand_in_that_is_written_often_has_few_parts(cluster: Cluster) -> None:
    """Else each mutation of the markers takes longer than the one before."""
    cluster.delay = 0.0
    with Balancer(cluster) as balancer:
        server = ClickHouseResource(url=balancer.url)
        server.execute(
            "CREATE TABLE warehouse.often (id Int32) ENGINE = ReplicatedMergeTree ORDER BY id"
        )
        for number in range(40):
            server.execute(f"INSERT INTO warehouse.often VALUES ({number})")
        parts = "SELECT count() FROM system.parts WHERE active AND table = 'often'"
        for ((count,),) in on_each(cluster, parts):
            assert count <= replication.MOST_PARTS
        rows = "SELECT id FROM warehouse.often ORDER BY id"
        assert on_each(cluster, rows) == [[(n,) for n in range(40)]] * 2
        server.execute("DROP TABLE warehouse.often SYNC")


def test_equal_rows_of_two_inserts_are_two_on_each_node_of_the_stand_in(cluster: Cluster) -> None:
    """The other node takes them by inserts that have no tokens."""
    cluster.delay = 0.0
    with Balancer(cluster, sticky=True) as balancer:
        server = ClickHouseResource(url=balancer.url)
        server.execute(
            "CREATE TABLE warehouse.equal (id Int32) ENGINE = ReplicatedMergeTree ORDER BY id "
            "SETTINGS non_replicated_deduplication_window = 1000"
        )
        for token in ("first", "second"):
            settings = {"insert_deduplication_token": token}
            server.execute("INSERT INTO warehouse.equal VALUES (7)", settings)
        assert on_each(cluster, "SELECT id FROM warehouse.equal") == [[(7,), (7,)]] * 2
        server.execute("DROP TABLE warehouse.equal SYNC")
