"""Statements of ours reach all replicas of a cluster."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from tableferry.resources.clickhouse.cluster import Cluster, cluster_of
from tableferry.resources.errors import InputError

CLUSTER = Cluster("a`b", 3)


@pytest.mark.parametrize(
    ("statement", "sent"),
    [
        (
            "CREATE TABLE IF NOT EXISTS `w`.`t` (a String COMMENT 'ENGINE = MergeTree') "
            "ENGINE = MergeTree ORDER BY a",
            r"CREATE TABLE IF NOT EXISTS `w`.`t` ON CLUSTER `a\`b` (a String COMMENT "
            "'ENGINE = MergeTree') ENGINE = ReplicatedMergeTree ORDER BY a",
        ),
        (
            "CREATE TABLE `w`.`t` (a String) ENGINE = ReplicatedReplacingMergeTree(v) ORDER BY a",
            r"CREATE TABLE `w`.`t` ON CLUSTER `a\`b` (a String) "
            "ENGINE = ReplicatedReplacingMergeTree(v) ORDER BY a",
        ),
        (
            "CREATE TABLE `w`.`t.\\`x` (nothing UInt8) ENGINE = Null",
            r"CREATE TABLE `w`.`t.\`x` ON CLUSTER `a\`b` (nothing UInt8) ENGINE = Null",
        ),
        (
            "CREATE TABLE `w`.`s` AS `w`.`t` COMMENT ''",
            r"CREATE TABLE `w`.`s` ON CLUSTER `a\`b` AS `w`.`t` COMMENT ''",
        ),
        (
            "CREATE TABLE `w`.`it's` (a String) ENGINE = MergeTree ORDER BY a COMMENT 'it'",
            r"CREATE TABLE `w`.`it's` ON CLUSTER `a\`b` (a String) "
            "ENGINE = ReplicatedMergeTree ORDER BY a COMMENT 'it'",
        ),
        (
            "DROP TABLE IF EXISTS `w`.`t` SYNC",
            r"DROP TABLE IF EXISTS `w`.`t` ON CLUSTER `a\`b` SYNC",
        ),
        (
            "RENAME TABLE `w`.`s` TO `w`.`t`",
            r"RENAME TABLE `w`.`s` TO `w`.`t` ON CLUSTER `a\`b`",
        ),
        (
            "EXCHANGE TABLES `w`.`s` AND `w`.`t`",
            r"EXCHANGE TABLES `w`.`s` AND `w`.`t` ON CLUSTER `a\`b`",
        ),
        ("DROP TABLE w.t SYNC", r"DROP TABLE w.t ON CLUSTER `a\`b` SYNC"),
        ("KILL QUERY WHERE 1 SYNC", r"KILL QUERY ON CLUSTER `a\`b` WHERE 1 SYNC"),
        ("ALTER TABLE `w`.`t` DROP PARTITION ID '1'", "ALTER TABLE `w`.`t` DROP PARTITION ID '1'"),
        (
            "ALTER TABLE `w`.`t` MODIFY COMMENT 'it'",
            r"ALTER TABLE `w`.`t` ON CLUSTER `a\`b` MODIFY COMMENT 'it'",
        ),
        ("INSERT INTO `w`.`t` VALUES (1)", "INSERT INTO `w`.`t` VALUES (1)"),
    ],
)
def test_tables_are_made_and_dropped_on_all_replicas(statement: str, sent: str) -> None:
    assert CLUSTER.on_all(statement, {"`w`": "Atomic"}.__getitem__) == sent


@pytest.mark.parametrize(
    ("database_engine", "engine"), [("Replicated", "ReplicatedMergeTree"), ("Shared", "MergeTree")]
)
def test_a_replicated_database_does_so_by_itself(database_engine: str, engine: str) -> None:
    made = "CREATE TABLE `w`.`t` (a Int8) ENGINE = {} ORDER BY a"
    assert CLUSTER.on_all(made.format("MergeTree"), lambda _: database_engine) == (
        made.format(engine)
    )
    drop = "DROP TABLE IF EXISTS `w`.`t` SYNC"
    assert CLUSTER.on_all(drop, lambda _: database_engine) == drop


def test_all_replicas_have_a_row_before_its_insert_is_answered() -> None:
    assert CLUSTER.session["insert_quorum"] == 3


def test_a_cluster_has_one_shard_and_is_known() -> None:
    rows: list[tuple[Any, ...]] = [("main", 1, 2), ("spread", 4, 2)]
    client = Mock(query=lambda _: Mock(result_rows=rows))
    assert cluster_of(client, "main", "clickhouse at h:1") == Cluster("main", 2)
    with pytest.raises(InputError, match="'spread' has 4 shards") as refused:
        cluster_of(client, "spread", "clickhouse at h:1")
    assert "by a transfer for each" in str(refused.value)
    with pytest.raises(InputError, match="it knows no cluster 'mian'") as refused:
        cluster_of(client, "mian", "clickhouse at h:1")
    assert str(refused.value).endswith("system.clusters has main, spread")
