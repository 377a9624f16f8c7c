"""What many tables cost: a table of it, and how it grows with their number."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry_bench import charts
from tableferry_bench.charts import number_text
from tableferry_bench.contenders.fleet import FLEET
from tableferry_bench.results import Case, Result
from tableferry_bench.section import Chart, Section
from tableferry_bench.statistics import growth

MOST_GROWTH = 1.1
"""The goal for the exponent."""

COSTS = {
    "cpu_client": "client CPU s",
    "cpu_servers": "server CPU s",
    "peak_rss_mb": "peak MB",
}
"""The figures whose growth is fitted."""

LEAST_COST = 1.0
"""The seconds or MB below which a cost is too small for its growth to be told from noise."""


def is_fleet(case: Case) -> bool:
    """Whether a case is about many tables."""
    return case.contender.startswith(FLEET)


def fleet_sections(result: Result) -> list[Section]:
    """Describe the costs of many tables, and their growth; nothing if none were measured."""
    cases = [case for case in result.cases if is_fleet(case)]
    if not cases:
        return []
    by_name: dict[str, list[Case]] = {}
    for case in cases:
        by_name.setdefault(case.contender, []).append(case)
    sorted_cases = [
        case
        for same in by_name.values()
        for case in sorted(same, key=lambda case: case.rows)
        if case.runs
    ]
    problems = [f"{case.name} FAILED: {case.failed}" for case in cases if case.failed]
    problems += [f"{case.name} was left out: {case.skipped}" for case in cases if case.skipped]
    costs = _costs(sorted_cases, problems, int(result.machine["cores"]))
    return [costs, *_growth(by_name)]


def _costs(cases: Sequence[Case], problems: Sequence[str], cores: int) -> Section:
    rows = []
    for case in cases:
        seconds = case.summary("seconds")
        figures = [
            f"{case.rows:,}",
            *(_median(case, metric) for metric in ("cpu_client", "cpu_servers")),
            number_text(seconds.median) if seconds else "",
            f"{number_text(seconds.least)} to {number_text(seconds.most)}" if seconds else "",
            _by_work(case, cores),
            _median(case, "peak_rss_mb"),
        ]
        rows.append((case.contender.removeprefix(FLEET), case.proves, case.route, *figures))
    columns = (
        *("measurement", "of", "route", "number", "client CPU s", "server CPU s"),
        *("seconds", "least to most", "by its work", "peak MB"),
    )
    remarks = (
        "CPU seconds are what to go by: seconds by the clock grow with whatever else the machine "
        "does. `number` is of transfers, of tables, or of the rows of the one table; `by its work` "
        "is seconds by CPU seconds per core.",
        *problems,
    )
    return Section("Costs", columns, tuple(rows), remarks, words=3)


def _growth(by_name: dict[str, list[Case]]) -> list[Section]:
    rows = []
    series: dict[str, list[tuple[float, float]]] = {}
    for name, cases in by_name.items():
        for metric, unit in COSTS.items():
            if metric == "cpu_servers" and "->" not in cases[0].route:
                continue
            points = {case.rows: value for case in cases if (value := _value(case, metric))}
            exponent = growth(points)
            if exponent is None or max(points.values()) < LEAST_COST:
                continue
            outcome = "passed" if exponent <= MOST_GROWTH else "failed"
            sizes = ", ".join(f"{size:,}" for size in sorted(points))
            limit = f"at most {MOST_GROWTH:g}"
            rows.append((name.removeprefix(FLEET), unit, sizes, limit, outcome, f"{exponent:.2f}"))
            if metric == "cpu_client":
                series[name.removeprefix(FLEET)] = sorted(points.items())
    if not rows:
        return []
    remark = (
        "Fitted by least squares on the logarithms of what each number costs beyond what 1 costs: "
        "with exponent 1, twice as many cost twice as much."
    )
    columns = ("measurement", "figure", "numbers", "goal", "outcome", "exponent")
    svg = charts.lines("Growth with the number of transfers", "number", "client CPU s", series)
    chart = Chart("fleet-growth", svg)
    return [Section("Growth", columns, tuple(rows), (remark,), chart, words=5)]


def _by_work(case: Case, cores: int) -> str:
    """Format the time by the clock, divided by what it would be if no core were ever idle."""
    seconds, client, servers = (
        _value(case, metric) for metric in ("seconds", "cpu_client", "cpu_servers")
    )
    if not seconds or not client or servers is None or "->" not in case.route:
        return ""
    return f"{seconds * cores / (client + servers):.2f}"


def _value(case: Case, metric: str) -> float | None:
    found = case.summary(metric)
    return None if found is None else found.median


def _median(case: Case, metric: str) -> str:
    value = _value(case, metric)
    return "" if value is None else number_text(value)
