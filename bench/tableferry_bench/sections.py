"""What a result says, as tables, charts and remarks, whatever they are printed as."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry_bench import charts
from tableferry_bench.advice import bottleneck, recommendations
from tableferry_bench.certification import Verdict
from tableferry_bench.charts import Bar, number_text
from tableferry_bench.comparison import Comparison
from tableferry_bench.fleet_sections import fleet_sections, is_fleet
from tableferry_bench.results import Case, Result, best
from tableferry_bench.section import Chart, Section
from tableferry_bench.statistics import Summary, ratios, summary

BARE = ("psql-curl", "psql-psql", "psql-freebcp", "freebcp-curl", "curl-parquet")
"""What the others of a route are held against, where it took part."""


KERNEL_AND_DISK = ("in the kernel", "bytes a row on disk", "without compression")

Row = tuple[str, ...]

EXPERIMENTS = {
    "staging-strategy": "INSERTs into the target itself, or into a staging table per range, which "
    "REPLACE PARTITION then puts into the target.",
    "staging-workers": "Ranges loaded at the same time, of eight, by staging tables.",
    "staging-publish": "Ranges made visible at the same time, of the eight that are loaded.",
    "staging-chunk": "Rows per INSERT into the target itself.",
    "staging-growth": "The same by the number of rows, on two logarithmic axes.",
}


def sections(result: Result, verdict: Verdict | None = None) -> list[Section]:
    """All of a result, the verdict first."""
    found = [_verdict(verdict)] if verdict else []
    if result.kind == "staging":
        found += _staging(result)
    else:
        found += fleet_sections(result)
        for (workload, rows), cases in result.tables().items():
            if others := [case for case in cases if not is_fleet(case)]:
                found += _table(result, workload, rows, others)
    if advice := recommendations(result):
        found.append(Section("Recommendation", remarks=tuple(advice)))
    found.append(_where(result))
    return found


def comparison_sections(found: Comparison) -> list[Section]:
    """What two results differ in; what did not change is left out."""
    shown = sorted(
        (one for one in found.changes if one.judgement not in ("same",)),
        key=lambda one: (one.judgement != "regression", one.case, one.metric),
    )
    rows = tuple(
        (
            one.case,
            one.metric,
            one.judgement,
            _spread(one.before),
            _spread(one.after),
            f"{one.part:+.1%}",
        )
        for one in shown
    )
    relative = f", each divided by {found.relative_to} of its round" if found.relative_to else ""
    remarks = [
        f"{len(found.regressions)} regressions among {len(found.changes)} figures of runs of "
        f"{found.before} and {found.after}{relative}; those that are the same are left out."
    ]
    remarks += [f"lost: {one}" for one in found.lost]
    remarks += [f"new: {one}" for one in found.new]
    remarks += [f"not alike: {one}" for one in found.notes]
    columns = ("case", "figure", "judgement", "before", "after", "change")
    return [Section("Comparison", columns, rows, tuple(remarks), words=3)]


def _verdict(verdict: Verdict) -> Section:
    rows = tuple(
        (
            one.name,
            one.outcome,
            one.limit,
            "" if one.value is None else number_text(one.value),
            "" if one.least is None or one.most is None else _range(one.least, one.most),
            one.detail,
        )
        for one in verdict.findings
        if one.outcome != "elsewhere"
    )
    columns = ("threshold", "outcome", "limit", "median", "least to most", "why not")
    return Section("Certification", columns, rows, (verdict.headline,), words=2)


def _table(result: Result, workload: str, rows: int, cases: Sequence[Case]) -> list[Section]:
    measured = [one for one in cases if one.summary("seconds")]
    bases = {one.route: one for one in measured if one.contender in BARE}
    gives = "yields" if result.kind == "lab" else "proves"
    columns = ["contender", "route", gives, "seconds", "least to most", "rows/s", "MB/s"]
    columns += ["by the bare pipe"] if bases else []
    columns += ["peak MB", "client CPU s", "server CPU s", *KERNEL_AND_DISK]
    lines = []
    for case in measured:
        line = [label(case), case.route, case.proves, _median(case, "seconds")]
        seconds = case.summary("seconds")
        line.append(_range(seconds.least, seconds.most) if seconds else "")
        line += [_median(case, "rows_per_second"), _median(case, "mb_per_second")]
        if bases:
            line.append(_ratio(case, bases[case.route]) if case.route in bases else "")
        line += [_median(case, name) for name in ("peak_rss_mb", "cpu_client")]
        line += [_median(case, "cpu_servers"), *_kernel_and_disk(case)]
        lines.append(tuple(line))
    remarks = [f"{label(one)} FAILED: {one.failed}" for one in cases if one.failed]
    remarks += [f"{label(one)} was left out: {one.skipped}" for one in cases if one.skipped]
    title = f"{workload}, {rows:,} rows"
    chart = None
    if len(measured) > 1:
        figures = [
            Bar(
                label(one), found.median, found.least, found.most, one.contender.startswith("ferry")
            )
            for one in measured
            if (found := one.summary("rows_per_second"))
        ]
        svg = charts.bars(f"{title}: speed", "rows/s", sorted(figures, key=lambda one: -one.value))
        chart = Chart(f"{result.kind}-{workload}-{rows}", svg)
    own = Section(title, *_told(columns, lines), tuple(remarks), chart, words=3)
    with_phases = [one for one in measured if any(run.phases for run in one.runs)]
    parts = [own, *([_phases(title, with_phases)] if with_phases else [])]
    return parts + _degrees(title, measured)


def _degrees(title: str, cases: Sequence[Case]) -> list[Section]:
    """What each further worker brings, where all else is alike: the best of each degree."""
    by_degree: dict[int, list[Case]] = {}
    for case in cases:
        workers = {case.options.get(name) for name in ("export", "load", "workers")} - {None}
        if len(workers) == 1:
            by_degree.setdefault(int(workers.pop() or 0), []).append(case)
    fastest = {degree: best(alike, "rows_per_second") for degree, alike in by_degree.items()}
    alone = fastest.get(1)
    if alone is None or len(fastest) < 2:
        return []
    base = alone.summary("rows_per_second")
    rows = []
    for degree, of_degree in sorted(fastest.items()):
        speed = of_degree.summary("rows_per_second") if of_degree else None
        if of_degree and base and speed:
            times = speed.median / base.median
            figures = (speed.median, times, times / degree)
            rows.append(
                (
                    str(degree),
                    label(of_degree),
                    *map(number_text, figures),
                    _in_the_kernel(of_degree),
                )
            )
    remark = (
        "The fastest of each number of workers. Efficiency is its speed by that of one worker, "
        "divided by the number; 1 is perfect. In the kernel: of the client's CPU seconds, of the "
        "servers'."
    )
    columns = ("workers", "case", "rows/s", "times one", "efficiency", "in the kernel")
    return [Section(f"{title}: by workers", *_told(columns, rows), (remark,), words=2)]


def _phases(title: str, cases: Sequence[Case]) -> Section:
    names = list(
        dict.fromkeys(phase for case in cases for run in case.runs for phase in run.phases)
    )
    one_by_one = [name for name in ("start", "fingerprint", "ranges", "end") if name in names]
    names = [*one_by_one, *(name for name in names if name not in one_by_one)]
    rows = []
    for case in cases:
        line = [label(case), *(_median(case, f"phase_{name}") for name in names)]
        skews = [run.skew for run in case.runs if run.counts and run.skew]
        last = skews[-1] if skews else None
        line.append(str(last.ranges) if last else "")
        line.append(f"{last.rows:.2f}" if last and last.rows else "")
        line.append(f"{last.seconds:.2f}" if last and last.seconds else "")
        worst = bottleneck(case)
        line.append(f"{worst.phase} ({worst.part:.0%})" if worst else "")
        rows.append(tuple(line))
    columns = ("contender", *names, "ranges", "skew, rows", "skew, seconds", "bottleneck")
    remarks = (
        "Median seconds. start, fingerprint, ranges and end follow each other; export, load, "
        "reconcile and finalise are sums over ranges that overlap. Skew is the largest range by "
        "the mean of all.",
    )
    return Section(f"{title}: phases", columns, tuple(rows), remarks)


def _staging(result: Result) -> list[Section]:
    groups: dict[str, list[Case]] = {}
    for case in result.cases:
        groups.setdefault(case.contender, []).append(case)
    found = []
    for name, cases in groups.items():
        measured = [one for one in cases if one.summary("seconds")]
        rows = tuple(
            (
                label(one),
                f"{one.rows:,}",
                *(_median(one, metric) for metric in ("seconds", "rows_per_second")),
                *(_median(one, f"phase_{phase}") for phase in ("load", "publish")),
                *(_median(one, metric) for metric in ("peak_rss_mb", "cpu_client")),
                _median(one, "cpu_clickhouse"),
                *_kernel_and_disk(one),
            )
            for one in measured
        )
        columns = ("variant", "rows", "seconds", "rows/s", "load s", "publish s", "peak MB")
        more = ("client CPU s", "ClickHouse CPU s", *KERNEL_AND_DISK)
        remarks = [f"{label(one)} FAILED: {one.failed}" for one in cases if one.failed]
        remarks.insert(0, EXPERIMENTS.get(name, name))
        title = name.removeprefix("staging-").capitalize()
        chart = _staging_chart(name, measured)
        told = _told((*columns, *more), rows)
        found.append(Section(title, *told, tuple(remarks), chart))
        found += _degrees(title, measured)
    return found


def _staging_chart(name: str, cases: Sequence[Case]) -> Chart | None:
    if len(cases) < 2:
        return None
    if len({one.rows for one in cases}) > 1:
        series: dict[str, list[tuple[float, float]]] = {}
        for one in cases:
            if found := one.summary("seconds"):
                series.setdefault(label(one), []).append((one.rows, found.median))
        return Chart(name, charts.lines(name, "rows", "seconds", series))
    figures = [
        Bar(label(one), found.median, found.least, found.most)
        for one in cases
        if (found := one.summary("seconds"))
    ]
    return Chart(name, charts.bars(name, "seconds", figures))


def _where(result: Result) -> Section:
    machine = result.machine
    remarks = [
        f"Measured {result.created} by Tableferry {result.tableferry} on {machine['cpu']}, "
        f"{machine['cores']} cores, {machine['memory_mb']:,} MB, {machine['platform']}, Python "
        f"{machine['python']}; suite {result.suite}, "
        f"{result.settings.get('runs')} runs after {result.settings.get('warmups')} warm-up."
    ]
    remarks += [f"{name}: {what}" for name, what in result.servers.items()]
    loads = [run.machine_load for case in result.cases for run in case.runs if run.machine_load]
    if loads:
        remarks.append(
            f"Processes that wanted a core before a run, on average of a minute: {min(loads):.1f} "
            f"to {max(loads):.1f}."
        )
    return Section("Where it was measured", remarks=(*remarks, *result.notes))


def label(case: Case) -> str:
    """A case's contender and options, in short."""
    options = ", ".join(f"{name} {value}" for name, value in case.options.items())
    if case.contender.startswith("staging") or not options:
        return options or case.contender
    return f"{case.contender}, {options}"


def _median(case: Case, metric: str) -> str:
    found = case.summary(metric)
    return "" if found is None else number_text(found.median)


def _ratio(case: Case, base: Case) -> str:
    found = summary(ratios(case.figures("rows_per_second"), base.figures("rows_per_second")))
    return "" if found is None else f"{found.median:.2f}"


def _kernel_and_disk(case: Case) -> list[str]:
    """What stands below `KERNEL_AND_DISK`."""
    sizes = [_median(case, f"{which}_bytes_per_row") for which in ("disk", "uncompressed")]
    return [_in_the_kernel(case), *sizes]


def _told(columns: Sequence[str], rows: Sequence[Row]) -> tuple[Row, tuple[Row, ...]]:
    """A table without the columns of which no row says anything."""
    kept = [number for number in range(len(columns)) if any(row[number] for row in rows)]
    return (
        tuple(columns[number] for number in kept),
        tuple(tuple(row[number] for number in kept) for row in rows),
    )


def _in_the_kernel(case: Case) -> str:
    """The shares of the CPU seconds that the kernel took, of the client's and of the servers'."""
    shares = []
    for whose in ("client", "servers"):
        all_seconds, system = case.summary(f"cpu_{whose}"), case.summary(f"system_{whose}")
        if all_seconds and system and all_seconds.median:
            shares.append(f"{system.median / all_seconds.median:.0%}")
    return ", ".join(shares)


def _spread(found: Summary) -> str:
    return f"{number_text(found.median)} ({_range(found.least, found.most)})"


def _range(least: float, most: float) -> str:
    return f"{number_text(least)} to {number_text(most)}"
