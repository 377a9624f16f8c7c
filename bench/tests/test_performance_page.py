"""docs/performance.md says what was measured."""

from __future__ import annotations

from docs.tools import performance_page


def test_the_page_is_what_the_results_give() -> None:
    page, charts = performance_page.render(performance_page.load())
    assert performance_page.PAGE.read_text() == page, "run: python -m docs.tools.performance_page"
    there = {path.name: path.read_text() for path in performance_page.CHARTS.glob("*.svg")}
    assert there == charts
