"""What a verdict has not compared, and which values it has compared as something else: in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from tableferry.checks.verdict import Level, Verdict
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.digest.fields import fields, not_compared, relaxed_fields

NAMED = 6
"""Columns that one line names; the metadata has all."""


FILTERED = "of the source's rows with "
"""What the remark about a row filter begins with."""


def with_limits(
    verdict: Verdict, plan: CopyPlan, level: Level, changed: Mapping[str, int]
) -> Verdict:
    """The verdict, with all that it must own up to.

    Args:
        verdict: of a key range, or of the whole table.
        plan: the hop.
        level: what was compared.
        changed: how many of the rows' values `on_overflow` makes other ones, by target column.
    """
    remarks = [*(limits(plan, changed) if level != "count" else ()), *_filter(plan)]
    found = _metadata(plan, changed) if level != "count" else {}
    if plan.where:
        found["where"] = plan.where
    return replace(verdict, remarks=tuple(remarks), metadata={**verdict.metadata, **found})


def limits(plan: CopyPlan, changed: Mapping[str, int] | None = None) -> Iterator[str]:
    """What a comparison of values leaves out, or takes as something else.

    Args:
        plan: the hop.
        changed: how many values `on_overflow` makes other ones, by target column; None if they
            were not counted.
    """
    policies = {one.target.name: one.on_overflow for one in plan.columns}
    if changed is None:
        parts = [f"{field.name} ({policies[field.name]})" for field in relaxed_fields(plan)]
    else:
        parts = [f"{_values(n)} of {name} ({policies[name]})" for name, n in changed.items() if n]
    if parts:
        yield f"compared as on_overflow makes them: {_listed(parts)}"
    if names := not_compared(plan):
        shown = [f"{name} (on_overflow: {policies[name]})" for name in names]
        yield f"not compared: {_listed(shown)}"
    if plan.excluded:
        yield f"not copied: {_listed(plan.excluded)}"


def _filter(plan: CopyPlan) -> Iterator[str]:
    if plan.where:
        yield f"{FILTERED}{plan.where}"


def _metadata(plan: CopyPlan, changed: Mapping[str, int]) -> dict[str, str]:
    policies = {one.target.name: one.on_overflow for one in plan.columns}
    counted = [f"{name}: {_values(n)} ({policies[name]})" for name, n in changed.items()]
    found = {
        "changed (on_overflow)": counted,
        "not_compared (on_overflow)": not_compared(plan),
        "not_copied": plan.excluded,
        "not_compared (only in the target)": plan.only_in_target,
        "compared without trailing blanks": [one.name for one in fields(plan) if one.padded],
    }
    return {name: ", ".join(listed) for name, listed in found.items() if listed}


def _values(number: int) -> str:
    return f"{number} value" if number == 1 else f"{number} values"


def _listed(names: Collection[str]) -> str:
    shown = [*names][:NAMED]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
