"""Rows that a target may have beyond its source: what `append` and `upsert` leave standing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tableferry.assets.planning.resolve import Hop
from tableferry.checks.drilldown import Comparison
from tableferry.checks.verdict import CHECK_NAMES, Differences, Verdict
from tableferry.checks.whole_table import repeated_keys
from tableferry.resources.contract.target import keeps_rows


def allowing_extra_rows(
    hop: Hop, compared: Comparison, verdicts: Sequence[Verdict]
) -> tuple[Verdict, ...]:
    """Pass what failed for nothing but rows that the write mode keeps, and count those.

    Figures of both sides cannot tell a kept row from a wrong one, so that the rows decide: none of
    the source's may be missing, or differ, or be there twice.

    Args:
        hop: whose write mode it is.
        compared: the range, and the tables that were compared.
        verdicts: what the checks of the range found.
    """
    names = CHECK_NAMES.values()
    failed = [one for one in verdicts if not one.passed and one.check in names]
    if not failed or not keeps_rows(hop.plan, hop.options):
        return tuple(verdicts)
    of_all = next((one.differences for one in failed if one.check == "full_hash"), None)
    found = of_all or compared.differences
    plan = compared.plan
    keys, _ = repeated_keys(plan, compared.target, plan.target_range(compared.key_range))
    return tuple(
        one if keys or one not in failed else _judged(one, one.differences or found, found)
        for one in verdicts
    )


def with_extra_rows(verdict: Verdict, rows: int) -> Verdict:
    """The verdict, with how many rows the write mode leaves standing if it is about rows."""
    if not verdict.passed or verdict.check not in CHECK_NAMES.values():
        return verdict
    return replace(
        verdict,
        note=f"the source's rows are there; the target keeps {rows} that the source has no more",
        metadata={**verdict.metadata, "kept_rows": rows},
    )


def _judged(verdict: Verdict, found: Differences, of_all: Differences) -> Verdict:
    wrong = found.missing_in_target + (0 if verdict.check == "row_count" else found.different)
    if wrong:
        return replace(verdict, differences=found, note=found.summary())
    passed = replace(verdict, passed=True, disagreeing=(), differences=None)
    return with_extra_rows(passed, of_all.extra_in_target)
