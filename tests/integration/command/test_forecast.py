"""A plan says what a run takes, the run keeps what it took, and the report compares them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from tableferry.assets.log.forecasts import Forecast, own_runs
from tableferry.assets.log.run_tags import forecast_tag
from tableferry.pipelines.cli import main
from tableferry.pipelines.reporting.collect import report
from tableferry.pipelines.reporting.html import render
from tests.integration.conftest import Ferry

pytestmark = pytest.mark.integration
SCHEMA = Path(__file__).parents[3] / "docs" / "report.schema.json"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
    "INSERT INTO {t} SELECT g, md5(g::text) FROM generate_series(1, 2700) g",
)
# ranges of so few rows move whole, whatever changed
CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"


def kept(ferry: Ferry, run_id: str) -> Forecast | None:
    run = ferry.session.instance.get_run_by_id(run_id)
    assert run is not None
    return Forecast.parse(run.tags.get(forecast_tag(ferry.table), ""))


def test_a_chain_is_forecast_moved_and_scored(ferry: Callable[..., Ferry]) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 900}")
    plan = one.plan()
    assert plan.forecast is not None and "nothing has run here yet" in plan.forecast.basis
    assert plan.forecast.rows == 5400, "each row takes two hops"
    sampled = plan.forecast.bytes
    assert sampled is not None and 5400 * 32 < sampled < 5400 * 100, "by a sample of its rows"
    servers, parts = zip(*((room.target, room.parts) for room in plan.room), strict=True)
    assert servers == (f"sqlserver://dbo.{one.table}", f"clickhouse://warehouse.{one.table}")
    assert parts == (None, 3), "a part for each range that has rows"

    (run_id,) = one.run().run_ids
    first = kept(one, run_id)
    assert first is not None and first.took is not None and first.took > 0
    assert first.rows_moved == first.rows == 5400
    assert 5400 * 32 < first.bytes_moved < 5400 * 100
    assert one.plan().forecast is None, "there is nothing to do"
    assert one.plan().json()["forecast"] is None

    one.source("UPDATE {t} SET name = 'new' WHERE id <= 900")
    again = one.plan()
    assert again.forecast is not None and again.forecast.basis == "by its last 1 run"
    assert again.forecast.rows == 1800
    assert again.forecast.bytes == int(1800 * first.bytes_moved / first.rows_moved)
    (room,) = (room for room in again.room if room.parts)
    assert room.parts == 1 and room.written > 0
    assert again.json()["forecast"]["room"][1]["parts"] == 1
    shown = CliRunner().invoke(main, ["plan", one.table], catch_exceptions=False).stdout
    assert "forecast: a run takes about" in shown and "in 1 part;" in shown

    assert one.run().good
    evidence = report(one.session, one.table)
    assert evidence.forecast_error is not None
    document = json.loads(render(evidence, "json"))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert all(run["seconds"] and run["expected_seconds"] for run in document["runs"])
    assert "Forecasts of the last runs were off by" in render(evidence, "md")
    assert "expected</span>" in render(evidence, "html")


def test_a_run_that_fails_is_not_scored(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *TABLE, ranges="{rows: 900}")
    one.source("ALTER TABLE {t} ADD day date", "UPDATE {t} SET day = 'infinity' WHERE id = 1000")
    view = one.run()
    assert not view.good and one.moved(view), "one range cannot be moved"
    scores = [kept(one, run_id) for run_id in view.run_ids]
    assert all(score is None or score.took is None for score in scores)
    assert own_runs(one.session.instance, one.table) == []
    assert report(one.session, one.table).forecast_error is None


def test_rows_that_differ_are_not_counted_as_moved_whole(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['postgres://public.{t}_copy']", *TABLE, ranges="{rows: 900}", delta="always")
    assert one.run().good
    one.source("UPDATE {t} SET name = 'new' WHERE id = 1")
    plan = one.plan()
    assert plan.forecast is not None and plan.forecast.rows == 0 and plan.room == []
    (run_id,) = one.run().run_ids
    delta = kept(one, run_id)
    assert delta is not None and delta.took and delta.rows_moved == 1


def test_a_run_from_the_web_ui_is_scored_as_well(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *TABLE, ranges="{rows: 900}")
    launched = one.launch()
    assert launched.success
    score = kept(one, launched.run_id)
    assert score is not None and score.took and score.rows_moved == 2700


def test_a_table_with_a_value_that_a_run_refuses_is_planned_all_the_same(
    ferry: Callable[..., Ferry],
) -> None:
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id integer PRIMARY KEY, day date)",
        "INSERT INTO {t} VALUES (1, '2024-01-01'), (2, 'infinity')",
    )
    plan = one.plan()
    assert plan.forecast is not None and plan.forecast.rows == 2
