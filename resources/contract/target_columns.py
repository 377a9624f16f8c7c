"""Whether an existing target table takes the columns of a plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.contract.system import System
from tableferry.resources.errors import SchemaDrift
from tableferry.resources.types.column import Column
from tableferry.resources.types.kinds import Array, Binary, Kind, Text, Timestamp

Incompatibility = Callable[[System, Column, Column], str | None]


def verify_columns(
    plan: CopyPlan, actual: Sequence[Column], incompatibility: Incompatibility
) -> None:
    """Compare an existing target table with the plan.

    Args:
        plan: the hop.
        actual: the table's columns.
        incompatibility: `resources.columns.planner.incompatibility`.

    Raises:
        SchemaDrift: a planned column is missing, or cannot hold every value; all are named.
    """
    found = {column.name: column for column in actual}
    problems = []
    for planned in plan.target_columns:
        column = found.get(planned.name)
        if column is None:
            problems.append(f"column {planned.name!r} ({planned.type}) is missing")
        elif column.generated:
            problems.append(f"column {planned.name!r} is computed by the target and not writable")
        elif reason := incompatibility(plan.target.system, planned, column):
            problems.append(f"column {planned.name!r}: {reason}")
    if problems:
        raise SchemaDrift(f"{plan.target} does not fit the transfer: {'; '.join(problems)}")


def converted(plan: CopyPlan, actual: Sequence[Column]) -> list[Hazard]:
    """The columns whose values an existing table gets by a conversion that may change them: what is
    staged has the plan's types.

    Wider numbers, texts and times of the same kind hold the very value.
    """
    by_name = {column.name: column for column in actual}
    types = plan.target.system.types
    hazards = []
    for column in plan.columns:
        planned, there = column.target, by_name.get(column.target.name)
        if there is None:
            continue
        own = there.own_type or there.type
        if types.plain(planned.type) in (types.plain(there.type), types.plain(own)):
            continue
        if not _same_value(types.read(planned.type).kind, types.read(there.type).kind):
            hazards.append(
                Hazard(
                    "column",
                    repr(planned.name),
                    "changes",
                    f"is {own}, into which {planned.type} is converted as rows are published",
                    f"Declare columns: {{{column.source.name}: {{type: {json.dumps(own)}}}}}",
                )
            )
    return hazards


def _same_value(staged: Kind | None, there: Kind | None) -> bool:
    """Whether a value of one kind is the very same in a wider type of another."""
    if type(staged) is not type(there):
        return False
    match staged, there:
        case Text(), Text():
            return not staged.padded and not there.padded
        case Binary(), Binary():
            return not staged.fixed and not there.fixed
        case Timestamp(), Timestamp():
            return staged.zone == there.zone
        case Array(), _:
            return False
    return staged is not None


def unfilled(plan: CopyPlan, actual: Sequence[Column]) -> list[Column]:
    """Columns of the target that the transfer does not write and the server does not compute."""
    planned = {column.name for column in plan.target_columns}
    return [
        column
        for column in actual
        if column.name not in planned and not column.generated and not column.identity
    ]
