"""Tables without a key, moved by stretches of blocks: what updates do to them, and crashes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tableferry.assets.log.runs import RANGE_END, RANGE_START
from tableferry.assets.running.progress import Progress
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.definitions import build
from tableferry.resources.errors import InputError, PlacesLost
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.crashing import Command, crash, reopen

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
BY_BLOCKS = {"key": "", "ranges": "{by: ctid, count: 3}"}
HALF_FULL = (
    # rows that are alike, and room for another version of a few rows in each block
    "CREATE TABLE {t} (id integer, note text, ratio double precision) WITH (fillfactor = 60)",
    "ALTER TABLE {t} ALTER note SET STORAGE PLAIN",
    "INSERT INTO {t} SELECT g / 2, repeat('n', 400), g / 3.0 FROM generate_series(1, 400) g",
)
VALUES = "id, note, ratio"
TOO_LONG = "repeat('long', 1500)"
"""A note for which there is no room in any of those blocks."""


def rows(ferry: Ferry, schema: str = "public") -> Counter[tuple[Any, ...]]:
    """The rows of the source, or of a copy in its database, however often each is there."""
    return Counter(ferry.rows(f"SELECT {VALUES} FROM {schema}.{{t}}"))


def warehouse(ferry: Ferry) -> Counter[tuple[Any, ...]]:
    sql = f"SELECT {VALUES} FROM warehouse.{ferry.table}"
    return Counter(looking.ask_clickhouse(ferry.stack.clickhouse_url, sql))


def range_of(ferry: Ferry, condition: str) -> str:
    """The range that holds the one row which meets a condition."""
    ((block,),) = ferry.rows(f"SELECT (ctid::text::point)[0]::int FROM {{t}} WHERE {condition}")
    known = ferry.session.instance.get_dynamic_partitions(f"{ferry.table}_ranges")
    for name in known:
        lower, upper = (int(one) if one else None for one in name.split(".."))
        if (lower or 0) <= block * 10_000 and (upper is None or block * 10_000 < upper):
            return name
    raise AssertionError(f"no range has block {block}: {known}")


def test_a_chain_follows_rows_from_block_to_block(ferry: Make) -> None:
    one = ferry("['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']", *HALF_FULL, **BY_BLOCKS)
    first = one.run()
    assert first.good, first.errors
    assert warehouse(one) == rows(one)
    assert len({view.range for view in first.ranges}) == 4, "three, and the open one"
    assert sum(view.rows or 0 for view in first.ranges if view.hop == 2) == 400
    assert one.moved(one.run()) == []

    one.source("UPDATE {t} SET note = 'short' WHERE ctid = '(0,1)'")
    begin = range_of(one, "note = 'short'")
    stayed = one.run()
    assert stayed.good and one.moved(stayed) == [begin], "it found room in its own block"

    one.source(f"UPDATE {{t}} SET note = {TOO_LONG} WHERE note = 'short'")
    assert range_of(one, "length(note) = 6000") != begin, "it found none there"
    moved = one.run()
    assert moved.good, moved.errors
    assert {begin, range_of(one, "length(note) = 6000")} <= set(one.moved(moved))
    assert warehouse(one) == rows(one)

    one.source(
        "INSERT INTO {t} SELECT g, repeat('g', 400), NULL FROM generate_series(1, 900) g",
        "DELETE FROM {t} WHERE id = 40",
    )
    grown = one.run()
    assert grown.good, grown.errors
    assert len({view.range for view in grown.ranges}) > 5, "more ranges came"
    assert warehouse(one) == rows(one)


def test_damage_is_found_named_by_its_place_and_mended(ferry: Make, copies: str) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *HALF_FULL, **BY_BLOCKS)
    assert one.run().good
    place = f"(SELECT max(_ctid) FROM {copies}.{{t}} WHERE id = 100)"
    ((number,),) = one.rows(f"SELECT {place}")
    block, position = divmod(number, 10_000)
    assert one.rows(f"SELECT id FROM {{t}} WHERE ctid = '({block},{position})'") == [(100,)]
    one.source(f"UPDATE {copies}.{{t}} SET ratio = 0 WHERE _ctid = {place}")
    checked = runner.check(one.session, one.table, level="full_hash")
    damaged = [check.range for check in checked.checks if check.failed and check.range]
    assert damaged == [range_of(one, f"ctid = '({block},{position})'")]
    (found,) = runner.differences(one.session, one.table, damaged[0]).values()
    (example,) = found.examples
    assert str(number) in str(example) and "ratio" in str(example)
    again = one.run()
    assert again.good and one.moved(again) == damaged
    assert rows(one, copies) == rows(one)


@pytest.mark.parametrize("mode", ["append", "swap"])
def test_write_modes(ferry: Make, copies: str, mode: str) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *HALF_FULL, **BY_BLOCKS, write=mode)
    assert one.run().good
    one.source("INSERT INTO {t} SELECT g, 'new', 0 FROM generate_series(1, 300) g")
    grown = one.run()
    assert grown.good, grown.errors
    assert rows(one, copies) == rows(one)
    one.source(f"UPDATE {{t}} SET note = {TOO_LONG} WHERE ctid = '(0,1)'")
    changed = one.run()
    if mode == "swap":
        assert changed.good, changed.errors
        assert rows(one, copies) == rows(one)
    else:
        gone = rows(one, copies) - rows(one)
        assert gone.total() == 1, "what the source has no more stays, as append has it"


def test_a_crash_between_the_two_ranges_of_a_row_is_mended(ferry: Make, tmp_path: Path) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *HALF_FULL, **BY_BLOCKS)
    assert one.run().good
    one.source(f"UPDATE {{t}} SET note = {TOO_LONG} WHERE ctid IN ('(0,1)', '(0,2)')")
    command = Command(tmp_path)
    crash(command, one.table, "after_commit:1", "--profile", "safe")
    assert warehouse(one) != rows(one), "one of the ranges is new, the other old"
    reopen(one)
    # rows go on moving before anybody mends it
    one.source(f"UPDATE {{t}} SET note = {TOO_LONG} WHERE ctid IN ('(30,1)', '(30,2)')")
    again = one.run()
    assert again.good, again.errors
    assert warehouse(one) == rows(one)
    assert one.moved(one.run()) == []


def test_what_changed_elsewhere_moves_along(ferry: Make, copies: str) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *HALF_FULL, **BY_BLOCKS)
    assert one.run().good
    one.source("INSERT INTO {t} SELECT 0, repeat('n', 400), 0 FROM generate_series(1, 20)")
    assert one.run().good, "there is a range with room, which is committed"
    begin = range_of(one, "ctid = '(0,1)'")
    one.source(f"UPDATE {{t}} SET note = {TOO_LONG} WHERE ctid = '(0,1)'")
    there = range_of(one, "length(note) = 6000")
    asked = one.run(ranges=[there])
    assert asked.good, asked.errors
    assert one.moved(asked) == [begin, there]
    assert rows(one, copies) == rows(one)

    # the same as Dagster's UI and sensors start it: by a range of partitions
    one.source("UPDATE {t} SET note = 'x' WHERE ctid IN ('(1,1)', '(20,1)')")
    result = one.launch(
        build(one.session.declared, {}, one.session.resources),
        tags={RANGE_START: begin, RANGE_END: begin},
    )
    assert result.success
    assert rows(one, copies) == rows(one)
    assert {view.state for view in one.plan().ranges} == {"skip"}


REFUSED = {
    "this is a view": ("CREATE VIEW {t}_of AS SELECT * FROM {t}", "DROP VIEW {t}_of"),
    "this is a partitioned table": (
        "CREATE TABLE {t}_of (id integer) PARTITION BY RANGE (id)",
        "DROP TABLE {t}_of",
    ),
    "this is the parent of other tables": (
        "CREATE TABLE {t}_of (id integer); CREATE TABLE {t}_child () INHERITS ({t}_of)",
        "DROP TABLE {t}_child, {t}_of",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_has_no_blocks_of_its_own_is_refused(ferry: Make, why: str) -> None:
    made, dropped = REFUSED[why]
    one = ferry("['clickhouse://warehouse.{t}']", *HALF_FULL, made)
    try:
        one.declare(
            "['clickhouse://warehouse.{t}']",
            **BY_BLOCKS,
            source=f"postgres://public.{one.table}_of",
        )
        with pytest.raises(InputError, match=f"{one.table}_of: .*{re.escape(why)}"):
            one.run()
    finally:
        one.source(dropped)


def test_a_table_that_is_rewritten_under_a_run_ends_it(ferry: Make) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *HALF_FULL)
    source = one.session.servers.endpoints["postgres"]
    assert isinstance(source, PostgresServer)
    with source.shared_snapshot(
        TableRef.parse(f"postgres://public.{one.table}"), by_place=True
    ) as shared:
        assert shared.name() is shared.name()
        one.source("VACUUM FULL {t}")
        with pytest.raises(PlacesLost, match="rewritten"):
            shared.name()
    with source.shared_snapshot(
        TableRef.parse(f"postgres://public.{one.table}"), by_place=True
    ) as shared:
        shared.name()._connection.close()
        with pytest.raises(PlacesLost, match="run it again"):
            shared.name()


def test_a_rewrite_in_the_middle_fails_what_is_left(ferry: Make, copies: str) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *HALF_FULL, **BY_BLOCKS)
    one.source("DELETE FROM {t} WHERE id % 7 = 0")
    rewritten: list[str] = []

    def rewrite(progress: Progress) -> None:
        if progress.phase == "committed" and not rewritten:
            rewritten.append(progress.range)
            one.source("VACUUM FULL {t}")

    broken = one.run(profile="safe", on_progress=rewrite)
    assert rewritten and not broken.good
    assert one.moved(broken) == rewritten, "nothing that was read afterwards is published"
    assert all("rewritten" in error for error in broken.errors)
    again = one.run()
    assert again.good, again.errors
    assert rows(one, copies) == rows(one)


def test_a_range_is_read_by_its_blocks_alone(ferry: Make) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *HALF_FULL, **BY_BLOCKS)
    planned = runner.plan_transfer(
        one.session.transfer(one.table), one.session.servers, one.session.instance
    )
    (hop,) = planned.hops
    sql = hop.plan.select([*planned.ranges.values()][1], "text")
    shown = "\n".join(str(row[0]) for row in one.rows(f"EXPLAIN {sql}"))
    assert "Tid Range Scan" in shown and "TID Cond" in shown
