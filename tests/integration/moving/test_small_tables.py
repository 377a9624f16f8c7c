"""A table of fewer rows than a range is one range, and is cut when it has outgrown it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tableferry.assets.planning.transfer_plan import apply_growth, plan_transfer
from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import (
    Command,
    crash,
    reopen,
    rows_of,
    staging_tables,
)

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
TO_CLICKHOUSE = "['clickhouse://warehouse.{t}']"
TABLE = "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount date NOT NULL)"
INSERT = "INSERT INTO {{t}} SELECT g, 'row ' || g, '2024-01-01' FROM generate_series({}, {}) g"
CUT = ["..0000000101", "0000000101..0000000201", "0000000201.."]
"""Of 200 rows, a hundred each."""


def known(one: Ferry) -> list[str]:
    return list(one.session.instance.get_dynamic_partitions(f"{one.table}_ranges"))


def assert_proven(one: Ferry, *systems: str) -> None:
    """Each row is in each target once, and all checks say so."""
    for system in systems:
        wanted = sorted(rows_of(one, "postgres"), key=repr)
        assert sorted(rows_of(one, system), key=repr) == wanted, system
    found = runner.check(one.session, one.table)
    assert not [check for check in found.checks if check.failed]


@pytest.mark.parametrize("write", ["replace", "append", "upsert", "swap"])
def test_a_chain_of_one_range_is_cut_when_it_has_outgrown_it(ferry: Make, write: str) -> None:
    one = ferry(CHAIN, TABLE, INSERT.format(1, 90), ranges="{rows: 100}", write=write)
    first = one.run()
    assert first.good, first.errors
    assert [(view.hop, view.range, view.rows) for view in first.ranges] == [
        (1, "..", 90),
        (2, "..", 90),
    ]
    one.source(INSERT.format(91, 150))
    assert one.moved(one.run()) == [".."]
    assert one.moved(one.run()) == []
    one.source(INSERT.format(151, 200))
    grown = one.run()
    assert grown.good, grown.errors
    assert known(one) == CUT
    assert {view.range for view in grown.ranges} == set(CUT)
    assert_proven(one, "sqlserver", "clickhouse")
    assert one.moved(one.run()) == []


def test_null_keys_are_beside_it(ferry: Make) -> None:
    table = TABLE.replace("PRIMARY KEY", "")
    nulls = "INSERT INTO {t} VALUES (NULL, 'none', '2024-01-01'), (NULL, 'none', '2024-01-01')"
    one = ferry(CHAIN, table, INSERT.format(1, 90), nulls, ranges="{rows: 100}")
    first = one.run()
    assert first.good, first.errors
    assert known(one) == ["..", "null"]
    one.source(INSERT.format(91, 200))
    grown = one.run()
    assert grown.good, grown.errors
    assert known(one) == ["null", *CUT]
    assert one.moved(grown) == sorted(CUT), "the rows without a key have not changed"
    assert_proven(one, "sqlserver", "clickhouse")


def test_a_table_that_was_cut_before_keeps_its_ranges(ferry: Make) -> None:
    one = ferry(TO_CLICKHOUSE, TABLE, INSERT.format(1, 90), ranges="{rows: 100}")
    before = ["..0000000101", "0000000101.."]
    one.session.instance.add_dynamic_partitions(f"{one.table}_ranges", before)
    first = one.run()
    assert first.good, first.errors
    assert one.moved(first) == before
    assert known(one) == before
    assert_proven(one, "clickhouse")


def test_a_table_that_shrinks_and_a_smaller_size_of_ranges(ferry: Make) -> None:
    one = ferry(TO_CLICKHOUSE, TABLE, INSERT.format(1, 90), ranges="{rows: 100}")
    assert one.run().good
    one.source("DELETE FROM {t}")
    emptied = one.run()
    assert emptied.good and known(one) == [".."], emptied.errors
    one.source(INSERT.format(1, 40))
    assert one.moved(one.run()) == [".."]
    one.declare(TO_CLICKHOUSE, ranges="{rows: 20}")
    smaller = one.run()
    assert smaller.good, smaller.errors
    assert known(one) == ["..0000000021", "0000000021..0000000041", "0000000041.."]
    assert_proven(one, "clickhouse")
    one.declare(TO_CLICKHOUSE, ranges="{rows: 1000}")
    assert one.moved(one.run()) == [], "ranges are never joined"


@pytest.mark.parametrize("write", ["replace", "upsert", "append", "swap"])
@pytest.mark.parametrize(
    "point",
    ["after_retire", "inside_growth", "before_export", "inside_finalise:3", "after_commit:2"],
)
def test_killed_while_it_is_cut(ferry: Make, tmp_path: Path, write: str, point: str) -> None:
    killed_while_growing(ferry, tmp_path, write, point, before=100)


@pytest.mark.parametrize("write", ["replace", "swap"])
def test_killed_while_the_last_of_several_ranges_is_cut(
    ferry: Make, tmp_path: Path, write: str
) -> None:
    killed_while_growing(ferry, tmp_path, write, "inside_growth", before=140)


def killed_while_growing(
    ferry: Make, tmp_path: Path, write: str, point: str, *, before: int
) -> None:
    one = ferry(CHAIN, TABLE, INSERT.format(1, before), ranges="{rows: 100}", write=write)
    assert one.run().good
    shown = set(rows_of(one, "clickhouse"))
    one.source(INSERT.format(before + 1, 200))
    crash(Command(tmp_path), one.table, point, "--profile", "safe")
    reopen(one)
    for system in ("sqlserver", "clickhouse"):
        assert shown <= set(rows_of(one, system)), "readers miss no row"
    # so that the next plan would cut otherwise
    one.source(INSERT.format(-60, 0))
    moved = one.run()
    assert moved.good, moved.errors
    assert ".." not in known(one) and len(known(one)) == len(set(known(one))) >= 3, known(one)
    assert_proven(one, "sqlserver", "clickhouse")
    assert not staging_tables(one, "sqlserver") and not staging_tables(one, "clickhouse")
    assert one.moved(one.run()) == []


@pytest.mark.parametrize("write", ["replace", "append", "upsert"])
def test_a_home_beside_it_follows(
    ferry: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """Another event log moves the same table, and has it as one range when this one cuts it."""
    one = ferry(TO_CLICKHOUSE, TABLE, INSERT.format(1, 90), ranges="{rows: 100}", write=write)
    assert one.run().good
    homes = {"first": str(tmp_path / "dagster"), "second": str(tmp_path / "second")}

    def enter(home: str) -> None:
        monkeypatch.setenv("DAGSTER_HOME", homes[home])
        reopen(one)

    enter("second")
    second = one.run()
    assert second.good, second.errors
    assert known(one) == [".."]
    enter("first")
    one.source(INSERT.format(91, 200))
    assert one.run().good
    assert known(one) == CUT
    enter("second")
    followed = one.run()
    assert followed.good, followed.errors
    assert known(one) == CUT
    assert_proven(one, "clickhouse")


def test_growth_that_is_only_planned_changes_no_row(ferry: Make) -> None:
    """As the sensor does it, before it requests the run."""
    one = ferry(TO_CLICKHOUSE, TABLE, INSERT.format(1, 90), ranges="{rows: 100}")
    assert one.run().good
    one.source(INSERT.format(91, 200))
    before = rows_of(one, "clickhouse")
    transfer, instance = one.session.transfer(one.table), one.session.instance
    servers = one.session.servers_of(transfer)
    plan = plan_transfer(transfer, servers, instance, purpose="cut")
    apply_growth(plan, servers, instance)
    assert known(one) == CUT and rows_of(one, "clickhouse") == before
    assert one.run().good
    assert_proven(one, "clickhouse")
