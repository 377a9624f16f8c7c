"""Rows that a target may have beyond its source, which `append` and `upsert` keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tableferry.assets.planning.resolve import Hop
from tableferry.checks.levels import BY_CHECK
from tableferry.checks.sides import Comparison
from tableferry.checks.verdict import Differences, Verdict
from tableferry.checks.whole_table import repeated_keys


def allowing_extra_rows(
    hop: Hop, compared: Comparison, verdicts: Sequence[Verdict]
) -> tuple[Verdict, ...]:
    """Pass verdicts that failed only because of rows that the write mode keeps, and count those.

    Figures of both sides cannot distinguish a kept row from a wrong one, so the rows decide: none
    of the source's may be missing, or differ, or be duplicated. Failures stand if the rows cannot
    be looked at.
    """
    failed = [verdict for verdict in verdicts if not verdict.passed and verdict.check in BY_CHECK]
    if not failed or not hop.options.keeps_rows(hop.plan):
        return tuple(verdicts)
    every_row = [each for each in failed if BY_CHECK[each.check].compares == "rows"]
    of_all_rows = every_row[0].differences if every_row else None
    try:
        if not allows_extra_rows(hop, compared):
            return tuple(verdicts)
        differences = of_all_rows or compared.differences
    except Exception as error:
        return tuple(
            verdict.unexplained(error) if verdict in failed else verdict for verdict in verdicts
        )
    return tuple(
        _judged(verdict, verdict.differences or differences, differences)
        if verdict in failed
        else verdict
        for verdict in verdicts
    )


def allows_extra_rows(hop: Hop, compared: Comparison) -> bool:
    """Whether the write mode keeps rows, and those in the range are no duplicates."""
    if not hop.options.keeps_rows(hop.plan):
        return False
    target = compared.sides["target"]
    keys, _ = repeated_keys(target, target.rows_in(compared.ranges))
    return not keys


def with_extra_rows(verdict: Verdict, rows: int) -> Verdict:
    """Add the number of kept rows to a passed verdict about rows."""
    if not verdict.passed or verdict.check not in BY_CHECK:
        return verdict
    return replace(
        verdict,
        note=f"the source's rows are there; the target keeps {rows} that the source has no more",
        metadata={**verdict.metadata, "kept_rows": rows},
    )


def _judged(verdict: Verdict, differences: Differences, of_all: Differences) -> Verdict:
    wrong = differences.missing_in_target
    if BY_CHECK[verdict.check].values:
        wrong += differences.different
    if wrong:
        return replace(verdict, differences=differences, note=differences.summary())
    passed = replace(verdict, passed=True, disagreeing=(), differences=None)
    return with_extra_rows(passed, of_all.extra_in_target)
