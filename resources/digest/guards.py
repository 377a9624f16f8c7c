"""Writes the conditions under which a hop refuses a value, in the source's SQL.

These are the guards of the conversion itself, by `OverflowSql`: there is no second set of rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tableferry.resources.columns.conversions import NoConversion, conversion_of
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan, WireFormat
from tableferry.resources.contract.digest_writer import NEVER
from tableferry.resources.contract.fields import Field
from tableferry.resources.digest.fields import all_fields
from tableferry.resources.digest.overflow import Overflow
from tableferry.resources.types import steps
from tableferry.resources.types.decimals import ToDecimal
from tableferry.resources.types.export import Conversion


@dataclass(frozen=True)
class Guard:
    """A condition under which a column's value is refused."""

    reason: str
    """Completes `value x ...`."""
    condition: str | None
    """The condition in the source's SQL; None if only the client can tell."""
    policies: tuple[steps.Change, ...] = ()
    """What `on_overflow` may say so that the value is changed instead."""


def guards(
    plan: CopyPlan,
    wire: WireFormat,
    variant: str,
    more: Mapping[str, Sequence[steps.Step]] | None = None,
) -> dict[str, tuple[Guard, ...]]:
    """Write the guards of a hop's columns, by name in the target, where any value is refused.

    Args:
        plan: the hop.
        wire: how its rows travel.
        variant: the variant of the source's digest writer.
        more: further steps that the values of a column have to pass.
    """
    found: dict[str, tuple[Guard, ...]] = {}
    for column, field in zip(plan.columns, all_fields(plan), strict=True):
        if wire != "arrow" and column.binary_sql is not None:
            continue  # passed on unread
        try:
            conversion = conversion_of(column, plan)
        except NoConversion:
            continue
        every = [*conversion.steps, *(more or {}).get(column.target.name, ())]
        written = [_lost(plan, column, conversion, wire)]
        written += [
            _guard(plan, column, conversion, field, step, variant)
            for step in every
            if not isinstance(step, steps.Unguarded)
            # only record batches go through the driver that replaces surrogates
            if wire == "arrow" or not isinstance(step, steps.Unreplaced)
        ]
        if guards_of_column := tuple(guard for guard in written if guard is not None):
            found[column.target.name] = guards_of_column
    return found


def _lost(
    plan: CopyPlan, column: ColumnPlan, conversion: Conversion, wire: WireFormat
) -> Guard | None:
    """Write the guard against what the wire would lose, if the exported expression has one."""
    export, name = conversion.source, plan.source.system.quote(column.source.name)
    refuse = export.refuse_text if conversion.as_text else export.refuse
    condition = refuse and refuse.replace("{}", name)
    if not condition or condition not in str(column.sql(wire)):
        return None
    return Guard(export.refuse_reason, condition)


def _guard(
    plan: CopyPlan,
    column: ColumnPlan,
    conversion: Conversion,
    field: Field,
    step: steps.Step,
    variant: str,
) -> Guard | None:
    system = plan.source.system
    if isinstance(step, steps.Present):
        return Guard(step.reason, f"{system.quote(column.source.name)} IS NULL")
    left = _left(step, column.change)
    if left is None:
        return None
    nullable = conversion.slot.nullable and column.source.name != plan.key.source.name
    usable = [change for change in steps.CHANGES.values() if nullable or change != "null"]
    policies = tuple(change for change in usable if _left(left, change) != left)
    changed = Overflow("null", conversion.sent, (left,), field, system, variant).relaxed()
    condition = None if changed is None else changed.changed
    return None if condition == NEVER else Guard(left.reason, condition, policies)


def _left(step: steps.Step, policy: steps.Change | None) -> steps.Step | None:
    """Return what a step refuses under a policy; None if each value is changed instead."""
    if policy == "clamp" and isinstance(step, ToDecimal):
        return replace(step, only_nan=True)
    return None if policy == "null" or (policy and _has_nearest(step)) else step


def _has_nearest(step: steps.Step) -> bool:
    """Whether `clamp` has a value for those that break a step's guard."""
    if isinstance(step, steps.Items):
        return _has_nearest(step.step)
    return not isinstance(step, steps.Unclamped) and not (
        isinstance(step, steps.Length) and step.fixed
    )
