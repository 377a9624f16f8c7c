"""The guide's page of performance, and its figures, say what was measured."""

from __future__ import annotations

from dataclasses import replace

from bench.tests.samples import case, result
from docs.tools import performance_page


def test_the_page_is_what_the_results_give() -> None:
    results = performance_page.load()
    page, charts = performance_page.render(results)
    again = "run: python -m docs.tools.performance_page"
    assert performance_page.PAGE.read_text() == page, again
    assert performance_page.GUIDE.read_text() == performance_page.guide(results), again
    there = {path.name: path.read_text() for path in performance_page.CHARTS.glob("*.svg")}
    assert there == charts


def test_the_page_tells_what_no_result_has() -> None:
    results = performance_page.load()
    run = results["run"]
    without = tuple(one for one in run.cases if one.contender != "dlt")
    page, _ = performance_page.render(results | {"run": replace(run, cases=without)})
    assert "dlt" in _after(page, "Contenders that were not measured: ")
    dlt = case("dlt", [3.0], rows=1_000_000, options={"by": "HTTP"})
    page, _ = performance_page.render(results | {"run": replace(run, cases=(*without, dlt))})
    assert "dlt" not in _after(page, "Contenders that were not measured: ")
    assert "| dlt, by HTTP | " in page


def test_the_goals_for_many_tables_are_held_against_what_was_measured_of_them() -> None:
    fleet = result(case("fleet-definitions", [12.0], 1000, "transfers"), suite="fleet")
    page, _ = performance_page.render(performance_page.load() | {"fleet": fleet})
    goal = _after(page, "definitions of 1,000 two-hop transfers with schedules, CPU seconds |")
    assert goal.split(" | ")[:3] == [" at most 10", "6.00 (6.00 to 6.00)", "passed"]
    assert _after(page, "1 M wide rows, checksum, against one bare pipe |").count("passed") == 1
    assert "fleet-definitions" not in _after(page, "Contenders that were not measured: ")


def _after(page: str, words: str) -> str:
    return page.partition(words)[2].partition("\n")[0]
