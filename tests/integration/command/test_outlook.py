"""A plan says what is known of a run: rows, room, and how long the last runs took."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner

from tableferry.assets.log.runs import seconds_of_last_runs, seconds_of_moves
from tableferry.assets.planning import room
from tableferry.assets.running import execute
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner, running
from tests.integration.conftest import Ferry

pytestmark = pytest.mark.integration
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
    "INSERT INTO {t} SELECT g, md5(g::text) FROM generate_series(1, 2700) g",
)
# ranges of so few rows move whole, whatever changed
CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
DIRECT = "['clickhouse://warehouse.{t}']"


def test_rows_room_and_the_last_runs_of_a_chain(ferry: Callable[..., Ferry]) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 900}")
    ahead = one.plan().outlook
    assert ahead is not None and ahead.rows == 5400, "each row takes two hops"
    assert ahead.bytes is not None and 5400 * 32 < ahead.bytes < 5400 * 100, "by a sample"
    assert not ahead.last_seconds, "none has run"
    servers, parts = zip(*((room.target, room.parts) for room in ahead.room), strict=True)
    assert servers == (f"sqlserver://dbo.{one.table}", f"clickhouse://warehouse.{one.table}")
    assert parts == (None, 3), "a part for each range that has rows"

    assert one.run().good
    assert one.plan().outlook is None, "there is nothing to do"
    assert one.plan().json()["outlook"] is None

    one.source("UPDATE {t} SET name = 'new' WHERE id <= 900")
    again = one.plan()
    assert again.outlook is not None and again.outlook.rows == 1800
    assert len(again.outlook.last_seconds) == 1 and again.outlook.last_seconds[0] > 0
    assert again.json()["outlook"]["room"][1]["parts"] == 1
    shown = CliRunner().invoke(main, ["plan", one.table], catch_exceptions=False).stdout
    assert "outlook: 1,800 rows to move, " in shown and "in 1 part;" in shown
    assert "outlook: the last 1 run took " in shown


def test_only_runs_that_moved_and_succeeded_are_told(ferry: Callable[..., Ferry]) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 900}")
    transfer, log = one.session.transfer(one.table), one.session.instance
    assert one.launch().success, "as from the web UI"
    assert runner.check(one.session, one.table).good
    one.source("ALTER TABLE {t} ADD day date", "UPDATE {t} SET day = 'infinity' WHERE id = 1000")
    assert not one.run().good
    assert len(seconds_of_moves(log, transfer)) == 1


def test_a_clock_that_was_set_back_is_no_time(ferry: Callable[..., Ferry]) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 900}")
    (run_id,) = one.run().run_ids
    transfer, log = one.session.transfer(one.table), one.session.instance
    with log.run_storage.connect() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql(
            f"UPDATE runs SET end_time = start_time - 3600 WHERE run_id = '{run_id}'"
        )
    assert seconds_of_moves(log, transfer) == [0.0]
    assert seconds_of_last_runs(log, {one.table: transfer.hops[-1].to}) == {one.table: 0.0}


def test_rows_that_differ_are_not_counted_as_moved_whole(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['postgres://public.{t}_copy']", *TABLE, ranges="{rows: 900}", delta="always")
    assert one.run().good
    one.source("UPDATE {t} SET name = 'new' WHERE id = 1")
    ahead = one.plan().outlook
    assert ahead is not None and ahead.rows == 0 and not ahead.room


def test_a_table_with_a_value_that_a_run_refuses_is_planned_all_the_same(
    ferry: Callable[..., Ferry],
) -> None:
    one = ferry(
        DIRECT,
        "CREATE TABLE {t} (id integer PRIMARY KEY, day date)",
        "INSERT INTO {t} VALUES (1, '2024-01-01'), (2, 'infinity')",
    )
    ahead = one.plan().outlook
    assert ahead is not None and ahead.rows == 2


def test_what_only_informs_stops_neither_plan_nor_run(
    ferry: Callable[..., Ferry], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        return 1 // 0

    one = ferry(DIRECT, *TABLE, ranges="{rows: 900}")
    for module, name in (
        (room, "_sampled_row_bytes"),
        (runner, "order_notes"),
        (running, "_adoptable"),
        (execute, "_source_regressed"),
    ):
        monkeypatch.setattr(module, name, fails)
    plan = one.plan()
    assert {range_.state for range_ in plan.ranges} == {"run"} and not plan.errors
    unknown = [note for note in plan.notes if "is not known: ZeroDivisionError" in note]
    assert [note.partition(" is not")[0] for note in unknown] == [
        *("how tables are kept", "what a run takes")
    ]
    view = one.run()
    assert view.good, view.errors
    unknown = [note for note in view.notes if "is not known: ZeroDivisionError" in note]
    assert [note.partition(" is not")[0] for note in unknown] == [
        *("whether rows can be adopted", "whether the source went back")
    ]
