"""docs/performance.md says what was measured."""

from __future__ import annotations

from dataclasses import replace

from bench.tests.samples import case
from docs.tools import performance_page


def test_the_page_is_what_the_results_give() -> None:
    page, charts = performance_page.render(performance_page.load())
    assert performance_page.PAGE.read_text() == page, "run: python -m docs.tools.performance_page"
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


def _after(page: str, words: str) -> str:
    return page.partition(words)[2].partition("\n")[0]
