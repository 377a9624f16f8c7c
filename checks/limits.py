"""What a verdict has not compared, and which values it has compared as something else: in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tableferry.checks.levels import LEVELS, Level
from tableferry.checks.verdict import Verdict
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.target_names import quarantine_of
from tableferry.resources.digest.fields import fields, not_compared, relaxed_fields
from tableferry.resources.tables import TableRef

NAMED = 6
"""Maximum number of columns that one line names; the metadata has all."""

FILTERED = "of the source's rows with "
"""The beginning of the remark about a row filter."""

FINAL = "with FINAL of "
"""The beginning of the remark about tables of which the newest version of each row is read."""


def with_limits(
    verdict: Verdict, plan: CopyPlan, level: Level, changed: Mapping[str, int]
) -> Verdict:
    """Add to a verdict what it does not prove.

    Args:
        verdict: the verdict on a key range, or on the whole table.
        plan: the hop.
        level: what was compared.
        changed: the number of values that `on_overflow` changes, by target column.
    """
    values = LEVELS[level].values
    remarks = limits(plan, changed) if values else []
    metadata = _metadata(plan, changed) if values else {}
    if plan.fitting:
        remarks.append("of the rows whose values fit")
    if plan.where:
        remarks.append(f"{FILTERED}{plan.where}")
        metadata["where"] = plan.where
    verdict = replace(verdict, remarks=tuple(remarks), metadata={**verdict.metadata, **metadata})
    return with_final(verdict, plan.final)


def with_final(verdict: Verdict, tables: Sequence[TableRef]) -> Verdict:
    """Add to a verdict which tables were read with FINAL, if any."""
    if not tables:
        return verdict
    metadata = {**verdict.metadata, "final": ", ".join(map(str, tables))}
    return replace(verdict, remarks=(*verdict.remarks, *final(tables)), metadata=metadata)


def final(tables: Sequence[TableRef]) -> list[str]:
    """Say which tables were read with FINAL, if any."""
    return [f"{FINAL}{', '.join(map(str, tables))}"] if tables else []


def with_rejected(verdict: Verdict, plan: CopyPlan, rows: int) -> Verdict:
    """Add to a verdict that the target does without some rows of the source, if it does.

    Args:
        verdict: the verdict on a key range, or on the whole table.
        plan: the hop.
        rows: the number of rejected rows.
    """
    if not rows:
        return verdict
    kept = quarantine_of(plan.target)
    remark = f"without {rows} {'row' if rows == 1 else 'rows'} that {kept} has: rejected"
    metadata = {**verdict.metadata, "rejected": rows, "rejected_in": str(kept)}
    return replace(verdict, remarks=(*verdict.remarks, remark), metadata=metadata)


def limits(plan: CopyPlan, changed: Mapping[str, int] | None = None) -> list[str]:
    """Say what a comparison of values leaves out, or compares as something else.

    Args:
        plan: the hop.
        changed: the number of values that `on_overflow` changes, by target column; None if they
            were not counted.
    """
    policies = _policies(plan)
    if changed is None:
        parts = [f"{field.name} ({policies[field.name]})" for field in relaxed_fields(plan)]
    else:
        parts = [f"{_values(n)} of {name} ({policies[name]})" for name, n in changed.items() if n]
    said = {
        "compared as on_overflow makes them": parts,
        "compared after the same cast": [each.target.name for each in plan.columns if each.lossy],
        "not compared": [f"{name} (on_overflow: {policies[name]})" for name in not_compared(plan)],
        "not copied": plan.excluded,
    }
    return [f"{what}: {_listed(names)}" for what, names in said.items() if names]


def _metadata(plan: CopyPlan, changed: Mapping[str, int]) -> dict[str, str]:
    policies = _policies(plan)
    counted = [f"{name}: {_values(n)} ({policies[name]})" for name, n in changed.items()]
    names = {
        "changed (on_overflow)": counted,
        "not_compared (on_overflow)": not_compared(plan),
        "not_copied": plan.excluded,
        "not_compared (only in the target)": plan.only_in_target,
        "compared without trailing blanks": [f.name for f in fields(plan) if f.padded],
    }
    return {title: ", ".join(listed) for title, listed in names.items() if listed}


def _policies(plan: CopyPlan) -> dict[str, str]:
    return {column.target.name: column.on_overflow for column in plan.columns}


def _values(number: int) -> str:
    return f"{number} value" if number == 1 else f"{number} values"


def _listed(names: Collection[str]) -> str:
    more = len(names) - NAMED
    return ", ".join([*names][:NAMED]) + (f" and {more} more" if more > 0 else "")
