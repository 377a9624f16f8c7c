"""Whether an existing target table takes the columns of a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from resources.errors import SchemaDrift
from resources.plan import CopyPlan
from resources.tables import Column

Compatible = Callable[[str, Column, Column], str | None]


def verify_columns(plan: CopyPlan, actual: Sequence[Column], compatible: Compatible) -> None:
    """Compare an existing target table with the plan.

    Args:
        plan: the hop.
        actual: the table's columns.
        compatible: `resources.types.compatible`.

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
        elif reason := compatible(plan.target.system, planned, column):
            problems.append(f"column {planned.name!r}: {reason}")
    if problems:
        raise SchemaDrift(f"{plan.target} does not fit the transfer: {'; '.join(problems)}")


def unfilled(plan: CopyPlan, actual: Sequence[Column]) -> list[Column]:
    """Columns of the target that the transfer does not write and the server does not compute."""
    planned = {column.name for column in plan.target_columns}
    return [
        column
        for column in actual
        if column.name not in planned and not column.generated and not column.identity
    ]
