"""Two results of the same suite: what became slower, beyond what is noise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tableferry.resources.errors import InputError
from tableferry_bench.results import MORE_IS_BETTER, PREPARATION, Case, Result
from tableferry_bench.statistics import Judgement, Summary, judged, ratios, summary

METRICS = {"seconds": 0.05, "cpu_client": 0.05, "cpu_servers": 0.10, "peak_rss_mb": 0.05}
"""What is compared, and the change of the median that nobody minds."""


@dataclass(frozen=True)
class Change:
    """How one figure of one case differs between two results."""

    case: str
    metric: str
    before: Summary
    after: Summary
    judgement: Judgement

    @property
    def part(self) -> float:
        """The growth as a share of the median before: 0.1 is 10 % more."""
        return self.after.median / self.before.median - 1 if self.before.median else 0.0


@dataclass(frozen=True)
class Comparison:
    """What differs."""

    before: str
    """When the first was measured."""
    after: str
    relative_to: str | None
    changes: tuple[Change, ...]
    lost: tuple[str, ...]
    """Cases that the second does not have, and why."""
    new: tuple[str, ...]
    notes: tuple[str, ...]
    """Why the two may not be comparable at all."""

    @property
    def regressions(self) -> list[Change]:
        """What became worse."""
        return [one for one in self.changes if one.judgement == "regression"]

    def to_json(self) -> str:
        """All of it."""
        changes = [{**asdict(one), "change": one.part} for one in self.changes]
        return json.dumps({**asdict(self), "changes": changes}, indent=1) + "\n"


def compare(before: Result, after: Result, *, relative_to: str | None = None) -> Comparison:
    """Compare two results, case by case.

    Args:
        before: the first.
        after: the second.
        relative_to: a contender by whose figures those of the others are divided, round by round,
            so that a machine that was busier does not count.

    Raises:
        InputError: they have no case in common, or the contender is in none.
    """
    old, new = (
        {case.name: case for case in one.cases if case.runs and case.contender != PREPARATION}
        for one in (before, after)
    )
    common = [name for name in old if name in new]
    if not common:
        raise InputError("the two results have no measured case in common")
    changes = []
    for name in common:
        if relative_to == old[name].contender:
            continue
        for metric, part in METRICS.items():
            first = _figures(before, old[name], metric, relative_to)
            second = _figures(after, new[name], metric, relative_to)
            one, other = summary(first), summary(second)
            if one is None or other is None:
                continue
            better = "more" if metric in MORE_IS_BETTER else "less"
            verdict = judged(first, second, better=better, part=part)  # type: ignore[arg-type]
            changes.append(Change(name, metric, one, other, verdict))
    if not changes:
        raise InputError(f"no case can be compared relative to {relative_to}: it was not measured")
    left = {case.name: case for case in after.cases}
    return Comparison(
        before.created,
        after.created,
        relative_to,
        tuple(changes),
        tuple(f"{name}: {_why(left.get(name))}" for name in old if name not in new),
        tuple(name for name in new if name not in old),
        tuple(_differences(before, after)),
    )


def _figures(result: Result, case: Case, metric: str, relative_to: str | None) -> Sequence[float]:
    figures = case.figures(metric)
    if relative_to is None:
        return list(figures.values())
    base = result.find(case.workload, case.rows, relative_to)
    return ratios(figures, base.figures(metric)) if base else []


def _why(case: Case | None) -> str:
    if case is None:
        return "not part of it any more"
    return case.failed or case.skipped or "no runs"


def _differences(before: Result, after: Result) -> list[str]:
    found = [
        f"{what}: {one} before, {other} after"
        for kind in ("machine", "servers")
        for what in getattr(before, kind)
        if (one := getattr(before, kind)[what]) != (other := getattr(after, kind).get(what))
    ]
    if before.suite != after.suite:
        found.insert(0, f"suite: {before.suite} before, {after.suite} after")
    return found
