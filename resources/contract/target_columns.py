"""Whether an existing target table takes the columns of a plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.system import System
from tableferry.resources.contract.target_options import Mark, TargetOptions
from tableferry.resources.errors import SchemaDrift
from tableferry.resources.types.kinds import Array, Binary, Kind, Text, Timestamp
from tableferry.resources.types.type_map import Column
from tableferry.resources.words import listed

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
        SchemaDrift: a planned column is missing, or cannot hold every value; the message names all.
    """
    by_name = {column.name: column for column in actual}
    problems, remedy = [], ""
    for planned in plan.target_columns:
        column = by_name.get(planned.name)
        if column is None:
            others = [repr(each.name) for each in unfilled(plan, actual)]
            remedy = "; set on_schema_drift to add_columns, or exclude what is missing"
            if others:
                remedy += f", or rename it to one that nothing fills ({listed(others)})"
            problems.append(f"column {planned.name!r} ({planned.type}) is missing")
        elif column.generated:
            problems.append(f"column {planned.name!r} is computed by the target and not writable")
        elif reason := incompatibility(plan.target.system, planned, column):
            problems.append(f"column {planned.name!r}: {reason}")
    if problems:
        raise SchemaDrift(f"{plan.target} does not fit the transfer: {'; '.join(problems)}{remedy}")


def converted(plan: CopyPlan, actual: Sequence[Column]) -> list[Hazard]:
    """List the columns of an existing table into which staged values are converted inexactly.

    Staging tables have the plan's types. Wider numbers, texts and times of the same kind are exact.
    """
    by_name = {column.name: column for column in actual}
    types = plan.target.system.types
    hazards = []
    for column in plan.columns:
        planned, existing = column.target, by_name.get(column.target.name)
        if existing is None:
            continue
        type_ = existing.own_type or existing.type
        if types.plain(planned.type) in (types.plain(existing.type), types.plain(type_)):
            continue
        if not _exact(types.read(planned.type).kind, types.read(existing.type).kind):
            hazards.append(
                Hazard(
                    "column",
                    repr(planned.name),
                    "changes",
                    f"is {type_}, into which {planned.type} is converted as rows are published",
                    f"Declare columns: {{{column.source.name}: {{type: {json.dumps(type_)}}}}}",
                )
            )
    return hazards


def _exact(staged: Kind | None, existing: Kind | None) -> bool:
    """Whether values stay exact in a type of another kind that is wide enough."""
    if type(staged) is not type(existing):
        return False
    match staged, existing:
        case Text(), Text():
            return not staged.padded and not existing.padded
        case Binary(), Binary():
            return not staged.fixed and not existing.fixed
        case Timestamp(), Timestamp():
            return staged.zone == existing.zone
        case Array(), _:
            return False
    return staged is not None


def unfilled(plan: CopyPlan, actual: Iterable[Column], mark: Mark | None = None) -> list[Column]:
    """List the target's columns that neither the transfer writes nor the server computes.

    Args:
        plan: the hop.
        actual: the target's columns.
        mark: the column that the transfer marks rows by, if it does.
    """
    written = {column.name for column in [*plan.target_columns, *([mark.column] if mark else [])]}
    return [
        column
        for column in actual
        if column.name not in written and not column.generated and not column.identity
    ]


def unfilled_notes(plan: CopyPlan, options: TargetOptions, columns: Sequence[Column]) -> list[str]:
    """Say what becomes of the values in columns that a transfer does not write."""
    updates = options.appends(plan) or loader_of(plan.target.system).updates_in_place
    inserts_all = options.replaces(plan) or not updates
    whole = ", and so all rows of a range that moves as a whole," if inserts_all else ""
    return [
        f"{plan.target}: column {column.name!r} is not in the transfer: rows that are "
        f"inserted{whole} get its default or NULL; the others keep their values"
        for column in columns
    ]
