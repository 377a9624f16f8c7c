"""What the bench of deltas reports of rows that have changed."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from tableferry.resources.contract.table_sql import qualified
from tableferry_bench.contenders.incremental import Ferry
from tableferry_bench.delta_report import table_of
from tableferry_bench.deltas import NOTHING, SLING, measure
from tableferry_bench.meter import CommandFailed
from tableferry_bench.servers import Servers
from tableferry_bench.workloads import ensure

pytestmark = pytest.mark.slow

ROWS, RANGES = 4_000, 2


def test_each_way_brings_the_target_up_to_date(databases: Servers) -> None:
    measured = measure(
        databases,
        "postgres-postgres",
        ROWS,
        RANGES,
        [0.005],
        fingerprints=["content"],
        placements=["spread"],
    )
    moved = {
        one.way: (one.ranges_moved, one.whole, one.moved, one.written)
        for one in measured
        if one.way != SLING
    }
    assert moved == {
        NOTHING: (0, 0, 0, 0),
        "always": (RANGES, 0, 20, 20),
        "never": (RANGES, RANGES, ROWS, 2 * ROWS),
        "auto": (RANGES, 0, 20, 20),
    }
    sent = {one.way: one.sent or 0 for one in measured}
    assert 0 == sent[NOTHING] < sent["always"] == sent["auto"] < sent["never"]
    # it needs a program that not every machine has
    assert [one.moved for one in measured if one.way == SLING] in ([], [20])
    assert all(one.seconds > 0 for one in measured)
    assert json.loads(json.dumps([asdict(one) for one in measured]))[0]["case"]["changed"] == 20
    head, _, *lines = table_of(measured, NOTHING).splitlines()
    assert len(lines) == len(measured)
    assert {line.count("|") for line in lines} == {head.count("|")}
    assert all("| 0.5 % | spread |" in line for line in lines)
    assert (
        databases.postgres.query("SELECT tablename FROM pg_tables WHERE tablename ~ 'wide'") == []
    )


def test_clustered_rows_change_one_range(databases: Servers) -> None:
    measured = measure(
        databases,
        "postgres-clickhouse",
        ROWS,
        RANGES,
        [0.005],
        fingerprints=["auto"],
        placements=["clustered"],
        ways=[NOTHING, "always"],
    )
    [nothing, always] = measured
    assert (nothing.ranges_moved, nothing.written) == (0, 0)
    # a partition is made anew
    assert (always.ranges_moved, always.moved, always.written) == (1, 20, ROWS // RANGES)


def test_a_run_that_fails_is_no_measurement(databases: Servers) -> None:
    table = ensure(databases, "wide:100")
    ferry = Ferry(databases, table, databases.table("postgres", "deltas"), 1)
    ferry.set_up()
    ferry.run(fingerprint="content")
    source = qualified(databases.table("postgres", table.name))
    databases.postgres.execute(f"ALTER TABLE {source} ALTER COLUMN quantity TYPE text")
    with pytest.raises(CommandFailed, match="ferry run ended with exit code"):
        ferry.run(fingerprint="content")
