"""What a result suggests: where the time of a move goes, and which settings are best."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from tableferry_bench.results import PREPARATION, Case, Result, best
from tableferry_bench.statistics import judged

SEQUENCE = ("start", "fingerprint", "ranges", "end")
IN_RANGES = ("export", "load", "reconcile", "finalise")

MEANING = {
    "start": "starting the process and planning, which does not grow with the rows: move more rows "
    "per run",
    "fingerprint": "reading the source once to know what changed: a cheaper `fingerprint` "
    "(row_version, a watermark) saves it",
    "export": "reading the source: more export workers help only while PostgreSQL has idle cores",
    "load": "writing the target: more load workers help only while the target has idle cores",
    "reconcile": "checking what arrived: `reconcile: count` is cheaper",
    "finalise": "making ranges visible: fewer, larger ranges",
    "end": "checking whole tables, and the end of the process, for which ranges hardly count",
}

STEADY = 0.05
"""A change of the median that is none."""


@dataclass(frozen=True)
class Bottleneck:
    """Where most of a move's time goes."""

    phase: str
    part: float
    """The share of the whole time, by the clock."""


def shares(case: Case) -> dict[str, float]:
    """The part of a move's time, by the clock, that each phase takes; empty if it has no phases.

    The time of the ranges is shared out by how long each of their phases took in sum, because they
    overlap.
    """
    medians = {}
    for phase in (*SEQUENCE, *IN_RANGES):
        if values := list(case.figures(f"phase_{phase}").values()):
            medians[phase] = statistics.median(values)
    if "ranges" not in medians:
        return {}
    parts = {phase: medians[phase] for phase in SEQUENCE if phase in medians}
    in_ranges = {phase: medians[phase] for phase in IN_RANGES if phase in medians}
    if total := sum(in_ranges.values()):
        whole = parts.pop("ranges")
        parts |= {phase: whole * spent / total for phase, spent in in_ranges.items()}
    time = sum(parts.values()) or 1.0
    return {phase: spent / time for phase, spent in parts.items()}


def bottleneck(case: Case) -> Bottleneck | None:
    """The phase of a move that takes most of its time; None if it has no phases."""
    parts = shares(case)
    if not parts:
        return None
    worst = max(parts, key=lambda phase: parts[phase])
    return Bottleneck(worst, parts[worst])


def recommendations(result: Result) -> list[str]:
    """What to do, in sentences; none for a plain run."""
    tables = [
        [case for case in cases if case.contender != PREPARATION]
        for cases in result.tables().values()
    ]
    if result.kind == "tune":
        return [line for cases in tables for line in _tuned(cases)]
    if result.kind == "lab":
        return [line for cases in tables for line in _read(cases)]
    if result.kind == "staging":
        groups: dict[tuple[str, int], list[Case]] = {}
        for case in result.cases:
            groups.setdefault((case.contender, case.rows), []).append(case)
        return [line for cases in groups.values() for line in _staged(cases)] + _growth(result)
    return []


def _tuned(cases: list[Case]) -> list[str]:
    fastest = best(cases, "seconds")
    if fastest is None:
        return []
    found = [f"{fastest.workload}, {fastest.rows:,} rows: fastest was {_settings(fastest)}."]
    alike = _alike(fastest, cases)
    leanest = best([fastest, *alike], "peak_rss_mb")
    if leanest is not None and leanest is not fastest:
        found.append(
            f"Not told apart from it by their runs: {len(alike)} others; of all of these "
            f"{_settings(leanest)} takes the least memory, and is recommended."
        )
    chosen = leanest or fastest
    if worst := bottleneck(chosen):
        found.append(
            f"Its bottleneck is {worst.phase}, {worst.part:.0%} of the time: {MEANING[worst.phase]}"
            "."
        )
    return found


def _read(cases: list[Case]) -> list[str]:
    """The fastest for each thing that the rows may be wanted as, and the leanest of all."""
    leanest = best(cases, "peak_rss_mb")
    if leanest is None:
        return []
    found = []
    for wanted in dict.fromkeys(case.proves for case in cases):
        alike = [case for case in cases if case.proves == wanted]
        fastest = best(alike, "rows_per_second")
        if fastest is None:
            continue
        said = f"{fastest.contender} reads fastest what becomes {wanted}"
        if others := [case.contender for case in _alike(fastest, alike)]:
            said += f"; not told apart from it by their runs: {', '.join(others)}"
        found.append(said + ".")
    return [*found, f"{leanest.contender} takes the least memory."]


def _staged(cases: list[Case]) -> list[str]:
    fastest = best(cases, "seconds")
    if fastest is None or len(cases) < 2:
        return []
    alike = _alike(fastest, cases)
    said = f"{fastest.contender}, {fastest.rows:,} rows: {_settings(fastest)} was fastest"
    if alike:
        said += f"; not told apart from it: {', '.join(_settings(one) for one in alike)}"
    return [said + "."]


def _growth(result: Result) -> list[str]:
    """How the cost of each strategy grows with the rows."""
    sizes: dict[str, dict[int, float]] = {}
    for case in result.cases:
        if case.contender == "staging-growth" and (found := case.summary("seconds")):
            sizes.setdefault(_settings(case), {})[case.rows] = found.median
    return [
        f"{name}: {max(line) / min(line):.3g} times the rows ({min(line):,} to {max(line):,}) took "
        f"{line[max(line)] / line[min(line)]:.3g} times as long."
        for name, line in sizes.items()
        if len(line) > 1
    ]


def _alike(fastest: Case, cases: list[Case]) -> list[Case]:
    """Those that are not slower beyond what is noise."""
    own = list(fastest.figures("seconds").values())
    return [
        one
        for one in cases
        if one is not fastest
        and one.summary("seconds")
        and judged(own, list(one.figures("seconds").values()), better="less", part=STEADY)
        in ("same", "noise", "too few runs")
    ]


def _settings(case: Case) -> str:
    return ", ".join(f"{name} {value}" for name, value in case.options.items()) or case.contender
