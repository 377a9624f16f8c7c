"""Renders docs/performance.md, and its charts, from results of `ferry bench`.

`python -m docs.tools.performance_page` does it from those in docs/performance/. To measure anew,
put the `result.json` of `ferry bench run`, `lab`, `staging` and `tune` there under these names, and
that of `ferry bench run --suite fleet-long` as `fleet`.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

from tableferry_bench.advice import shares
from tableferry_bench.certification import Finding, certify, read_thresholds
from tableferry_bench.charts import number_text
from tableferry_bench.report import part_markdown
from tableferry_bench.results import Case, Result
from tableferry_bench.section import Section
from tableferry_bench.sections import sections
from tableferry_bench.suite import contenders
from tableferry_bench.workloads import WORKLOADS

DOCS = Path(__file__).resolve().parents[1]
PAGE, CHARTS, RESULTS = DOCS / "performance.md", DOCS / "images" / "performance", "performance"
NAMES = ("run", "fleet", "lab", "staging", "tune")

CORES = 2
"""The cores of the machine that `run` was measured on."""
BARE = {
    "ferry": "psql-curl",
    "ferry-count": "psql-curl",
    "ferry-postgres": "psql-psql",
    "ferry-parquet": "curl-parquet",
}
"""By contender, the bare pipe on its route."""

HEAD = """\
# Performance

Made by `python -m docs.tools.performance_page` from the results in `docs/performance/`, which
`ferry bench` (`bench/README.md`) measured. Measure on your own servers before you rely on it.

**How to read it.** Client and servers share the two cores of one machine. *Moving* was measured
while nothing else ran there; the other sections beside other work, so that their seconds are far
worse than on an idle machine, and drift from row to row. What counts are *ratios of one round* and,
of many tables, *CPU seconds*. SQL
Server is the [stand-in](standin.md), whose speed says nothing about SQL Server's. {runs} runs of
each tell no small differences.
"""

PARTS = """\
CPU seconds of the parts, for a million wide rows, each measured by itself; the shares are what
counts. Start and client are shares of a profile. What ClickHouse does is known in
sum, and shared out by estimate; PostgreSQL's digest of a target is taken to cost what that of a
source does. The digests are the proof.

| route | start | client | source sends | target takes | source's digest | target's digest |
|---|---:|---:|---:|---:|---:|---:|
| PostgreSQL -> PostgreSQL | 1.1 | 0.7 | 0.8 | 1.5 | 0.75 | 0.75 |
| PostgreSQL -> ClickHouse | 1.1 | 1.1 | 0.8 | 1.2 | 1.3 | 0.3 |
| Parquet -> ClickHouse | 1.1 | 1.2 |  | 1.5 | 1.5 | 0.3 |

- **PostgreSQL -> PostgreSQL.** Of what the target takes 0.55 is its primary key. Made after the
  load it would take 0.25, but by it a range is found before it is visible. Of each digest, 0.2 sees
  what PostgreSQL's own hash of a record would miss.
- **PostgreSQL -> ClickHouse.** Of the source's digest 1.1 writes the values as text and joins
  them, 0.15 is MD5; before PostgreSQL 18, which casts bytes to a number, it is 0.35 more. ADBC is
  0.75 of the client; the functions of its wheel are not inlined. Of the start half is `import
  dagster`; what PostgreSQL takes meanwhile is a tenth of a second to find where to cut the ranges.
- **Parquet -> ClickHouse.** The start alone is longer than the goal allows. Of DuckDB's digest 0.16
  is reading the file, which is all that reading it once instead of twice would save. ClickHouse
  would digest the file for less, but would then be held against itself.
- **Both hops.** One run takes 45 CPU seconds, 37 of them the servers' and most of those the
  stand-in's, so that two cores need 22.6 seconds: at most 1.35 of two runs apart.
- **pandas.** The bare pipe is six times as fast as pandas, and proves nothing.
"""


def load() -> dict[str, Result]:
    """The results, by name."""
    return {name: Result.read(DOCS / RESULTS / f"{name}.json") for name in NAMES}


def render(results: dict[str, Result]) -> tuple[str, dict[str, str]]:
    """The page, and its charts by the names of their files."""
    run = results["run"]
    parts = [
        HEAD.format(runs=run.settings["runs"]),
        part_markdown(_held(run, results["fleet"])),
        part_markdown(_limits(run)),
        PARTS,
    ]
    charts: dict[str, str] = {}
    titles = {
        "run": "Moving",
        "fleet": "Many tables",
        "tune": "Settings",
        "lab": "Reading PostgreSQL",
        "staging": "Filling ClickHouse",
    }
    notes = (*run.notes, *_not_measured(run, results["fleet"]))
    shown = results | {"run": replace(run, notes=notes)}
    for name, title in titles.items():
        parts.append(f"## {title}\n")
        for one in sections(shown[name]):
            parts.append(part_markdown(one, f"images/{RESULTS}", level=3))
            if one.chart:
                charts[f"{one.chart.name}.svg"] = one.chart.svg
    return "\n".join(parts).rstrip("\n") + "\n", charts


def _held(*results: Result) -> Section:
    thresholds = read_thresholds(None)
    verdicts = [certify(result, thresholds).findings for result in results]
    rows = []
    for threshold, *findings in zip(thresholds.thresholds, *verdicts, strict=True):
        finding = next((one for one in findings if one.outcome != "elsewhere"), findings[0])
        of = threshold.of
        cases = [result.find(of.workload, of.rows, of.contender) for result in results]
        case = next(filter(None, cases), None)
        parts = sorted((shares(case) if case else {}).items(), key=lambda one: -one[1])
        went = ", ".join(f"{phase} {part:.0%}" for phase, part in parts if part >= 0.05)
        outcome = "not measured" if finding.outcome == "elsewhere" else finding.outcome
        rows.append((finding.name, finding.limit, _measured(finding), outcome, went))
    columns = ("what", "goal", "measured: median (least to most)", "outcome", "where its time went")
    remark = (
        "`start` is the start of the process and planning, "
        "`fingerprint` the one look at the source; the time of the ranges is shared out by how "
        "long their phases took in sum."
    )
    return Section("What it is held to", columns, tuple(rows), (remark,), words=5)


def _limits(run: Result) -> Section:
    rows = []
    for case in run.cases:
        bare = BARE.get(case.contender)
        other = bare and run.find(case.workload, case.rows, bare)
        if not other or not other.runs:
            continue
        start, seconds = _median(case, "phase_start"), _median(case, "seconds")
        cpu = _median(case, "cpu_client") + _median(case, "cpu_servers")
        least, pipe = max(start, cpu / CORES), _median(other, "seconds")
        figures = (cpu, start, least, seconds, pipe, pipe / least, pipe / seconds)
        name = f"{case.contender}, {case.workload}, {case.rows:,} rows"
        rows.append((name, *(number_text(one) for one in figures)))
    columns = (
        "contender", "CPU s", "start s", "least s", "seconds", "bare pipe, seconds",
        "by the bare pipe at most", "by the bare pipe",
    )  # fmt: skip
    remark = (
        "`least` is half of the CPU seconds of client and servers: less is not to be had of two "
        "cores. While the client starts, only the digest of a source can use the other one."
    )
    return Section("What limits each row", columns, tuple(rows), (remark,))


def _not_measured(*results: Result) -> list[str]:
    """What `ferry bench` knows and the results have no run of."""
    there = [case for result in results for case in result.cases if case.runs]
    kinds = {
        "Contenders": set(contenders()) - {case.contender for case in there},
        "Tables": set(WORKLOADS) - {case.workload for case in there},
    }
    return [
        f"{kind} that were not measured: {', '.join(sorted(names))}."
        for kind, names in kinds.items()
        if names
    ]


def _median(case: Case, metric: str) -> float:
    return statistics.median(case.figures(metric).values())


def _measured(finding: Finding) -> str:
    if finding.value is None or finding.least is None or finding.most is None:
        return ""
    least, most = number_text(finding.least), number_text(finding.most)
    return f"{number_text(finding.value)} ({least} to {most})"


def main() -> None:
    """Write page and charts."""
    page, charts = render(load())
    PAGE.write_text(page, encoding="utf-8")
    CHARTS.mkdir(parents=True, exist_ok=True)
    for old in CHARTS.glob("*.svg"):
        old.unlink()
    for name, svg in charts.items():
        (CHARTS / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
