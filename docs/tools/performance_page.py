"""Renders the guide's page of performance, its figures and charts from results of `ferry bench`.

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
GUIDE, PAGE = DOCS / "performance.md", DOCS / "contributing" / "performance-figures.md"
CHARTS, RESULTS = DOCS / "images" / "performance", "performance"
NAMES = ("run", "chain", "fleet", "lab", "staging", "tune")

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
# Performance: the figures

This page is the appendix of [Performance](../performance.md). `python -m docs.tools.performance_page` makes both
pages from the results in `docs/performance/`, which `ferry bench` (`bench/README.md`) measured.

**How to read it.** Client and servers share the two cores of one machine. *Moving* was measured while nothing else
ran there, as was *Through all three systems*; the other sections while other work ran, so that their seconds are far
worse than on an idle machine.
Compare *ratios of one round*, and for many tables *CPU seconds*. Each section has its date; later changes of
Tableferry are not in it. SQL Server is the [stand-in](standin.md), whose speed says nothing about SQL Server's.
{runs} runs of each cannot show small differences.
"""  # noqa: E501

GIVEN_UP = """\
**Goals that were given up**, because nothing could reach them, or nobody knows why they were missed:

| goal | why it was wrong | measured |
|---|---|---|
| 1 M wide rows, checksum, ten times as fast as pandas | the bare pipe, which proves nothing, is six times as fast as pandas | 2.36 |
| 1 M wide rows, Parquet to ClickHouse, checksum, 0.5 of `curl` of the files | it allows 1.03 s, and the start of the process takes 1.18 s | 0.151 |
| 1 M wide rows, count, 0.65 of one bare pipe | the start is nearly half of so few rows | 0.528 |
| 1 M wide rows, PostgreSQL to PostgreSQL, checksum, 0.6 of `COPY \\| COPY` | two cores allow 0.571 with the CPU time that it takes | 0.461 |
| 100 tables of 200 rows, two hops, first time, in 25 s | it takes 84 CPU seconds, at least 42 s on two cores | 163 s |
| `ferry dev` with 1,000 transfers, 9 CPU seconds in three minutes | the cause was not looked for | 15.9 s |
"""  # noqa: E501

REASONS = {
    "both hops in one run, against one after the other": (
        "Two cores allow 1.35 with the CPU time that it takes, most of which is the stand-in's"
    ),
    "100 tables of 200 rows, two hops, nothing to do, seconds": (
        "It takes 4.1 CPU seconds, at least 2.1 seconds on two cores. Other work ran meanwhile; "
        "an idle machine was not tried"
    ),
}
"""Why goals were missed, by their names."""

GROWTH = """\
The servers' CPU time of a first load misses its goal. It was measured once per number, while other work ran, and the
cause is not known.
"""  # noqa: E501

COMPARED = """\
## ferry compare and reladiff

`python -m tableferry_bench.compared` compared tables of 15 columns with reladiff 0.6.0, once each, on a machine of
two cores that was busy otherwise: seconds, and MB of the client. Compare figures of one line only. An empty cell was
not measured, or does not exist: reladiff's join runs in PostgreSQL, where both tables are on one server.

| rows, of which differ | `ferry compare` | reladiff | reladiff, 4 threads | reladiff, a join |
|---|---:|---:|---:|---:|
| PostgreSQL, 1 M: 0 | 2.8, 142 | 6.6, 35 | 6.6, 37 | 5.2, 37 |
| 10 | 3.2, 204 | 15, 40 | 9.3, 42 | 4.6, 37 |
| 10,000 | 6.1, 215 | 73, 68 | 37, 78 | 4.7, 64 |
| PostgreSQL, 10 M: 0 | 24, 142 | | 70, 37 | 59, 37 |
| 10 | 28, 205 | | 80, 76 | 63, 37 |
| 10,000 | 59, 231 | | 335, 199 | 93, 63 |
| PostgreSQL and ClickHouse, 1 M: 0 | 5.7, 148 | 10, 65 | 3.9, 70 | |
| 10 | 3.5, 208 | 12, 69 | 9.4, 74 | |
| 10,000 | 6.7, 215 | 52, 94 | 44, 106 | |
| PostgreSQL and ClickHouse, 10 M: 0 | 32, 148 | | 34, 70 | |
| 10 | 46, 209 | | 46, 112 | |

With ClickHouse, reladiff compares three columns less: it does not know `Date32`, and calls `true` and `1`, or
`64.6993` and `64.69930`, different. There both tools have the servers write all values as text for an MD5, so neither
is faster where tables are equal. Between two PostgreSQL servers, Tableferry's digest is made of the values
themselves. Most of the memory is not data, and hardly grows with the tables: Python takes 11 MB, PyArrow and its
libraries 61, drivers and Tableferry some 70, and pandas 40 if it is installed and rows differ.
"""  # noqa: E501

TEXT = """\
# Performance

This page says what limits Tableferry's speed. `ferry bench` measured it on {moved} (moving rows) and {many} (many
tables), on machines of two cores, which client and servers shared. **Later changes are not in the figures**:
statements on the source are bounded by default, rows between two PostgreSQL servers are staged, and first loads are
[digested as sent](reconciliation.md#what-it-costs). Measure on your own servers before you rely on it. [All figures](contributing/performance-figures.md) are in an appendix.

- **The proof.** {large:,} rows of 15 columns from PostgreSQL to ClickHouse took {checksum} s with a checksum of every
  range, {count} s with counts only, and {pipe} s by one `COPY | curl`, which proves nothing.
- **The start.** A process needs about 1.1 CPU seconds before rows move, half of them for `import dagster`. Start and
  planning were {share} of the time for a million rows, so use few large runs.
- **Other tools.** A million rows took {ferry} s with checksums; pandas took {pandas} s and sling {sling} s, without a
  proof.
- **Other routes come less close to a bare pipe.** PostgreSQL to PostgreSQL took {postgres} s for a million rows,
  where `COPY | COPY` took {copies} s. Parquet to ClickHouse took {parquet} s, where `curl` took {curl} s: the start
  alone is longer.
- **Nothing to do.** 100 unchanged ranges took {noop} s.
- **Small tables are expensive.** A first load of 100 tables of 200 rows through two hops took {first} CPU seconds of
  client and servers.
- **Memory.** {large:,} rows took {memory} MB, {growth} times the memory of a million.
- **SQL Server is not measured.** A [stand-in](contributing/standin.md) takes its place here, whose speed says nothing about SQL
  Server's.

![Rows per second of {large:,} rows, by contender](images/performance/run-wide-10000000.svg)

![How the cost of many tables grows with their number](images/performance/fleet-growth.svg)

[Tuning](tuning.md) says what you can do about it.
"""  # noqa: E501

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
"""


def load() -> dict[str, Result]:
    """The results, by name."""
    return {name: Result.read(DOCS / RESULTS / f"{name}.json") for name in NAMES}


def render(results: dict[str, Result]) -> tuple[str, dict[str, str]]:
    """The page of figures, and its charts by the names of their files."""
    run = results["run"]
    parts = [
        HEAD.format(runs=run.settings["runs"]),
        part_markdown(_held(run, results["fleet"], results["chain"])),
        GIVEN_UP,
        part_markdown(_limits(run)),
        PARTS,
    ]
    charts: dict[str, str] = {}
    titles = {
        "run": "Moving",
        "chain": "Through all three systems",
        "fleet": "Many tables",
        "tune": "Settings",
        "lab": "Reading PostgreSQL",
        "staging": "Filling ClickHouse",
    }
    notes = (*run.notes, *_not_measured(run, results["fleet"]))
    shown = results | {"run": replace(run, notes=notes)}
    for name, title in titles.items():
        parts.append(f"## {title}\n")
        # the tables of "run" have charts of the same names
        images = None if name == "chain" else f"../images/{RESULTS}"
        for one in sections(shown[name]):
            parts.append(part_markdown(one, images, level=3))
            if one.chart and images:
                charts[f"{one.chart.name}.svg"] = one.chart.svg
            if name == "fleet" and one.title == "Growth":
                parts.append(GROWTH)
    parts.append(COMPARED)
    return "\n".join(parts).rstrip("\n") + "\n", charts


def guide(results: dict[str, Result]) -> str:
    """The guide's page, which says what limits the speed."""
    run, fleet = results["run"], results["fleet"]
    large, some = 10_000_000, 1_000_000

    def of(contender: str, metric: str = "seconds", rows: int = some) -> float:
        case = run.find("wide", rows, contender)
        assert case, (contender, rows)
        return _median(case, metric)

    first = fleet.find("tables", 100, "fleet-first")
    assert first
    figures = {
        "checksum": of("ferry", rows=large),
        "count": of("ferry-count", rows=large),
        "pipe": of("psql-curl", rows=large),
        "ferry": of("ferry"),
        "pandas": of("pandas"),
        "sling": of("sling"),
        "postgres": of("ferry-postgres"),
        "copies": of("psql-psql"),
        "parquet": of("ferry-parquet"),
        "curl": of("curl-parquet"),
        "noop": of("ferry-noop", rows=100_000),
        "first": _median(first, "cpu_client") + _median(first, "cpu_servers"),
        "memory": of("ferry", "peak_rss_mb", large),
        "growth": of("ferry", "peak_rss_mb", large) / of("ferry", "peak_rss_mb"),
    }
    return TEXT.format(
        **{name: number_text(figure) for name, figure in figures.items()},
        large=large,
        moved=run.created[:10],
        many=fleet.created[:10],
        share=f"{of('ferry', 'phase_start') / of('ferry'):.0%}",
    )


def _held(*results: Result) -> Section:
    thresholds = read_thresholds(None)
    verdicts = [certify(result, thresholds).findings for result in results]
    rows = []
    # the first of each says that all rows arrived
    for threshold, *findings in zip(
        thresholds.thresholds, *(one[1:] for one in verdicts), strict=True
    ):
        finding = next((one for one in findings if one.outcome != "elsewhere"), findings[0])
        of = threshold.of
        cases = [result.find(of.workload, of.rows, of.contender) for result in results]
        case = next(filter(None, cases), None)
        parts = sorted((shares(case) if case else {}).items(), key=lambda one: -one[1])
        went = ", ".join(f"{phase} {part:.0%}" for phase, part in parts if part >= 0.05)
        if finding.outcome == "failed":
            went = "; ".join(filter(None, (REASONS[finding.name], went)))
        outcome = "not measured" if finding.outcome == "elsewhere" else finding.outcome
        rows.append((finding.name, finding.limit, _measured(finding), outcome, went))
    columns = (
        "what",
        "goal",
        "measured: median (least to most)",
        "outcome",
        "why, where its time went",
    )
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
    results = load()
    page, charts = render(results)
    PAGE.write_text(page, encoding="utf-8")
    GUIDE.write_text(guide(results), encoding="utf-8")
    CHARTS.mkdir(parents=True, exist_ok=True)
    for old in CHARTS.glob("*.svg"):
        old.unlink()
    for name, svg in charts.items():
        (CHARTS / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
