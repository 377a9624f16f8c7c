"""The ClickHouse target on a real server: what is visible when, and what a crash leaves."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from tableferry.resources import crash_points
from tableferry.resources.clickhouse import replaced
from tableferry.resources.clickhouse.ddl import partition
from tableferry.resources.clickhouse.locks import Owner, take_lock
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.clickhouse.target import ClickHouseTarget
from tableferry.resources.connecting.retry import ATTEMPTS
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import MARKERS, Publication
from tableferry.resources.contract.target import TargetMoved, no_live_owner
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.contract.target_options import TargetOptions, WriteMode
from tableferry.resources.errors import (
    ConnectionFailed,
    InputError,
    RangeBusy,
    StatementFailed,
)
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import staging_name
from tableferry_local.stack import Stack
from tests.integration.support.proxy import LosesAnswer
from tests.integration.support.target_bench import (
    AFTER,
    ELSEWHERE,
    HIGH,
    LOW,
    NEW,
    OLD,
    REPLACE,
    Row,
    batch,
    column,
)
from tests.integration.support.target_bench import ClickHouseBench as Bench

pytestmark = pytest.mark.integration


@pytest.fixture
def bench(ch_url: str) -> Iterator[Bench]:
    with Bench(ch_url, f"t_{uuid.uuid4().hex[:8]}") as bench:
        yield bench


@pytest.fixture
def own_bench(own_stack: Stack) -> Iterator[Bench]:
    """On servers that may be killed."""
    with Bench(own_stack.clickhouse_url, f"t_{uuid.uuid4().hex[:8]}") as bench:
        yield bench


def test_refused_row_names_the_reason(bench: Bench) -> None:
    bench.target.prepare(bench.plan, TargetOptions())
    with (
        pytest.raises(StatementFailed, match="Cannot parse input") as caught,
        bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), TargetOptions()) as load,
    ):
        load.load_bytes(iter([b"1\tfine\n", b"one\tnot a number\n"]))
    assert not caught.value.transient
    assert not bench.left_over()


@pytest.mark.invariant("I7")
def test_live_run_keeps_its_range(bench: Bench) -> None:
    bench.target.prepare(bench.plan, TargetOptions())
    with bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), TargetOptions()) as load:
        load.load_arrow([batch(OLD)])
        with (
            pytest.raises(RangeBusy, match="run-1"),
            bench.target.attempt(
                Publication(bench.plan, LOW, "v", "run-2"),
                TargetOptions(),
                alive=lambda run: run == "run-1",
            ),
        ):
            pytest.fail("two runs hold one range")
        bench.load(ELSEWHERE, HIGH, owner="run-2")
        load.finalise()
    assert bench.rows() == [*OLD, *ELSEWHERE]


@pytest.mark.invariant("I7")
def test_run_that_lost_its_range_cannot_publish(bench: Bench) -> None:
    bench.target.prepare(bench.plan, TargetOptions())
    with (
        pytest.raises(RangeBusy),
        bench.target.attempt(
            Publication(bench.plan, LOW, "v", "thought dead"), TargetOptions()
        ) as slow,
    ):
        slow.load_arrow([batch(OLD)])
        with bench.target.attempt(
            Publication(bench.plan, LOW, "v", "run-2"), TargetOptions()
        ) as load:
            load.load_arrow([batch(NEW)])
            with pytest.raises((RangeBusy, StatementFailed)):
                slow.finalise()
            load.finalise()
            assert bench.rows() == NEW
        raise RangeBusy("left with the error of finalise")
    assert bench.rows() == NEW
    assert not bench.left_over()


@pytest.mark.invariant("I7")
def test_what_a_run_stages_while_it_is_taken_for_dead_is_dropped(bench: Bench) -> None:
    """Its lock was found before that, and is dropped after it: `tests/model` found the gap."""
    bench.target.prepare(bench.plan, REPLACE)
    lock = staging_name(bench.table, LOW.name)
    takers = [Owner("thought dead", "one"), Owner("run-2", "two")]
    create = f"CREATE TABLE warehouse.`{lock}_one` (id Int64) ENGINE = MergeTree ORDER BY id"
    meanwhile = [lambda: bench.client.command(create)]

    class Slow(ClickHouseResource):
        def execute(self, sql: str, settings: Mapping[str, str | int] | None = None) -> None:
            if sql.startswith("DROP TABLE") and meanwhile:
                meanwhile.pop()()
            super().execute(sql, settings)

    for owner in takers:
        take_lock(Slow(url=bench.url), bench.table, lock, owner, LOW, no_live_owner)
    assert not meanwhile and bench.left_over() == [lock]


@pytest.mark.invariant("I4")
@pytest.mark.parametrize("statement", ["REPLACE PARTITION", "DROP PARTITION"])
def test_lost_acknowledgement(bench: Bench, statement: str) -> None:
    bench.target.prepare(bench.plan, TargetOptions())
    bench.load(OLD)
    new = NEW if statement.startswith("REPLACE") else []
    with LosesAnswer(bench.url, statement.encode()) as proxy:
        bench.load(new, target=ClickHouseTarget(ClickHouseResource(url=proxy.url)))
        assert proxy.lost == 1
    assert bench.rows() == new


@pytest.mark.parametrize("restarted", [False, True], ids=["stays down", "comes back"])
def test_server_killed_before_finalise(own_stack: Stack, own_bench: Bench, restarted: bool) -> None:
    own_bench.target.prepare(own_bench.plan, REPLACE)
    own_bench.load(OLD)
    try:
        with contextlib.ExitStack() as outcome:
            if not restarted:
                outcome.enter_context(pytest.raises((ConnectionFailed, StatementFailed)))
            load = outcome.enter_context(
                own_bench.target.attempt(Publication(own_bench.plan, LOW, "v", "run-1"), REPLACE)
            )
            load.load_arrow([batch(NEW)])
            own_stack.kill("clickhouse")
            if restarted:
                own_stack.restart("clickhouse")
            load.finalise()
    finally:
        if not restarted:
            own_stack.restart("clickhouse")
    assert own_bench.rows() == (NEW if restarted else OLD)
    own_bench.load(NEW, owner="run-2")
    assert own_bench.rows() == NEW
    assert not own_bench.left_over()


def test_same_block_sent_twice_counts_once(bench: Bench) -> None:
    bench.target.prepare(bench.plan, TargetOptions())
    with bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), TargetOptions()) as load:
        load.load_arrow([batch(OLD)])
        load._blocks = 0  # as if a proxy on the way had sent the request again
        load.load_arrow([batch(OLD)])
        assert load.staged_rows() == len(OLD)


def test_equal_blocks_of_one_range_all_count(bench: Bench) -> None:
    bench.target.prepare(bench.plan, TargetOptions())
    with bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), TargetOptions()) as load:
        load.load_arrow([batch([(1, "same")] * 70_000)] * 40)
        load.load_arrow([batch([(1, "same")])])
        assert load.finalise() == 70_000 * 40 + 1
    assert bench.ask(f"SELECT count() FROM {bench.named()}") == [(70_000 * 40 + 1,)]


def test_rows_of_ranges_that_were_cut_otherwise_are_removed(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    bench.load([(10, "kept until its range is loaded"), (30, "old")], HIGH)
    bench.load([(31, "new")], KeyRange("integer", 30, 40))
    assert bench.rows() == [(10, "kept until its range is loaded"), (31, "new")]


@pytest.mark.parametrize("mode", [WriteMode.REPLACE, WriteMode.APPEND, WriteMode.UPSERT])
def test_retired_range(bench: Bench, mode: WriteMode) -> None:
    options = TargetOptions(mode=mode)
    bench.target.prepare(bench.plan, options)
    bench.load([(10, "old"), (25, "old")], HIGH, options)
    first, rest = KeyRange("integer", 10, 20), KeyRange("integer", 20, None)
    for _ in range(2):
        bench.target.retire(bench.plan, [HIGH], [first, rest], options)
    assert bench.rows() == [(10, "old"), (25, "old")]
    bench.load([(11, "new")], first, options)
    bench.load([(25, "new")], rest, options)
    expected = {
        WriteMode.REPLACE: [(11, "new"), (25, "new")],
        WriteMode.APPEND: [(10, "old"), (11, "new"), (25, "old")],
        WriteMode.UPSERT: [(10, "old"), (11, "new"), (25, "new")],
    }
    assert bench.rows() == expected[mode]


@pytest.mark.parametrize("mode", [WriteMode.REPLACE, WriteMode.APPEND, WriteMode.UPSERT])
def test_ranges_that_are_cut_otherwise_after_a_crash_hold_each_row_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, mode: WriteMode
) -> None:
    options = TargetOptions(mode=mode)
    bench.target.prepare(bench.plan, options)
    bench.load([(10, "old"), (25, "old"), (35, "old")], HIGH, options)
    first, rest = KeyRange("integer", 10, 20), KeyRange("integer", 20, None)
    bench.target.retire(bench.plan, [HIGH], [first, rest], options)

    class Crashed(Exception):
        pass

    def reached(point: str) -> None:
        if point == "before_strays":
            raise Crashed

    with monkeypatch.context() as patch:
        patch.setattr("tableferry.resources.crash_points.reached", reached)
        with pytest.raises(Crashed):
            bench.load([(25, "new"), (35, "old")], rest, options)
    assert {key for key, _ in bench.rows()} == {10, 25, 35}
    middle, last = KeyRange("integer", 20, 30), KeyRange("integer", 30, None)
    bench.target.retire(bench.plan, [rest], [middle, last], options)
    bench.load([(10, "old")], first, options)
    bench.load([(25, "new")], middle, options)
    bench.load([(35, "old")], last, options)
    kept = "old" if mode is WriteMode.APPEND else "new"
    assert bench.rows() == [(10, "old"), (25, kept), (35, "old")]


def test_swap_crashed_between_exchange_and_drop(bench: Bench) -> None:
    swap = TargetOptions(mode=WriteMode.SWAP)
    bench.target.prepare(bench.plan, swap)
    bench.load(OLD, options=swap)
    shadow = shadow_of(bench.table).name
    bench.client.command(f"EXCHANGE TABLES warehouse.{bench.table.name} AND warehouse.{shadow}")
    bench.target.promote(bench.plan, swap)  # must not exchange back
    assert bench.rows() == OLD

    bench.ask(f"ALTER TABLE {bench.named()} MODIFY COMMENT 'the team''s own'")
    comment = f"SELECT comment FROM system.tables WHERE name = '{bench.table.name}'"
    # the next run gathers nothing, or drops the outdated shadow for one recreated
    for drops in (lambda: bench.target.clean(bench.table), lambda: None):
        bench.target.prepare(bench.plan, swap)
        bench.client.command(f"EXCHANGE TABLES warehouse.{bench.table.name} AND warehouse.{shadow}")
        drops()
        bench.target.prepare(bench.plan, swap)
        assert bench.ask(comment) == [("the team's own",)]
    bench.load(ELSEWHERE, HIGH, swap)
    bench.target.promote(bench.plan, swap)
    bench.target.promote(bench.plan, swap)
    assert bench.rows() == [*OLD, *ELSEWHERE]


def test_who_has_prepared_another_shadow_publishes_nothing_in_the_new_one(bench: Bench) -> None:
    swap, other = TargetOptions(mode=WriteMode.SWAP), bench.at(bench.url)
    bench.target.prepare(bench.plan, swap)
    bench.load(OLD, options=swap)
    bench.ask(f"ALTER TABLE {bench.named()} MODIFY COMMENT 'altered'")
    other.prepare(bench.plan, swap)
    with pytest.raises(TargetMoved, match="into a new table"):
        bench.load(NEW, options=swap)
    assert bench.rows(shadow_of(bench.table)) == []


def test_columns_that_the_transfer_does_not_write_are_kept(bench: Bench) -> None:
    upsert = TargetOptions(mode=WriteMode.UPSERT)
    bench.target.prepare(bench.plan, upsert)
    bench.load(OLD, options=upsert)
    bench.client.command(f"ALTER TABLE warehouse.{bench.table.name} ADD COLUMN extra Int8")
    bench.client.command(
        f"ALTER TABLE warehouse.{bench.table.name} UPDATE extra = 7 WHERE 1",
        settings={"mutations_sync": 2},
    )
    (note,) = bench.target.prepare(bench.plan, upsert)
    assert "'extra'" in note
    bench.load(NEW, options=upsert)
    found = bench.client.query(f"SELECT id, extra FROM warehouse.{bench.table.name} ORDER BY id")
    assert found.result_rows == [(1, 7), (2, 0), (3, 7), (4, 0), (5, 0), (6, 0)]


def test_upsert_needs_the_key_in_the_primary_key(bench: Bench) -> None:
    with pytest.raises(InputError, match="needs a primary key"):
        bench.target.prepare(bench.make_plan(primary_key=()), TargetOptions(mode=WriteMode.UPSERT))
    with pytest.raises(InputError, match="'id' to be part of the primary key"):
        bench.target.prepare(
            bench.make_plan(primary_key=("note",)), TargetOptions(mode=WriteMode.UPSERT)
        )


@pytest.mark.parametrize("name", ["select", "with space", "quote`'\"\\", "Žluť.ý 😀"])
def test_any_name(ch_url: str, name: str) -> None:
    name = f"{name} {uuid.uuid4().hex[:8]}"
    with Bench(ch_url, name) as bench:
        bench.target.prepare(bench.plan, TargetOptions(mode=WriteMode.SWAP))
        bench.load(OLD, options=TargetOptions(mode=WriteMode.SWAP))
        bench.target.promote(bench.plan, TargetOptions(mode=WriteMode.SWAP))
        bench.load(NEW, text=True)
        assert bench.rows() == NEW


def test_rows_of_text_that_look_like_a_header_are_rows(bench: Bench) -> None:
    key, note = column("id", "String", pa.string(), False), bench.plan.columns[1]
    bench.plan = CopyPlan(bench.plan.source, bench.table, (key, note), key, ("id",))
    bench.target.prepare(bench.plan, TargetOptions())
    with bench.target.attempt(
        Publication(bench.plan, KeyRange("text"), "v", "run-1"), TargetOptions()
    ) as load:
        receipt = load.load_bytes(iter([b"id\tnote\nString\tNullable(String)\n"]))
        assert receipt.rows == load.staged_rows() == 2
        load.finalise()
    assert bench.rows() == [("String", "Nullable(String)"), ("id", "note")]


def test_five_hundred_columns(bench: Bench) -> None:
    key = bench.plan.key
    others = tuple(
        column(f"column number {number}", "String", pa.string(), True) for number in range(500)
    )
    bench.plan = CopyPlan(bench.plan.source, bench.table, (key, *others), key, ("id",))
    bench.target.prepare(bench.plan, TargetOptions())
    row = {"id": [1]} | {column.target.name: [column.target.name] for column in others}
    with bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), TargetOptions()) as load:
        load.load_arrow([pa.record_batch(row)])
        load.finalise()
    (found,) = bench.rows()
    assert list(found) == [1, *(column.target.name for column in others)]


def test_a_rejected_staging_table_goes_when_its_range_is_visible(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    for name in ("first", "second"):
        with bench.target.attempt(Publication(bench.plan, LOW, "v1", "run-1"), REPLACE) as load:
            load.load_arrow([batch([(1, name)])])
            load.audited_table()
            kept = load.keep_rejected()
        assert bench.rows(kept) == [(1, name)]
    bench.load(NEW)
    assert bench.rows() == NEW
    assert bench.left_over() == []


def test_the_staging_table_has_all_that_the_target_has(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    for change in (
        "MODIFY COMMENT 'of\n    `_range` UInt64 MATERIALIZED 0\n''the'' shop'",
        "ADD INDEX small note TYPE bloom_filter GRANULARITY 1",
        "ADD PROJECTION sums (SELECT note, count() GROUP BY note)",
        "MODIFY COLUMN note CODEC(ZSTD(3))",
        "MODIFY SETTING min_bytes_for_wide_part = 0",
    ):
        bench.target.resource.execute(
            f"ALTER TABLE {bench.table.schema}.{bench.table.name} {change}"
        )
    bench.load(NEW)
    assert bench.rows() == NEW


def test_a_table_that_is_altered_between_two_attempts_is_read_again(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    table = f"{bench.table.schema}.{bench.table.name}"
    bench.target.resource.execute(f"ALTER TABLE {table} ADD COLUMN more Int8 DEFAULT 7")
    with pytest.raises(StatementFailed):
        bench.load(NEW)
    bench.load(NEW)
    assert bench.rows() == [(*row, 7) for row in NEW]


def published_by(bench: Bench, home: str, own: KeyRange) -> dict[str, object]:
    """What an attempt of a home goes by that cuts the keys its own way."""
    known = bench.target.published(bench.plan, REPLACE)
    return {"home": home, "known": replace(known, transfer_ranges=frozenset([own.name]))}


@pytest.mark.invariant("I8")
@pytest.mark.parametrize("pauses", [None, "after_marker", "inside_finalise"])
def test_two_homes_that_cut_otherwise_never_remove_each_others_rows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, pauses: str | None
) -> None:
    """Both have planned before either published: at most one gets through, with all of its rows."""
    bench.target.prepare(bench.plan, REPLACE)
    one, other = KeyRange("integer", None, 10), KeyRange("integer", 5, 20)
    rows: list[list[Row]] = [[(n, "one") for n in range(10)], [(n, "two") for n in range(5, 20)]]
    plans = [published_by(bench, home, own) for home, own in (("h1", one), ("h2", other))]
    failed: list[TargetMoved] = []

    def attempt(number: int, key_range: KeyRange) -> None:
        publication = Publication(
            bench.plan, key_range, f"v{number}", f"run-{number}", **plans[number]
        )
        with bench.target.attempt(publication, REPLACE) as load:
            load.load_arrow([batch(rows[number])])
            try:
                load.finalise()
            except TargetMoved as error:
                failed.append(error)

    meanwhile = [lambda: attempt(1, other)]

    def reached(point: str) -> None:
        if point == pauses and meanwhile:
            meanwhile.pop()()

    monkeypatch.setattr("tableferry.resources.crash_points.reached", reached)
    attempt(0, one)
    while meanwhile:
        meanwhile.pop()()
    assert failed, "they cannot both stand"
    found = bench.rows()
    assert found in (rows[0], rows[1], []), "nothing is doubled, and what stands is whole"
    markers = bench.target.published(bench.plan, REPLACE).of_target
    assert len(markers) == 2 - len(failed) and bool(found) == bool(markers)


@pytest.mark.invariant("I9")
@pytest.mark.parametrize("point", ["after_marker", "inside_finalise"])
def test_a_marker_without_its_rows_is_one_that_no_event_log_has(bench: Bench, point: str) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    ((before, marker),) = bench.target.published(bench.plan, REPLACE).of_target.items()
    assert (before, marker.version) == (LOW.name, "v1")

    def work() -> None:
        with bench.target.attempt(Publication(bench.plan, LOW, "v2", "dead"), REPLACE) as load:
            load.load_arrow([batch(NEW)])
            load.finalise()

    bench.in_process_that_dies(point, work)
    assert bench.rows() == OLD
    marker = bench.target.published(bench.plan, REPLACE).of_target[LOW.name]
    assert marker.announced and marker.version.endswith("v2")


@pytest.mark.invariant("I8")
def test_who_goes_by_an_older_marker_publishes_nothing(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    known = bench.target.published(bench.plan, REPLACE)
    bench.load(NEW, owner="run-2")
    with (
        bench.target.attempt(
            Publication(bench.plan, LOW, "v0", "run-1", known=known), REPLACE
        ) as load,
        pytest.raises(TargetMoved),
    ):
        load.load_arrow([batch(OLD)])
        load.finalise()
    with (
        pytest.raises(TargetMoved),
        bench.target.marking(Publication(bench.plan, LOW, "v0", "run-1", known=known), REPLACE),
    ):
        pass
    assert bench.rows() == NEW
    assert bench.target.published(bench.plan, REPLACE).of_target[LOW.name].owner == "run-2"
    bench.target.retire(bench.plan, [LOW], [], REPLACE)
    assert bench.target.published(bench.plan, REPLACE).of_target == {}


def test_replaced_markers_are_removed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tableferry.resources.clickhouse.markers.MOST_REPLACED", 1)
    bench.target.prepare(bench.plan, REPLACE)
    for rows in (OLD, NEW, OLD):
        bench.load(rows)
    rows = f"SELECT count() FROM warehouse.{MARKERS} WHERE `table` = '{bench.table.name}'"
    assert bench.client.query(rows).result_rows == [(7,)], "two of each load, and the claim"
    before = bench.target.published(bench.plan, REPLACE)
    bench.target.prepare(bench.plan, REPLACE)
    assert bench.client.query(rows).result_rows == [(2,)]
    # as a restart of an older server may bring parts back
    own = f"SELECT * FROM warehouse.{MARKERS} WHERE `table` = '{bench.table.name}'"
    bench.ask(f"INSERT INTO warehouse.{MARKERS} {own}")
    bench.target.prepare(bench.plan, REPLACE)
    assert bench.client.query(rows).result_rows == [(4,)]
    assert bench.target.published(bench.plan, REPLACE) == before


def test_a_run_goes_on_whose_markers_were_removed(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    removing = (
        f"ALTER TABLE warehouse.{MARKERS} DELETE WHERE `table` = '{bench.table.name}' "
        "SETTINGS mutations_sync = 2"
    )
    publication = Publication(bench.plan, LOW, "v1", "run-1")
    with bench.target.attempt(publication, REPLACE) as load:
        load.load_arrow([batch(OLD)])
        bench.ask(removing)
        with pytest.raises(TargetMoved, match="its markers were removed while a run wrote to it"):
            load.finalise()
    assert bench.rows() == []
    bench.load(OLD)
    assert bench.rows() == OLD
    claims = f"SELECT count() FROM warehouse.{MARKERS} WHERE `table` = '{bench.table.name}'"
    assert bench.client.query(f"{claims} AND `range` = ''").result_rows == [(1,)]


@pytest.mark.parametrize("losses", [1, ATTEMPTS])
def test_a_claim_that_gets_lost_is_made_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, losses: int
) -> None:
    execute, lost = ClickHouseServer.execute, 0

    def loses(server: ClickHouseServer, sql: str, *given: Any) -> None:
        nonlocal lost
        execute(server, sql, *given)
        if "HAVING argMax(token" in sql and lost < losses:
            lost += 1
            claims = f"`table` = '{bench.table.name}' SETTINGS mutations_sync = 2"
            bench.ask(f"ALTER TABLE warehouse.{MARKERS} DELETE WHERE {claims}")

    monkeypatch.setattr(ClickHouseServer, "execute", loses)
    monkeypatch.setattr("tableferry.resources.connecting.retry.FIRST_SECONDS", 0.01)
    if losses == ATTEMPTS:
        with pytest.raises(StatementFailed, match="lacks the row that was just") as caught:
            bench.target.prepare(bench.plan, REPLACE)
        assert caught.value.transient
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    assert bench.rows() == OLD


@pytest.mark.invariant("I1")
@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.UPSERT])
def test_rows_that_a_restart_has_brought_back_are_kept_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, mode: WriteMode
) -> None:
    """Before 26.6 a server shows replaced rows again that a run has not let go before both died."""
    monkeypatch.setattr(replaced, "COVERED_SINCE", (99, 0))
    options, table, before = bench.options(mode), bench.named(), bench.named(f"{bench.table.name}_")
    bench.target.prepare(bench.plan, options)
    bench.load(OLD, options=options)
    bench.ask(f"CREATE TABLE {before} AS {table}")
    bench.ask(f"ALTER TABLE {before} ATTACH {partition(LOW)} FROM {table}")

    def die(point: str) -> None:
        if point == "after_replace":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(crash_points, "reached", die)
        bench.load(NEW, options=options)
    bench.ask(f"ALTER TABLE {table} ATTACH {partition(LOW)} FROM {before}")
    assert len(bench.rows()) == len(OLD) + len(AFTER[mode])
    bench.load(NEW, options=options)
    assert sorted(bench.rows(), key=itemgetter(0)) == sorted(AFTER[mode], key=itemgetter(0))
